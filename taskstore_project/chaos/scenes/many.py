"""A store that holds very many tasks."""

from __future__ import annotations

import time
from contextlib import closing

from .. import CannotTry
from ..client import HELD
from ..outcome import Figure, Outcome, Violation
from ..stage import Stage
from ..truth import counts_of, settled
from ..workers import Worker, worker

AT_ONCE = 10_000  # What a commit may hold.
GROUPS = 1_000
CYCLES = 1_000
FEW, WORKER = 10_000, 1_001
LONGER = 1.5  # Times what it takes among few, at most.
LEASE_MS = 60_000


def many_tasks(stage: Stage) -> Outcome:
    """The slowest claims among a million tasks, beside those among ten thousand."""
    server = stage.server()
    one = worker(stage, server, WORKER)
    with closing(one.notes):
        fill(one, FEW)
        few_s = slowest_s(one)
        fill(one, stage.pace.tasks - FEW)
        many_s = slowest_s(one)
    times = Figure(name="p99 of a claim as a multiple of that among few", value=many_s / few_s, limit=LONGER, unit="")
    # A history of so many tasks is more than the checker can hold: what the store counts has to do.
    left = stage.pace.tasks - 2 * CYCLES
    counted = settled(lambda: sum(counts_of(server.url, stage.token).values()), left)
    wrong = [] if counted == left else [Violation(text=f"{left} tasks are left, and {counted} are counted")]
    return Outcome(operations=4 * CYCLES, faults=0, violations=wrong, figures=[times])


def fill(one: Worker, count: int) -> None:
    """One group in a thousand is the one that is worked on; the others share the rest."""
    for start in range(0, count, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, count))
        adds = [
            {"group": HELD if number % 2 else f"tenant-{number % GROUPS}", "data": one.unique()} for number in numbers
        ]
        if not one.committed(adds=adds):
            raise CannotTry(f"{len(adds)} tasks could not be added")


def slowest_s(one: Worker) -> float:
    """The time that 99 of 100 claims stay below."""
    took_s = []
    for _ in range(CYCLES):
        began_s = time.perf_counter()
        [task] = one.claimed(1, LEASE_MS)
        took_s.append(time.perf_counter() - began_s)
        one.committed(deletes=[task["id"]])
    return sorted(took_s)[CYCLES * 99 // 100]
