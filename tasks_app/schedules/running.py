"""Adding what comes due, once for each due time, however many servers there are and whichever dies when.

A schedule is claimed when it is due. What it adds and its successor, which is due later, come in one transaction: who
lost the lease meanwhile finds the claimed task gone, and adds nothing.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading

import msgspec
from asgiref.sync import sync_to_async
from django.db import Error, connections, transaction

from ..errors import CommitRefused, InvalidInput, TaskStoreError
from ..models import Task
from ..operations import Change, Claim, GroupScope, Order
from ..policy import COMMANDS_ARE_OFF, commands_are_on
from ..validation import LATEST_MS, MOST_WAIT_MS
from .record import GROUP, LastRun, NotASchedule, ScheduleRecord, turn_of
from .verbs import Schedule, available_at_ms, named

log = logging.getLogger(__name__)

LEASE_MS = 4_000  # After which another server takes over from one that died.
AT_ONCE = 20  # Schedules of a claim: done long before the lease ends.
PAUSE_S = 1.0  # Before another try at a store that can't be reached, and between two looks where nothing tells.


class Scheduler:
    """Beside the writer of each server process: at work from its making on, on the loop that runs now."""

    is_busy = False  # Nobody waits: what it leaves another process goes on with.

    def __init__(self) -> None:
        self._claim = due_claim(wait_ms=MOST_WAIT_MS)
        self._is_ending = False
        self._work = asyncio.ensure_future(self._go_on())

    def end(self) -> None:
        """The writer lets go of the claim that waits."""
        self._is_ending = True

    async def ended(self) -> None:
        await self._work

    async def _go_on(self) -> None:
        while not self._is_ending:
            try:
                for task in await Task.objects.aperform(self._claim):
                    await sync_to_async(_settle_aside, thread_sensitive=False)(task)
            except Exception as error:  # Whatever it is, what is due tomorrow must still come.
                if not self._is_ending:
                    _tell_of(error)
                    await asyncio.sleep(PAUSE_S)


def work(stop: threading.Event) -> None:
    """Add what comes due until `stop`, with a look once a second: for a process beside which no server runs.

    Blocks; call it in a thread of its own. Any number of processes may do it, also beside servers.
    """
    claim = due_claim()
    try:
        while not stop.is_set():
            if not _look(claim):
                stop.wait(PAUSE_S)
    finally:
        # No request ends in this thread, which is when Django would let go of the connection.
        connections.close_all()


def due_claim(wait_ms: int = 0) -> Claim:
    """A claim of what is due, by a client that nobody else is."""
    owner = secrets.randbits(62) + 1
    return Claim(groups=(GROUP,), owner=owner, duration_ms=LEASE_MS, limit=AT_ONCE, order=Order.OLDEST, wait_ms=wait_ms)


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
        last = LastRun(due=turn.due[-1], at=now_ms, origin=added[-1].origin)
    record = msgspec.structs.replace(record, due=turn.next, last=last)
    change = Change(id=task.id, data=record.encode(), timespec_ms=available_at_ms(record), release=True)
    Task.objects.commit(owner=task.owner, updates=[change])


def _refuse_commands(record: ScheduleRecord) -> None:
    """Raise NotASchedule when it adds shell commands on a server that is to take none."""
    if why := GroupScope(held="" if commands_are_on() else COMMANDS_ARE_OFF).why_held(record.group):
        raise NotASchedule(why)


def _understood(task: Task) -> tuple[str, ScheduleRecord]:
    found = Schedule.of(task)
    if found.record is None:
        raise NotASchedule(found.error)
    if not found.name:
        raise NotASchedule("this is no schedule: it has no label `name`")
    first = named(found.name)
    if first and first.origin != task.origin:
        raise NotASchedule(f"there is an older schedule of this name: task {first.id}")
    return found.name, found.record


def _set_aside(task: Task, why: str) -> None:
    change = Change(id=task.id, keep_data=True, error=why[:1_000], timespec_ms=LATEST_MS, release=True)
    try:
        Task.objects.commit(owner=task.owner, updates=[change])
    except CommitRefused:
        return  # Somebody has seen to it already.


def _settle_aside(task: Task) -> None:
    """In a thread that may never be used again."""
    try:
        settle(task)
    finally:
        connections.close_all()


def _look(claim: Claim) -> bool:
    """Whether something was due."""
    try:
        due = Task.objects.perform(claim)
        for task in due:
            settle(task)
    except Exception as error:  # As above.
        _tell_of(error)
        connections.close_all()  # The next time opens new ones.
        return False
    return bool(due)


def _tell_of(error: Exception) -> None:
    if isinstance(error, TaskStoreError | Error):
        log.warning("schedules wait for the database: %s", error)
    else:
        log.error("schedules wait: %s", error, exc_info=error)
