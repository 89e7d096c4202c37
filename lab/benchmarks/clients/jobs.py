"""Jobs that a contender's own workers run: how many a second, and how soon an idle one starts a new one."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg

from taskstore import Client

from .. import CannotMeasure
from ..figures import percentile
from .client import Party

CHANCE = random.SystemRandom()
LOOK_EVERY_S = 0.01
PATIENCE_S = 120  # Without any result.
IDLE_S = (1.0, 2.0)  # A worker has had nothing to do for a random time between these.


class WorkersClient(Party):
    """What is enqueued is run by workers; the load's clients are so many things at a time."""

    def _results(self, before: int, number: int) -> dict[str, float]:
        """The rate from the first result to the last."""
        began, began_s = self._wait_for_results(before + 1)
        ended, ended_s = self._wait_for_results(before + number)
        if ended != before + number:
            raise CannotMeasure(f"{number} of them have {ended - before} results")
        return {"per_second": (ended - began) / max(ended_s - began_s, LOOK_EVERY_S)}

    def _wait_for_results(self, wanted: int) -> tuple[int, float]:
        """How many there are when they are at least so many, and when that was."""
        found = 0

        def look() -> bool:
            nonlocal found
            found = self.finished()
            return found >= wanted

        wait_until(look)
        return found, time.monotonic()

    @abstractmethod
    def enqueue(self, number: int) -> None:
        """Enqueue what does nothing; how fast does not matter."""

    @abstractmethod
    def workers(self) -> Sequence[Sequence[str]]:
        """The commands that together run so many things at a time as the load says."""

    @abstractmethod
    def finished(self) -> int:
        """How many of them have succeeded, as their records say."""


class JobClient(WorkersClient):
    def jobs(self, number: int, wakeups: int) -> dict[str, float]:
        """Enqueue jobs, start the workers, and look on until there is a result for each."""
        before = self.finished()  # Those of an earlier round.
        self.enqueue(number)
        with working(self.workers()):
            return {**self._results(before, number), **self._wakeups(before + number, wakeups)}

    def _wakeups(self, done: int, times: int) -> dict[str, float]:
        """How long it takes from enqueuing a job to its function, when the workers had nothing to do."""
        took_ms = []
        for number in range(1, times + 1):
            time.sleep(CHANCE.uniform(*IDLE_S))
            took_ms.append(self._wakeup())
            self._wait_for_results(done + number)
        return {f"p{percent}_ms": percentile(took_ms, percent) for percent in (50, 100)}

    def _wakeup(self) -> float:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "clock")
            sent_s = time.monotonic()
            self.enqueue_look_at_clock(str(file))
            wait_until(file.exists)
            return (float(file.read_text()) - sent_s) * 1000

    @abstractmethod
    def enqueue_look_at_clock(self, file: str) -> None:
        """Enqueue one that says when it ran, as a program does that enqueues one job."""


class AtOurServer(Party):
    """Works at a server of this store, which the benchmark runs."""

    def prepare(self) -> None:
        """Nothing: the server has made the tables."""

    def in_store(self, *words: str) -> list[str]:
        """The command line that runs a command of this store for the server."""
        server = self.where["servers"][0]
        os.environ.update(TASKSTORE_URL=server["url"], TASKSTORE_TOKEN=server["token"])
        return [sys.executable, "-m", "taskstore_project", *words]

    def tasks_of(self, group: str) -> int:
        """How many tasks the group has."""
        question = 'SELECT count(*) FROM tasks_app_task WHERE "group" = %s'
        return one(self._database.execute(question, [group]).fetchone())

    @cached_property
    def store(self) -> Client:
        server = self.where["servers"][0]
        return Client(server["url"], token=server["token"])

    @cached_property
    def _database(self) -> psycopg.Connection:
        return psycopg.connect(self.where["url"], autocommit=True)


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs a module of this package."""
    return [sys.executable, "-m", f"{__package__}.{name}", *arguments]


@contextmanager
def working(commands: Sequence[Sequence[str]]) -> Iterator[None]:
    with ExitStack() as running:
        for command in commands:
            running.enter_context(worker(command))
        yield


@contextmanager
def worker(command: Sequence[str]) -> Iterator[None]:
    # What it says goes into the log of this process.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=sys.stderr)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline_s:
            raise CannotMeasure(f"the workers did not get on within {PATIENCE_S} s")
        time.sleep(LOOK_EVERY_S)


def one(row: Any) -> int:
    """The number in a row."""
    return int(row[0])
