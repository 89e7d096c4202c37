"""Count the words of a text as the original Task Store shows it: map, then reduce, by workers that may be killed.

    RUN/map          a task for each piece of the text
    RUN/words/a      counts of words that begin with this letter, from single pieces
    RUN/reduce       a task for each letter: who holds it may add up the letter's counts
    RUN/output       a task for each letter: how often each of its words occurs in the text

`python -m lab.demo.wordcount URL RUN` is one of the workers. What it takes is leased to it for some seconds; then
others get it. What it has done counts only through one commit that also deletes what it took.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Self

from lab.testing import PROJECT
from lab.testing.processes import ending_with_us
from taskstore import Client, CommitRefused, NewTask, Result, Task, Worker

LEASE_MS = 3_000
WORDS_A_PIECE, CHANGES_AT_ONCE = 100, 1_000
LOOK_EVERY_S, PATIENCE_S = 0.2, 30.0
KILL_EVERY_S = (0.2, 0.8)  # A random time between these.
CHANCE = random.SystemRandom()
# Letters of any script, apostrophes between them; cut off where a name of a group would become too long.
WORD = re.compile(r"[^\W\d_](?:['\u2019]?[^\W\d_]){0,59}")

Tell = Callable[[str, int, int], None]  # Gets what is done, how much of it, and how much there is to do.


class WorkerFailed(Exception):
    """A worker ended unexpectedly; its standard error says why."""


def words_of(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]


def work(store: Client, run: str) -> None:
    """Do what there is to do until the end of the process."""
    worker = Worker(store, threads=4, lease_ms=LEASE_MS)

    @worker.handle(f"{run}/map")
    def count_piece(piece: Task) -> list[NewTask]:
        """Replace a piece with the counts of its words, a task for each first letter."""
        counts: dict[str, Counter[str]] = {}
        for word in words_of(piece.text):
            counts.setdefault(word[0], Counter())[word] += 1
        return [counted(f"{run}/words/{letter}", found) for letter, found in counts.items()]

    @worker.handle(f"{run}/reduce")
    def add_up(right: Task) -> Result:
        """Replace the counts of one letter with their sum: only who holds the right to the letter touches them."""
        counts = list(store.group(f"{run}/words/{right.text}", owned=True))
        sums: Counter[str] = Counter()
        for each in counts:
            sums.update(json.loads(each.text))
        return Result(adds=[counted(f"{run}/output", sums)], deletes=[each.id for each in counts])

    worker.run()


def counted(group: str, counts: Counter[str]) -> NewTask:
    return NewTask(group=group, data=json.dumps(counts).encode())


# ---- The one who starts them


class Crew:
    """Processes that work until the end of the block, and are killed at random meanwhile if that is asked for."""

    def __init__(self, url: str, token: str, run: str, *, size: int, is_killed: bool) -> None:
        self._command = ending_with_us([sys.executable, "-m", __name__, url, run])
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
        left = sum(
            each.ready + each.claimed + each.expired + each.scheduled
            for each in store.stats().groups
            if each.group == group
        )
        tell(len(data) - left, len(data))
        crew.look_after()
        time.sleep(LOOK_EVERY_S if left else 0)


def clean_up(store: Client, run: str) -> None:
    """Delete all tasks of the run, as soon as the leases of workers that are gone have ended. Raises TimeoutError."""
    give_up_at = time.monotonic() + LEASE_MS / 1_000 + PATIENCE_S
    groups = [name for name in store.groups() if name.startswith(f"{run}/")]
    while left := [task.id for group in groups for task in store.group(group, owned=True)]:
        for ids in chunks(left):
            with suppress(CommitRefused):
                store.commit(deletes=ids)
                continue
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"somebody else holds tasks of {run}; they stay")
            time.sleep(LOOK_EVERY_S)


def chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[place : place + CHANGES_AT_ONCE] for place in range(0, len(items), CHANGES_AT_ONCE))


if __name__ == "__main__":
    with Client(sys.argv[1]) as client:
        work(client, sys.argv[2])
