"""Count the words of a text as the original Task Store shows it: map, then reduce, by workers over REST."""

from __future__ import annotations

import json
import pydoc_data.topics
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .crew import Crew
from .wordcount_worker import LEASE_MS, LONGEST_LINE, WORD, ServerAway, Store, Task

CHANGES_AT_ONCE = 1_000
LOOK_EVERY_S = 0.2
PATIENCE_S = 30.0  # With a server that is away, or a machine that is busy.

ENOUGH = 2**20  # Characters.
LICENCES = Path("/usr/share/common-licenses")  # Debian's.


class WordCount:
    """One run. All its groups begin with its name, so that two runs, or what one left behind, do not mix.

    `tell` gets what is going on: what is done, how much of it, and how much there is to do.
    """

    def __init__(self, run: str, store: Store, crew: Crew, tell: Callable[[str, int, int], None]) -> None:
        self._run = run
        self._store = store
        self._crew = crew
        self._tell = tell

    def try_token(self) -> None:
        """Raises Refused, here and not in each worker, when the token is no good for the groups of the run."""
        self._store.claim(f"{self._run}/map", 1)

    def count(self, text: str) -> Counter[str]:
        """How often each word occurs. Raises WorkerFailed, Refused or ServerAway."""
        lines = [piece for line in text.splitlines() for piece in pieces_of(line)]
        self._add("map", "lines added as tasks", lines)
        self._wait_for("map", "lines counted", len(lines))
        # Now every count of every word is there: each letter can be given out as a task of its own.
        letters = self._letters()
        self._add("reduce", "letters added as tasks", letters)
        self._wait_for("reduce", "letters added up", len(letters))
        return self._output()

    def clean_up(self) -> None:
        """Delete all tasks of the run, as soon as the leases of workers that are gone have ended."""
        give_up_at = time.monotonic() + LEASE_MS / 1_000 + PATIENCE_S
        while left := [task["id"] for group in self._groups() for task in self._store.tasks(group)]:
            is_done = [self._store.commit(deletes=ids) for ids in chunks(left)]
            if not all(is_done):
                if time.monotonic() > give_up_at:
                    raise TimeoutError(f"somebody else holds tasks of {self._run}; they stay")
                time.sleep(LOOK_EVERY_S)

    def _add(self, group: str, what: str, data: Sequence[str]) -> None:
        done = 0
        for texts in chunks(data):
            self._store.commit(adds=[{"group": f"{self._run}/{group}", "data": text} for text in texts])
            done += len(texts)
            self._look(what, done, len(data))

    def _wait_for(self, group: str, what: str, total: int) -> None:
        """Until the group is empty: a task that a worker has claimed is still in it, one that is done is not."""
        while self._patiently(lambda: self._store.tasks(f"{self._run}/{group}", limit=1)):
            self._look(what, self._crew.progress[group], total)
            time.sleep(LOOK_EVERY_S)
        self._tell(what, total, total)

    def _look(self, what: str, done: int, total: int) -> None:
        self._crew.look_after()
        self._tell(what, done, total)

    def _patiently(self, read: Callable[[], list[Task]]) -> list[Task]:
        """What is read, also when the server has to be started again meanwhile."""
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                return read()
            except ServerAway:
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(LOOK_EVERY_S)

    def _groups(self) -> list[str]:
        return [name for name in self._store.groups() if name.startswith(f"{self._run}/")]

    def _letters(self) -> list[str]:
        prefix = f"{self._run}/words/"
        return [name.removeprefix(prefix) for name in self._groups() if name.startswith(prefix)]

    def _output(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for task in self._store.tasks(f"{self._run}/output"):
            counts.update(json.loads(task["data"]))
        return counts


def pieces_of(line: str) -> Iterator[str]:
    """The line; in pieces, cut between words, when it is too long; nothing when there is no word in it."""
    if len(line) <= LONGEST_LINE and WORD.search(line):
        yield line
    if len(line) <= LONGEST_LINE:
        return
    start, end = 0, 0
    for word in WORD.finditer(line):
        if word.end() - start > LONGEST_LINE:
            if end > start:
                yield line[start:end]
            start = word.start()
        end = word.end()
    if end > start:
        yield line[start:end]


def chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[place : place + CHANGES_AT_ONCE] for place in range(0, len(items), CHANGES_AT_ONCE))


def differences(found: Counter[str], expected: Counter[str]) -> list[str]:
    """The words whose counts are not the same, sorted."""
    return sorted(word for word in found.keys() | expected.keys() if found[word] != expected[word])


def text_of(files: Sequence[Path]) -> str:
    """The text of the files one after the other. Raises OSError where one can't be read."""
    return "\n".join(file.read_text(errors="replace") for file in files)


def sample_text() -> str:
    """At least a megabyte, mostly English: licences, Python's help on its own topics, modules of its library."""
    pieces = []
    size = 0
    for piece in _pieces():
        pieces.append(piece)
        size += len(piece)
        if size >= ENOUGH:
            break
    return "\n".join(pieces)


def _pieces() -> Iterator[str]:
    # Regular files only: the links beside them are the same licences under other names.
    licences = [file for file in sorted(LICENCES.glob("*")) if not file.is_symlink()]
    yield from (file.read_text(errors="replace") for file in licences)
    yield from pydoc_data.topics.topics.values()
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    yield from (module.read_text(errors="replace") for module in modules)
