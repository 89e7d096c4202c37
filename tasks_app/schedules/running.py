"""Adding what comes due, once for each due time, however many servers there are and whichever dies when.

A schedule is claimed when it is due. What it adds and its successor, which is due later, come in one transaction: who
lost the lease meanwhile finds the claimed task gone, and adds nothing.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence

import msgspec
from django.db import connections, transaction

from taskstore.errors import CommitRefused, InvalidInput
from taskstore.types.schedules import LastRun
from taskstore.types.tasks import Change, Order

from ..access.policy import COMMANDS_ARE_OFF, commands_are_on
from ..core.operations import Claim, GroupScope
from ..core.validation import LATEST_MS, MOST_WAIT_MS
from ..models import Task
from ..writer.background import BackgroundLoop, Failures
from ..writer.writer import running
from .record import GROUP, NotASchedule, ScheduleRecord, turn_of
from .verbs import StoredSchedule, available_at_ms, named

LEASE_MS = 4_000  # After which another server takes over from one that died.
AT_ONCE = 20  # Schedules of a claim: done long before the lease ends.
LOOK_EVERY_S = 1.0  # Where no writer waits for what comes due.


class Scheduler(BackgroundLoop):
    """Beside the writer of each server process, which at its end lets go of the claim that waits."""

    def __init__(self) -> None:
        self._claim = due_claim(wait_ms=MOST_WAIT_MS)
        super().__init__("schedules", self._add_what_is_due)

    async def _add_what_is_due(self) -> float:
        due = await Task.objects.aperform(self._claim)
        await self.aside(settle_all, list(map(Task.of, due)))
        return 0.0


def work(stop: threading.Event) -> None:
    """Add what comes due until `stop`, with a look once a second: for a process beside which no server runs.

    Blocks; call it in a thread of its own. Any number of processes may do it, also beside servers.
    """
    claim = due_claim()
    failures = Failures("schedules", is_alone=running(Task.objects.writing_alias) is None)
    try:
        while not stop.is_set():
            try:
                due = list(map(Task.of, Task.objects.perform(claim)))
                settle_all(due)
                failures.clear()
                rest_s = 0.0 if due else LOOK_EVERY_S
            except Exception as error:  # Whatever it is, what is due tomorrow must still come.
                rest_s = failures.note(error)
                connections.close_all()  # The next time opens new ones.
            stop.wait(rest_s)
    finally:
        # No request ends in this thread, which is when Django would let go of the connection.
        connections.close_all()


def due_claim(wait_ms: int = 0) -> Claim:
    """A claim of what is due, by a client that nobody else is."""
    owner = secrets.randbits(62) + 1
    return Claim(groups=(GROUP,), owner=owner, duration_ms=LEASE_MS, limit=AT_ONCE, order=Order.OLDEST, wait_ms=wait_ms)


def settle_all(tasks: Sequence[Task]) -> None:
    """As `settle`, each of them. One that fails does not hold up the others: the first error is raised at the end."""
    errors: list[Exception] = []
    for task in tasks:
        try:
            settle(task)
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


def settle(task: Task) -> None:
    """Do what a claimed schedule is due for, and put it back until it is due again: both or neither.

    One that makes no sense gets an error that says why, and is never due until somebody has looked at it.
    """
    try:
        with transaction.atomic():
            _add_and_put_back(task)
    except CommitRefused:
        return  # It was changed meanwhile, or the lease ran out, and another process is at it.
    except (NotASchedule, InvalidInput, RecursionError) as problem:  # What can just be read may be too deep to write.
        _set_aside(task, str(problem))


def _add_and_put_back(task: Task) -> None:
    name, record = _understood(task)
    now_ms = task.made_at_ms  # By the claim: the database's clock.
    turn = turn_of(record, now_ms)
    last = record.last
    if turn.due:
        _refuse_commands(record)
        added = Task.objects.commit(owner=0, adds=[record.due_task(name, due_ms) for due_ms in turn.due])
        last = LastRun(due_ms=turn.due[-1], at_ms=now_ms, origin=added[-1].origin)
    record = msgspec.structs.replace(record, due=turn.next, last=last)
    change = Change(id=task.id, data=record.encode(), error="", timespec_ms=available_at_ms(record), release=True)
    Task.objects.commit(owner=task.owner, updates=[change])


def _refuse_commands(record: ScheduleRecord) -> None:
    """Raise NotASchedule when it adds shell commands on a server that is to take none."""
    if why := GroupScope(no_commands_because="" if commands_are_on() else COMMANDS_ARE_OFF).why_forbidden(record.group):
        raise NotASchedule(why)


def _understood(task: Task) -> tuple[str, ScheduleRecord]:
    found = StoredSchedule.of(task)
    if found.record is None:
        raise NotASchedule(found.error)
    if not found.name:
        raise NotASchedule("invalid schedule: the label `name` is required")
    first = named(found.name)
    if first and first.origin != task.origin:
        raise NotASchedule(f"must have a unique name: task {first.id} is an older schedule with the same")
    return found.name, found.record


def _set_aside(task: Task, why: str) -> None:
    change = Change(id=task.id, error=why[:1_000], timespec_ms=LATEST_MS, release=True)
    try:
        Task.objects.commit(owner=task.owner, updates=[change])
    except CommitRefused:
        return  # Somebody has seen to it already.
