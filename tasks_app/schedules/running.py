"""Add the tasks of due schedules, exactly once for each due time, with any number of servers and through crashes.

A server claims a schedule when it is due, and adds its tasks in the transaction that replaces the schedule. A server
that has lost the lease in the meantime finds the claimed task replaced, and adds nothing.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec
from django.db import connections

from taskstore.errors import CommitRefused, Forbidden, InvalidInput
from taskstore.types.scalars import LATEST_MS, MOST_WAIT_MS
from taskstore.types.schedules import RIGHTS_OF, SCHEDULE_LABEL, SCHEDULES, LastRun, Overlap
from taskstore.types.tasks import Change, Order, holds_results
from taskstore.types.texts import clean

from ..access.rights import Holders, refresh
from ..core.operations import Claim, Operator
from ..core.portions import portions
from ..database import atomic
from ..models import Task
from ..writer.background import BackgroundLoop, Failures
from ..writer.writer import running
from . import past
from .past import Outcome
from .record import GRACE_MS, NotASchedule, ScheduleRecord, Turn, due_of, iso, timetable_of, turn_of
from .timetable import NotATimetable
from .verbs import READ_AT_ONCE, StoredSchedule, go_on, hold, older_double, stored

log = logging.getLogger(__name__)

LEASE_MS = 4_000  # After that, another server takes over from one that died.
LEAST_LOOK_MS, MOST_LOOK_MS = 1_000, 60_000  # For the end of the last task, where another one waits for it.
AT_ONCE = 20  # Schedules of a claim, finished long before the lease ends.
LATER = "a later due time had come"
LOOK_EVERY_S = 1.0  # In a process without a writer.


class Scheduler(BackgroundLoop):
    """Adds the tasks of due schedules, in each server process. The writer ends the waiting claim when it stops."""

    def __init__(self) -> None:
        self._claim = due_claim(wait_ms=MOST_WAIT_MS)
        self._looked_s = float("-inf")
        super().__init__("schedules", self._add_due)

    async def _add_due(self) -> float:
        if time.monotonic() - self._looked_s > MOST_WAIT_MS / 1_000:
            self._looked_s = time.monotonic()
            await self.aside(bring_forward)
        due = await Task.objects.aperform(self._claim)
        await self.aside(lambda: settle_all(list(map(Task.of, Task.objects.with_data(due)))))
        return 0.0


RIGHTS_EVERY_S = 4.0  # As for requests, lost rights show within five seconds.


class Planned(NamedTuple):
    """What the rights of a schedule concern."""

    holder: str
    group: str
    is_paused: bool
    is_held: bool

    @classmethod
    def of(cls, found: StoredSchedule) -> Planned | None:
        if (record := found.record) is None:
            return None
        return cls(found.task.labels.get(RIGHTS_OF, ""), record.group, record.paused is not None, record.is_held)


Known = dict[int, Planned | None]  # By the ids of tasks, which never change. None: it is broken.


class RightsKeeper(BackgroundLoop):
    """Holds schedules and batches whose rights are lost, and lets them go on when the rights are back."""

    def __init__(self) -> None:
        self._known: Known = {}
        super().__init__("rights", self._look)

    async def _look(self) -> float:
        await self.aside(partial(keep_rights, self._known))
        return RIGHTS_EVERY_S


def keep_rights(known: Known) -> None:
    """Hold the schedules and batches whose rights are lost, and let those go on whose rights are back.

    `known`: what was read before, so that each schedule is read once.
    """
    refresh()
    tasks = Task.objects.get_queryset().in_group(SCHEDULES)
    ids = {*tasks.values_list("id", flat=True)}
    gone = known.keys() - ids
    if gone or not known:
        past.forget_deleted()
    for task_id in gone:
        del known[task_id]
    for some in portions(sorted(ids - known.keys()), READ_AT_ONCE):
        known.update({found.task.id: Planned.of(found) for found in stored(tasks.filter(id__in=some))})
    holders = Holders(planned.holder for planned in known.values() if planned)
    for task_id, planned in known.items():
        if planned is None:
            continue
        why = holders.why_lacking(planned.holder, [planned.group])
        is_back = planned.is_held and not holders.why_not(planned.holder, [planned.group])
        if not is_back and (planned.is_paused or not why):
            continue
        for found in stored(tasks.filter(id=task_id)):
            with suppress(CommitRefused):  # Another process has changed it just now.
                if found.record and is_back:
                    go_on(found.task, found.record)
                elif found.record:
                    hold(found.task, found.record, why)


def work(stop: threading.Event) -> None:
    """Add the tasks of due schedules until `stop`, polling once a second: for setups without a server.

    Blocks, so call it in a separate thread. Any number of processes may do it, beside servers, too.
    """
    claim = due_claim()
    failures = Failures("schedules", is_alone=running(Task.objects.writing_alias) is None)
    looked_s = float("-inf")
    known: Known = {}
    try:
        while not stop.is_set():
            try:
                if time.monotonic() - looked_s > MOST_WAIT_MS / 1_000:
                    looked_s = time.monotonic()
                    bring_forward()
                    keep_rights(known)
                due = list(map(Task.of, Task.objects.with_data(Task.objects.perform(claim))))
                settle_all(due)
                failures.clear()
                rest_s = 0.0 if due else LOOK_EVERY_S
            except Exception as error:  # No error may stop later due times.
                rest_s = failures.note(error)
                connections.close_all()  # The next query opens new ones.
            stop.wait(rest_s)
    finally:
        # Django closes connections at the end of a request, and this thread serves none.
        connections.close_all()


def bring_forward() -> None:
    """Correct the next due time of schedules that wait for a later one than is their turn.

    A clock that was ahead for a moment would have them wait until then.
    """
    now_ms = Task.objects.now_ms()
    waiting = Task.objects.get_queryset().in_group(SCHEDULES).scheduled(now_ms).filter(available_at_ms__lt=LATEST_MS)
    for found in stored(waiting):
        if found.next_ms is None or found.record is None:
            continue
        next_ms = None
        with suppress(NotATimetable):  # It gets an error when it is due.
            next_ms = timetable_of(found.record).after(now_ms)
        if next_ms is not None and next_ms < found.next_ms:
            text = f"was to be due at {iso(found.next_ms)}, after its next turn, and is now due at {iso(next_ms)}"
            log.warning("schedule %s %s: was a clock ahead?", found.name, text)
            record = msgspec.structs.replace(found.record, due=next_ms)
            change = Change(id=found.task.id, data=record.encode(), timespec_ms=next_ms, release=True)
            with suppress(CommitRefused):  # Somebody has changed it just now.
                Task.objects.commit(owner=0, updates=[change], operator=Operator(name="schedules", reason=text))


def due_claim(wait_ms: int = 0) -> Claim:
    """Return a claim of due schedules by a unique client."""
    owner = secrets.randbits(62) + 1
    return Claim(
        groups=(SCHEDULES,), owner=owner, duration_ms=LEASE_MS, limit=AT_ONCE, order=Order.OLDEST, wait_ms=wait_ms
    )


def settle_all(tasks: Sequence[Task]) -> None:
    """Settle each task. A failing one does not delay the others: the first error is raised at the end."""
    errors: list[Exception] = []
    for task in tasks:
        try:
            settle(task)
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


def settle(task: Task) -> None:
    """Add the tasks that a claimed schedule is due for, and make it available at its next due time: both or neither.

    An invalid schedule gets an error that says why, and is not due again until somebody repairs it.
    """
    found = StoredSchedule.of(task)
    try:
        if found.record is None:
            raise NotASchedule(found.error)
        # Before the transaction, for which others wait. The time is that of the claim by the database's clock.
        turn = turn_of(found.record, task.made_at_ms)
        with atomic():
            _add_tasks(found, found.record, turn)
    except CommitRefused:
        return  # The schedule was changed, or another process has it since the lease ran out.
    except (NotASchedule, InvalidInput, UnicodeError, RecursionError) as problem:  # It may be too deep to write.
        why = clean(str(problem))
        change = Change(id=task.id, error=why, timespec_ms=LATEST_MS, release=True)
        with suppress(CommitRefused), atomic():  # Somebody else has changed it already.
            Task.objects.commit(owner=task.owner, updates=[change])
            past.note(task.origin, Outcome.FAILED, [found.record.due if found.record else task.available_at_ms], why)


def _add_tasks(found: StoredSchedule, record: ScheduleRecord, turn: Turn) -> None:
    task, name = found.task, found.name
    if not name:
        raise NotASchedule("invalid schedule: the label `name` is required")
    if first := older_double(found):
        raise NotASchedule(f"must have a unique name: task {first.id} is an older schedule with the same")
    now_ms = task.made_at_ms
    expired_ms = now_ms - record.adds.expires_ms if record.adds.expires_ms else 0
    in_time = [due_ms for due_ms in turn.due if due_ms > expired_ms]
    due, waits = _without_overlap(record, in_time, expired_ms)
    last = record.last
    note_of = partial(past.note, task.origin)
    if record.waits and record.waits not in (waits, *due):
        if record.waits > expired_ms:
            note_of(Outcome.SKIPPED, [record.waits], LATER if waits or due else "the schedule was changed")
        else:
            note_of(Outcome.EXPIRED, [record.waits], "its time was over before the last one had ended")
    is_late = turn.missed and now_ms - turn.missed[-1] > GRACE_MS
    note_of(Outcome.MISSED, turn.missed, "no server was running" if is_late else LATER)
    note_of(Outcome.EXPIRED, set(turn.due) - set(in_time), "its time was over when a server came")
    if left := set(in_time) - set(due):
        in_the_way = dict.fromkeys(left, last.origin if last else 0)
        why = "the last one had not ended" + (": it is added afterwards" if waits else "")
        note_of(Outcome.SKIPPED, left, why if not due else LATER, in_the_way)
    if due:
        holder = task.labels.get(RIGHTS_OF, "")
        holders = Holders([holder])
        if why := holders.why_not(holder, [record.group]):
            hold(task, record, why)
            note_of(Outcome.FAILED, due, why)
            return
        adds = [record.due_task(name, due_ms) for due_ms in due]
        added = Task.objects.commit(owner=0, adds=adds, scope=holders.scope_of(holder))
        if not added[-1].duplicate:
            last = LastRun(due_ms=due[-1], at_ms=now_ms, origin=added[-1].origin)
        origins = {due_ms: each.origin for due_ms, each in zip(due, added, strict=True)}
        taken = [due_ms for due_ms, each in zip(due, added, strict=True) if each.duplicate]
        note_of(Outcome.ADDED, set(due) - set(taken), "", origins)
        note_of(Outcome.SKIPPED, taken, "another task holds its unique key", origins)
    record = msgspec.structs.replace(record, due=turn.next, last=last, waits=waits)
    at_ms = LATEST_MS
    if record.paused is None:
        at_ms = min([max(record.due, 1), *_looks_ms(record, task.origin, name, expired_ms, now_ms)])
    change = Change(id=task.id, data=record.encode(), error="", timespec_ms=at_ms, release=True)
    Task.objects.commit(owner=task.owner, updates=[change])


def _without_overlap(record: ScheduleRecord, due: Sequence[int], expired_ms: int) -> tuple[Sequence[int], int]:
    """Return for which due times to add something now, and the one that waits for the end of the last (0: none)."""
    overlap = record.adds.overlaps
    if overlap is Overlap.ALLOW:
        return due, 0
    is_running = record.last is not None and _lives(record.last.origin)
    if overlap is Overlap.SKIP:
        return [] if is_running else due[-1:], 0
    latest = [due_ms for due_ms in (record.waits, *due) if due_ms > expired_ms][-1:]
    return ([], max(latest, default=0)) if is_running else (latest, 0)


def _lives(origin: int) -> bool:
    """Whether the task of this chain, or the job, may run or run again by itself."""
    living = Task.objects.get_queryset().of_chains([origin]).only("id", "group", "labels")
    return any(not task.failed_from and not holds_results(task.group) for task in living)


def _looks_ms(record: ScheduleRecord, schedule: int, name: str, expired_ms: int, now_ms: int) -> Iterator[int]:
    """Cancel what has waited for too long. Yields when to look again: for the end of the last, for the next to expire.

    The longer the last one takes, the more seldom: a tenth of its time.
    """
    if record.waits and record.last:
        yield now_ms + min(max((now_ms - record.last.at_ms) // 10, LEAST_LOOK_MS), MOST_LOOK_MS)
    if not record.adds.expires_ms:
        return
    tasks = Task.objects.get_queryset().in_group(record.group).bearing(SCHEDULE_LABEL, name)
    unleased = tasks.filter(leased_since_ms=0).only("id", "labels", "group", "origin")
    waiting = [task for task in unleased if not task.failed_from]
    due = {task.id: due_ms for task in waiting if (due_ms := due_of(task.labels)) is not None}
    if expired := [task_id for task_id, due_ms in due.items() if due_ms <= expired_ms]:
        with suppress(Forbidden):  # A worker has just claimed one: the others go at the next look.
            Task.objects.cancel(expired, by=f"schedule {name}", reason="it has expired", ends_leases=False)
            origins = {due[task.id]: task.origin for task in waiting if task.id in expired}
            past.note(schedule, Outcome.EXPIRED, origins, "no worker had begun it in time", origins)
    yield from [due_ms + record.adds.expires_ms for due_ms in due.values() if due_ms > expired_ms]
