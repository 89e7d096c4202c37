"""The five executors of a worker, as the tests of what they have in common see them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lab.testing import PROJECT
from taskstore import Change, Client, CommitRefused, Task, Worker
from taskstore.commands.worker import CommandWorker
from taskstore.jobs.registry import REGISTERED
from taskstore.jobs.worker import JobWorker
from taskstore.types.command_record import Command, CommandList, CommandStatus, group_of, new_list_task
from taskstore.types.job_record import How, JobOptions, JobRecord, JobStatus, finished_group, new_task, queue_group
from taskstore.worker.engine import Engine
from tests.client.patience import PATIENCE_S, wait_for

from . import work
from .children import is_alive
from .work import END, Piece

KINDS = ("thread", "process", "loop", "job", "shell")
PROJECT_NAME = "default"
LATER = 2 * 10**9
START = "from tests.worker.executors import main; main()"


def engine_of(
    kind: str,
    store: Client,
    folder: str,
    *,
    name: str = "ann",
    lease_s: float = 60,
    at_once: int = 1,
    wait_s: float = 0.2,
    grace_s: float = 0,
) -> Engine[Any, Any]:
    usual: dict[str, Any] = {"name": name, "wait_ms": round(wait_s * 1_000), "grace_s": grace_s}
    lease_ms = round(lease_s * 1_000)
    match kind:
        case "shell":
            return CommandWorker(
                store, [PROJECT_NAME], cwd=folder, lists_at_once=at_once, least_lease_s=lease_s, **usual
            )
        case "job":
            runner = [REGISTERED, work.__name__]
            return JobWorker(store, runner=runner, processes=at_once, lease_ms=lease_ms, kill_after_ms=300, **usual)
    processes = at_once if kind == "process" else 0
    worker = Worker(store, threads=at_once, processes=processes, lease_ms=lease_ms, **usual)
    worker.handle("work", max_attempts=1)(work.coroutine if kind == "loop" else work.function)
    return worker


def main() -> None:
    kind, folder, options = sys.argv[1:]
    with Client() as store:
        engine_of(kind, store, folder, **json.loads(options)).run()


class Executor:
    """Pieces of work of one kind in the store, and their workers."""

    group = "work"
    quick_lease_s = 0.5  # By which others get the work of a worker that was killed.

    def __init__(self, kind: str, store: Client, token: str, folder: Path) -> None:
        self.kind, self.store, self.token, self.folder = kind, store, token, folder
        self.ids: dict[str, int] = {}  # The first id of each piece.

    def add(self, name: str, seconds: float = 0, awaits: str = "", *, program: bool = False) -> None:
        self.ids[name] = self._added(Piece(name, seconds, awaits, program))

    def _added(self, piece: Piece) -> int:
        data = json.dumps({"piece": piece, "folder": str(self.folder)})
        return self.store.add("work", data, data_type="application/json").id

    def task(self, name: str) -> Task:
        """The task of a piece that is not done."""
        [found] = [task for task in self.store.group(self.group, owned=True) if task.origin == self.ids[name]]
        return found

    def is_done(self, name: str) -> bool:
        return name in [task.text for task in self.store.group("done")]

    def counted(self, name: str) -> int:
        """The attempts that count."""
        return int(self.task(name).labels.get("attempts", "0"))

    def how(self, name: str) -> list[How]:
        """How the attempts at a piece that is done ended, where that is recorded."""
        return [How.AWAY, How.SUCCEEDED]

    def is_taken_over(self, name: str) -> bool:
        return len(self.pids(name)) == 2

    def is_given_back(self, name: str) -> bool:
        return self.task(name).owner == 0 and self.counted(name) == 0

    def is_over(self, name: str) -> bool:
        """Whether the piece knows that its lease is lost."""
        return (self.folder / f"{name}.told").exists()

    def pids(self, name: str) -> list[int]:
        """The process of each attempt."""
        notes = self.folder / name
        return [int(line) for line in notes.read_text().splitlines()] if notes.exists() else []

    def begins(self, *names: str) -> None:
        for name in names:
            wait_for(partial(self.pids, name), f"the beginning of {name}")

    def ends(self, *names: str) -> None:
        for name in names:
            wait_for(partial(self.is_done, name), f"the end of {name}")

    def is_gone(self, name: str) -> bool:
        return not any(map(is_alive, self.pids(name)))

    def touch(self, name: str) -> None:
        (self.folder / name).touch()

    def change(self, name: str, **members: Any) -> None:
        """Change the task of a piece between two renewals."""
        while True:
            try:
                self.store.commit(updates=[Change(id=self.task(name).id, **members)])
                return
            except CommitRefused:
                pass

    def engine(self, store: Client | None = None, **options: Any) -> Engine[Any, Any]:
        return engine_of(self.kind, store or self.store, str(self.folder), **options)

    @contextmanager
    def worker(self, store: Client | None = None, **options: Any) -> Iterator[Engine[Any, Any]]:
        """One in a thread."""
        engine = self.engine(store, **options)
        thread = threading.Thread(target=engine.run)
        thread.start()
        try:
            yield engine
        finally:
            engine.stop()
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    @contextmanager
    def process(self, url: str = "", **options: Any) -> Iterator[subprocess.Popen[bytes]]:
        """One in a process of its own, which is killed at the end."""
        variables = {**os.environ, "TASKSTORE_URL": url or self.store.url, "TASKSTORE_TOKEN": self.token}
        command = [sys.executable, "-c", START, self.kind, str(self.folder), json.dumps(options)]
        process = subprocess.Popen(command, cwd=PROJECT, env=variables)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def end_all(self) -> None:
        """Let threads end that could not be interrupted."""
        self.touch(END)


class OfJobs(Executor):
    group = queue_group("default")
    quick_lease_s = 600

    def _added(self, piece: Piece) -> int:
        function = f"{work.__name__}.as_job"
        record = JobRecord(function=function, args=[str(self.folder), *piece], options=JobOptions(max_attempts=1))
        [task] = self.store.commit(adds=[new_task(record)])
        return task.origin

    def is_done(self, name: str) -> bool:
        done = self.store.group(finished_group("default", JobStatus.SUCCEEDED))
        return self.ids[name] in [task.origin for task in done]

    def counted(self, name: str) -> int:
        return len(JobRecord.decode(self.task(name).data).counted)

    def how(self, name: str) -> list[How]:
        done = self.store.group(finished_group("default", JobStatus.SUCCEEDED))
        [record] = [JobRecord.decode(task.data) for task in done if task.origin == self.ids[name]]
        return [attempt.how for attempt in record.attempts if attempt.how]

    def is_over(self, name: str) -> bool:
        return self.is_gone(name)


class OfCommands(Executor):
    group = group_of(PROJECT_NAME, CommandStatus.OPEN)
    quick_lease_s = 600

    def _added(self, piece: Piece) -> int:
        command = Command(id=piece.name, cmd=piece.line, until=LATER, expected_duration=1, max_fails=1)
        made = CommandList(name=str(1_000 + len(self.ids)), commands=(command,))
        [task] = self.store.commit(adds=[new_list_task(PROJECT_NAME, made)])
        return task.origin

    def is_done(self, name: str) -> bool:
        return any(not command.run.failed for command in self._ended(name))

    def counted(self, name: str) -> int:
        [command] = CommandList.decode(self.task(name).data).commands
        return command.fails + command.excused

    def is_taken_over(self, name: str) -> bool:
        return any("ann was lost" in command.run.err.text for command in self._ended(name))

    def is_over(self, name: str) -> bool:
        return self.is_gone(name)

    def _ended(self, name: str) -> list[Any]:
        closed = self.store.group(group_of(PROJECT_NAME, CommandStatus.CLOSED), owned=True)
        return [each for task in closed for each in CommandList.decode(task.data).commands if each.id == name]


def executor_of(kind: str, *things: Any) -> Executor:
    kinds: dict[str, type[Executor]] = {"job": OfJobs, "shell": OfCommands}
    return kinds.get(kind, Executor)(kind, *things)
