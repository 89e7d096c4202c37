"""Workers that are too slow, or die while they hold tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lab.testing import CannotTry
from lab.testing.places import wait_until
from lab.testing.servers import StoreServer

from ..client import HELD as GROUP
from ..client import Orders, Worker
from ..history import events_in
from ..load import begin
from ..outcome import Figure, SceneResult, outcome_of
from ..stage import Stage

AT_ONCE = 50
SLOW, QUICK, FINISHER = 1_001, 1_002, 1_003  # Clients.
LEASE_MS = 3_000
TAKEN_OVER_S = 1.0
WAIT_MS = 5_000
DURATION_MS = 60_000
HOLDERS = 10  # At once.
PATIENCE_S = 120.0

Task = dict[str, Any]


def slow_worker(stage: Stage) -> SceneResult:
    """Commit after another worker took over the task: every commit is refused and names the id."""
    server = stage.server()
    slow, quick = stage.worker(server, SLOW), stage.worker(server, QUICK)
    problems: list[str] = []
    with closing(slow.notes), closing(quick.notes):
        for start in range(0, stage.pace.takeovers, AT_ONCE):
            count = min(AT_ONCE, stage.pace.takeovers - start)
            slow.committed(adds=[{"group": GROUP, "data": slow.unique()} for _ in range(count)])
            held = slow.claimed(count, 0)
            taken = quick.claimed(count, DURATION_MS)
            if len(held) != count or len(taken) != count:
                raise CannotTry(f"of {count} tasks {len(held)} were claimed and {len(taken)} taken over")
            problems += [text for number, task in enumerate(held) for text in commit_too_late(slow, task["id"], number)]
            quick.committed(deletes=[task["id"] for task in taken])
    return outcome_of(stage.history(server), faults=stage.pace.takeovers, problems=problems)


def commit_too_late(slow: Worker, task_id: int, number: int) -> Iterator[str]:
    """Commit too late in one of the ways of a worker: finish, renew or give back."""
    ways: list[tuple[str, dict[str, Any]]] = [
        ("deletes", {"deletes": [task_id], "adds": [{"group": "results", "data": slow.unique()}]}),
        ("changes", {"updates": [{"id": task_id, "keep": True, "timespec": -1_000}]}),
        ("changes", {"updates": [{"id": task_id, "keep": True, "release": True}]}),
    ]
    name, asked = ways[number % len(ways)]
    answer = slow.committed(**asked)
    if not answer or not answer["error"] or answer["error"][name] != [task_id]:
        yield f"a commit of task {task_id} after its lease was taken over was answered {answer}"


def kill_worker(stage: Stage) -> SceneResult:
    """Kill workers that hold a task: it is claimed within a second of the lease's end, and finished once."""
    server = stage.server()
    finisher = stage.worker(server, FINISHER)
    problems: list[str] = []
    late_s = [0.0]
    with closing(finisher.notes):
        for start in range(0, stage.pace.worker_kills, HOLDERS):
            numbers = range(start + 1, min(start + HOLDERS, stage.pace.worker_kills) + 1)
            added = finisher.committed(adds=[{"group": GROUP, "data": finisher.unique()} for _ in numbers])["tasks"]
            held = die_holding(stage, server, numbers)
            finished = finish(finisher, held, len(added))
            late_s += finished.late_s
            if sorted(finished.origins) != sorted(task["id"] for task in added):
                problems.append(f"of {[task['id'] for task in added]} were finished {finished.origins}")
    late = Figure(name="claimed after the end of the lease within", value=max(late_s), limit=TAKEN_OVER_S)
    return outcome_of(stage.history(server), faults=stage.pace.worker_kills, problems=problems, figures=[late])


def die_holding(stage: Stage, server: StoreServer, numbers: range) -> dict[int, Task]:
    """Start clients that claim one task each, and kill them then. Returns the tasks they held, by id."""
    files = [stage.folder / f"client-{number}.jsonl" for number in numbers]
    holders = [
        begin(Orders(addresses=[server.address], token=stage.token, number=number, file=str(file), holds_ms=LEASE_MS))
        for number, file in zip(numbers, files, strict=True)
    ]
    try:
        for file in files:
            wait_until(partial(is_written, file), "a worker claims a task")
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()
    return {task["id"]: task for event in events_in(files) for task in event.made}


def is_written(file: Path) -> bool:
    return file.exists() and file.read_text().endswith("\n")


@dataclass(frozen=True)
class Finished:
    origins: list[int] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)  # By the clock of the database: the claim, after the lease's end.


def finish(finisher: Worker, held: dict[int, Task], count: int) -> Finished:
    """Claim and finish this number of tasks as their leases end."""
    finished = Finished()
    give_up_s = time.monotonic() + PATIENCE_S
    while len(finished.origins) < count and time.monotonic() < give_up_s:
        for task in finisher.claimed(count, DURATION_MS, WAIT_MS):
            claimed_ms = task["timespec"] - DURATION_MS
            ends_ms = [old["timespec"] for old in held.values() if old["origin"] == task["origin"]]
            finished.late_s.append((claimed_ms - max(ends_ms, default=claimed_ms)) / 1_000)
            if not finisher.committed(deletes=[task["id"]]).get("error"):
                finished.origins.append(task["origin"])
    return finished
