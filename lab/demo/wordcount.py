"""Count the words of a text as the original Task Store shows it: map, then reduce, by workers that may be killed.

    RUN/map          a task for each piece of the text
    RUN/words/a      counts of words that begin with this letter, from single pieces
    RUN/reduce       a task for each letter: who holds it may add up the letter's counts
    RUN/output       a task for each letter: how often each of its words occurs in the text

What a worker takes is leased to it for some seconds; then others get it. What it has done counts only through one
commit that also deletes what it took.
"""

from __future__ import annotations

import json
import os
import pydoc_data.topics
import random
import re
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from lab.testing import PROJECT
from taskstore import Change, Client, CommitRefused, NewTask, NotAllowed, StoreUnavailable

LEASE_MS = 3_000
WORDS_A_PIECE, PIECES_AT_ONCE, COUNTS_AT_ONCE, ADDS_AT_ONCE = 10, 50, 400, 1_000
LOOK_EVERY_S, PATIENCE_S = 0.2, 30.0
KILL_EVERY_S = (0.2, 0.8)  # A random time between these.
CHANCE = random.SystemRandom()
# Letters of any script, apostrophes between them; cut off where a name of a group would become too long.
WORD = re.compile(r"[^\W\d_](?:['\u2019]?[^\W\d_]){0,59}")
ENOUGH = 2**20  # Characters.
LICENCES = Path("/usr/share/common-licenses")  # Debian's.

Tell = Callable[[str, int, int], None]  # Gets what is done, how much of it, and how much there is to do.


class WorkerFailed(Exception):
    """A worker ended unexpectedly; its standard error says why."""


def words_of(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]


# ---- A worker


def work(store: Client, run: str, starter: int) -> None:
    """Do what there is to do until the one who started us is gone."""
    while os.getppid() == starter:
        # A lease that has ended is nothing lost: another worker has the task now.
        with suppress(CommitRefused, StoreUnavailable):
            if map_pieces(store, run) or reduce_letter(store, run):
                continue
        time.sleep(LOOK_EVERY_S)


def map_pieces(store: Client, run: str) -> bool:
    """Replace some pieces with the counts of their words, a task for each first letter. Returns whether there were any.

    Raises CommitRefused if the lease has ended meanwhile.
    """
    pieces = store.claim(f"{run}/map", duration_ms=LEASE_MS, limit=PIECES_AT_ONCE)
    counts: dict[str, Counter[str]] = {}
    for piece in pieces:
        for word in words_of(piece.text):
            counts.setdefault(word[0], Counter())[word] += 1
    if pieces:
        adds = [counted(f"{run}/words/{letter}", found) for letter, found in counts.items()]
        store.commit(adds=adds, deletes=[piece.id for piece in pieces])
    return bool(pieces)


def reduce_letter(store: Client, run: str) -> bool:
    """Replace the counts of one letter with their sum. Returns whether a letter was to be had. Raises CommitRefused."""
    for right in store.claim(f"{run}/reduce", duration_ms=LEASE_MS):
        group = f"{run}/words/{right.text}"
        # No need to claim these: only who holds the right to the letter touches them.
        counts = list(store.group(group, limit=COUNTS_AT_ONCE, owned=True))
        sums: Counter[str] = Counter()
        for each in counts:
            sums.update(json.loads(each.text))
        ids = [each.id for each in counts]
        if len(counts) < COUNTS_AT_ONCE:
            store.commit(adds=[counted(f"{run}/output", sums)], deletes=[*ids, right.id])
        else:  # There may be more: the sum so far is one count, and the next holder goes on.
            store.commit(adds=[counted(group, sums)], updates=[Change(id=right.id, release=True)], deletes=ids)
        return True
    return False


def counted(group: str, counts: Counter[str]) -> NewTask:
    return NewTask(group=group, data=json.dumps(counts).encode())


# ---- The one who starts them


class Crew:
    """Processes that work until the crew is dismissed, and are killed at random meanwhile if that is asked for."""

    def __init__(self, url: str, token: str, run: str, *, size: int, is_killed: bool) -> None:
        self._command = [sys.executable, "-m", __name__, url, run, str(os.getpid())]
        self._environment = {**os.environ, "TASKSTORE_TOKEN": token}
        self._size, self._is_killed, self.kills = size, is_killed, 0
        self._workers: list[subprocess.Popen[bytes]] = []
        self._next_kill_s = time.monotonic() + CHANCE.uniform(*KILL_EVERY_S)

    def __enter__(self) -> Self:
        self._workers = [self._started() for _ in range(self._size)]
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()

    def look_after(self) -> None:
        """Kill and restart workers as due; call it regularly. Raises WorkerFailed if one ended unexpectedly."""
        for worker in self._workers:
            if worker.poll() is not None:
                raise WorkerFailed(f"a worker ended with exit code {worker.returncode}")
        if self._is_killed and time.monotonic() >= self._next_kill_s:
            self._next_kill_s = time.monotonic() + CHANCE.uniform(*KILL_EVERY_S)
            place = CHANCE.randrange(self._size)
            self._workers[place].kill()  # SIGKILL, so that it can't clean up.
            self._workers[place].wait()
            self._workers[place] = self._started()
            self.kills += 1

    def _started(self) -> subprocess.Popen[bytes]:
        # In a separate process group, so that Ctrl-C reaches only the demo, which ends its workers.
        return subprocess.Popen(
            self._command, cwd=PROJECT, env=self._environment, stdin=subprocess.DEVNULL, process_group=0
        )


def count(store: Client, run: str, text: str, crew: Crew, tell: Tell) -> Counter[str]:
    """Return how often each word occurs. Raises WorkerFailed, and the errors of the client."""
    words = WORD.findall(text)
    pieces = [" ".join(words[at : at + WORDS_A_PIECE]) for at in range(0, len(words), WORDS_A_PIECE)]
    do_all(store, f"{run}/map", pieces, crew, lambda done, total: tell("pieces of the text counted", done, total))
    # Now every count of every word is there: each letter can be given out as a task of its own.
    prefix = f"{run}/words/"
    letters = [name.removeprefix(prefix) for name in store.groups() if name.startswith(prefix)]
    do_all(store, f"{run}/reduce", letters, crew, lambda done, total: tell("letters added up", done, total))
    counts: Counter[str] = Counter()
    for task in store.group(f"{run}/output", owned=True):
        counts.update(json.loads(task.text))
    return counts


def do_all(store: Client, group: str, data: Sequence[str], crew: Crew, tell: Callable[[int, int], None]) -> None:
    """Add a task for each, and wait until all are done: one that a worker has claimed is still in the group."""
    for some in chunks(data):
        store.commit(adds=[NewTask(group=group, data=each.encode()) for each in some])
        crew.look_after()
    left = len(data)
    while left:
        counts = {each.group: each for each in store.stats().groups}
        here = counts.get(group)
        left = here.ready + here.claimed + here.expired + here.scheduled if here else 0
        tell(len(data) - left, len(data))
        crew.look_after()
        time.sleep(LOOK_EVERY_S if left else 0)


def clean_up(store: Client, run: str) -> None:
    """Delete all tasks of the run, as soon as the leases of workers that are gone have ended. Raises TimeoutError."""
    give_up_at = time.monotonic() + LEASE_MS / 1_000 + PATIENCE_S
    while left := [task.id for group in groups_of(store, run) for task in store.group(group, owned=True)]:
        for ids in chunks(left):
            with suppress(CommitRefused):
                store.commit(deletes=ids)
                continue
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"somebody else holds tasks of {run}; they stay")
            time.sleep(LOOK_EVERY_S)


def groups_of(store: Client, run: str) -> list[str]:
    return [name for name in store.groups() if name.startswith(f"{run}/")]


def chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[place : place + ADDS_AT_ONCE] for place in range(0, len(items), ADDS_AT_ONCE))


# ---- The text


def text_of(files: Sequence[Path]) -> str:
    """Return the text of the files one after the other. Raises OSError where one can't be read."""
    return "\n".join(file.read_text(errors="replace") for file in files)


def sample_text() -> str:
    """Return at least a megabyte, mostly English: licences, Python's help on its own topics, its library."""
    found = ""
    for piece in _pieces():
        found += f"{piece}\n"
        if len(found) >= ENOUGH:
            break
    return found


def _pieces() -> Iterator[str]:
    # Regular files only: the links beside them are the same licences under other names.
    licences = [file for file in sorted(LICENCES.glob("*")) if not file.is_symlink()]
    yield from (file.read_text(errors="replace") for file in licences)
    yield from pydoc_data.topics.topics.values()
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    yield from (module.read_text(errors="replace") for module in modules)


if __name__ == "__main__":
    with Client(sys.argv[1]) as client:
        try:
            work(client, sys.argv[2], int(sys.argv[3]))
        except NotAllowed as refusal:
            sys.exit(str(refusal))
