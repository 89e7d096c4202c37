"""Clients that are slow to send, never read or just wait, beside those that work."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from lab.benchmarks.processes import memory_mb

from .. import CannotTry
from ..client import HELD
from ..crowd import Crowd, Kind, crowd, head
from ..history import History
from ..outcome import Figure, SceneResult, outcome_of
from ..processes import StoreServer
from ..stage import Stage
from ..workers import worker

WORKER = 1_001
TASKS, TASK_BYTES = 300, 10_000  # Much more together than the system takes for a client that does not read.
LONGER = 2.0  # Times what others waited before, at most.
MORE_MB = 150.0
LATE_S = 60.0  # Beyond the run, until who is still there counts as never cut off.
LOOK_EVERY_S = 0.5
WAIT_MS = 60_000

HEADS = Kind(name="slow heads", begin=b"GET /groups HTTP/1.1\r\nHost: localhost\r\n", trickle=b"X-More: 1\r\n")
BODIES = Kind(
    name="slow bodies",
    begin=b"POST /update HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n",
    trickle=b" ",
)


def slow_clients(stage: Stage) -> SceneResult:
    """What others feel of them, what they cost, and whether those who misbehave are cut off."""
    server = stage.server(TASKSTORE_SLOW_CLIENT_SECONDS=str(stage.pace.slow_client_s))
    fill(stage, server)
    readers = Kind(name="never reading", begin=head("GET", f"/group/{HELD}?owned=yes", stage.token))
    asked = {"clientid": WORKER, "group": "nothing", "wait": WAIT_MS}
    waits = Kind(name="waiting", begin=head("POST", "/claim", stage.token, asked))
    slow = {HEADS: 200, BODIES: 50, readers: 200}
    counts = {kind: max(1, round(count * stage.pace.crowd)) for kind, count in {**slow, waits: 500}.items()}
    with stage.load([server]):
        time.sleep(stage.pace.seconds / 2)
        quiet_s, before_mb = time.monotonic(), memory_mb(server.pid)
        with crowd(server.port, counts) as there:
            most_mb = max(memory_for(server.pid, stage.pace.seconds))
            ended_s = time.monotonic()
            left = left_after(there, list(slow), LATE_S)
    history = stage.history(server)
    problems = [f"{left} of the slow clients were never cut off"] if left else []
    # Who waited to the end was answered, and then did not use the connection any more.
    if cut_off := [stayed_s for stayed_s in there.dropped_s.get(waits.name, []) if stayed_s < WAIT_MS / 1_000]:
        problems.append(f"{len(cut_off)} of those who waited for a task were cut off")
    return outcome_of(
        history,
        faults=sum(counts.values()),
        problems=problems,
        figures=[
            Figure(name="p99 of others as a multiple of that before", value=slower(history, quiet_s, ended_s),
                   limit=LONGER, unit=""),
            Figure(name="more memory", value=most_mb - before_mb, limit=MORE_MB, unit="MB"),
            Figure(name="cut off within", value=max(longest(there, slow)), limit=stage.pace.seconds),
        ],
    )  # fmt: skip


def fill(stage: Stage, server: StoreServer) -> None:
    """What those who never read ask for."""
    one = worker(stage, server, WORKER)
    with closing(one.notes):
        if not one.committed(adds=[{"group": HELD, "data": f"{one.unique():{TASK_BYTES}}"} for _ in range(TASKS)]):
            raise CannotTry("the tasks could not be added")


def memory_for(pid: int, seconds: float) -> Iterator[float]:
    """The memory of the server's processes in MB, looked at for so long."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        yield memory_mb(pid)
        time.sleep(LOOK_EVERY_S)


def left_after(there: Crowd, kinds: Sequence[Kind], seconds: float) -> int:
    """How many of these kinds are still there; in a long run that is known already."""
    until_s = time.monotonic() + seconds
    while there.left(kinds) and time.monotonic() < until_s:
        time.sleep(LOOK_EVERY_S)
    return there.left(kinds)


def longest(there: Crowd, kinds: Iterable[Kind]) -> Iterator[float]:
    yield 0.0
    for kind in kinds:
        yield from there.dropped_s.get(kind.name, [])


def slower(history: History, quiet_s: float, ended_s: float) -> float:
    """The time that 99 of 100 changes stayed below, by that before `quiet_s`."""
    changes = [event for event in history.requests if event.is_change and event.client != WORKER]
    before = [event.received_s - event.sent_s for event in changes if event.received_s < quiet_s]
    meanwhile = [event.received_s - event.sent_s for event in changes if quiet_s < event.sent_s < ended_s]
    return p99(meanwhile) / p99(before)


def p99(times_s: Sequence[float]) -> float:
    if not times_s:
        raise CannotTry("nobody got anything done, with or without slow clients")
    return sorted(times_s)[len(times_s) * 99 // 100]
