"""Create, list, pause, resume, run and delete schedules. Each change is recorded in the audit log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from taskstore.errors import InvalidInput, refuse
from taskstore.types.scalars import LATEST_MS, REASON_LENGTH
from taskstore.types.schedules import (
    RIGHTS_OF,
    SCHEDULE_NAME_LENGTH,
    SCHEDULES,
    LastRun,
    Schedule,
    SchedulePause,
    SchedulePlan,
    ScheduleState,
)
from taskstore.types.tasks import Change, Ending, NewTask

from ..access import audit
from ..access.audit import must_still_be
from ..access.rights import Holders
from ..core.actors import PROGRAM, Actor
from ..core.operations import EVERY_GROUP, GroupScope, Operator
from ..database import atomic, dialect_of
from ..managers import TaskQuerySet
from ..models import DueTime, Task
from . import past
from .record import BY_RIGHTS, LONGEST_RECORD, NAME_LABEL, NotASchedule, ScheduleRecord, problems_of_plan, timetable_of

MOST = 1_000
READ_AT_ONCE = 20
TRIES = 3  # To lock the task of a schedule while a server is replacing it.
NAMES_LOCK = 0x7363_6865_6475_6C65  # "schedule", for PostgreSQL's advisory locks.


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchedule:
    """A schedule with its present task. `record` is None when the data is invalid."""

    name: str
    task: Task
    record: ScheduleRecord | None
    error: str  # Empty: it is valid.

    @classmethod
    def of(cls, task: Task) -> StoredSchedule:
        name = task.labels.get(NAME_LABEL, "")
        try:
            record = ScheduleRecord.decode(bytes(task.data))
            # An error that somebody set with another available time disappears at the next due time.
            error = task.error if task.available_at_ms == LATEST_MS else ""
        except NotASchedule as problem:
            record, error = None, str(problem)
        return cls(name=name, task=task, record=record, error=error)

    @property
    def state(self) -> ScheduleState:
        if self.record is None or self.error:
            return ScheduleState.BROKEN
        return ScheduleState.ON if self.record.paused is None else ScheduleState.PAUSED

    @property
    def next_ms(self) -> int | None:
        """Return the next due time; None for a paused or broken schedule."""
        return self.record.due if self.record and self.state is ScheduleState.ON else None

    @property
    def answer(self) -> Schedule:
        record = self.record
        known: dict[str, Any] = {}
        if record:
            known = {"cron": record.cron, "in_words": timetable_of(record).in_words, "zone": record.zone}
            known |= {"catch_up": record.catch_up, "task": record.task or None, "job": record.job or None}
        return Schedule(
            name=self.name,
            state=self.state,
            error=self.error,
            id=self.task.id,
            origin=self.task.origin,
            **known,
            next_ms=self.next_ms,
            last=record.last or None if record else None,
            paused=record.paused or None if record else None,
        )

    def is_within(self, scope: GroupScope) -> bool:
        """Return whether the scope allows the group that it adds to, which is unknown for a broken schedule."""
        return scope.allows(self.record.group) if self.record else scope.is_everything


def stored(tasks: TaskQuerySet) -> Iterator[StoredSchedule]:
    """Read these schedules, the oldest first, a few at a time, and no more of each than a record may have."""
    page = tasks.beginnings(LONGEST_RECORD + 1).order_by("origin")
    found = [*page[:READ_AT_ONCE]]
    while found:
        for task in found:
            task.data = bytes(task.data_start or b"")
            yield StoredSchedule.of(task)
        found = [*page.filter(origin__gt=found[-1].origin)[:READ_AT_ONCE]] if len(found) == READ_AT_ONCE else []


def schedules(scope: GroupScope = EVERY_GROUP) -> list[Schedule]:
    """Return the schedules, sorted by name."""
    tasks = Task.objects.get_queryset().in_group(SCHEDULES)
    found = [each.answer for each in islice(stored(tasks), 2 * MOST) if each.is_within(scope)]
    return sorted(found, key=lambda each: (each.name, each.origin))


def schedule(name: str, scope: GroupScope = EVERY_GROUP) -> Schedule | None:
    """Return the schedule of this name; None when there is none within the scope."""
    task = named(name, scope)
    return StoredSchedule.of(task).answer if task else None


def plan_of(name: str) -> SchedulePlan | None:
    """Return the plan of the schedule of this name, to be changed; None when there is none or its data is invalid."""
    task = named(name)
    record = StoredSchedule.of(task).record if task else None
    return record.plan if record else None


@atomic()
def put(name: str, plan: SchedulePlan, actor: Actor = PROGRAM, *, version: str = "") -> tuple[Schedule, bool]:
    """Create the schedule, or change the one of this name within the actor's scope, which stays paused if it was.

    Returns it, and whether it is new. Raises InvalidInput that names every wrong field, `name` when there are
    too many schedules, and `version` when that is given and another one than that of the present plan. All functions
    that change a schedule raise Forbidden when it adds to a group that the actor may not change.
    """
    problems = [*actor.problems(), *problems_of_plan(plan)]
    is_right = name.strip() == name != "" and name.isprintable() and len(name) <= SCHEDULE_NAME_LENGTH
    if not is_right or "/" in name or name in (".", ".."):  # No URL can have these.
        right = f"must have 1 to {SCHEDULE_NAME_LENGTH} printable characters, without / and without spaces at the ends"
        problems.insert(0, ("name", right))
    refuse(problems)
    actor.must_change(plan.group)
    # Until the transaction ends, no other process creates a schedule: names are unique.
    dialect = dialect_of(Task.objects.writing_alias)
    dialect.send(dialect.lock(NAMES_LOCK))
    task = named(name, actor.scope, is_locked=True)
    before = StoredSchedule.of(task) if task else None
    if before is None:
        return _added(name, plan, actor).answer, True
    _refuse_forbidden(before, actor)
    must_still_be(version, before.record and before.record.plan, "this schedule")
    if before.record and before.record.plan == plan and not before.error:
        return before.answer, False
    return _replaced(before, _changed(before.record, plan), "put schedule", actor, takes_over=True).answer, False


@atomic()
def delete(name: str, actor: Actor = PROGRAM) -> Schedule | None:
    """Delete a schedule, but not the tasks that it has added. Returns its last state; None when there is none.

    Operators may delete every schedule, also one that adds to groups to which they may not add.
    """
    found = _locked(name, actor, ends_it=True)
    if found is None:
        return None
    Task.objects.commit(owner=0, deletes=[found.task.id], operator=actor.operator(Ending.DELETED))
    DueTime.objects.filter(schedule=found.task.origin).delete()
    _record("delete schedule", found, actor)
    return found.answer


@atomic()
def pause(name: str, actor: Actor = PROGRAM) -> Schedule | None:
    """Pause a schedule until somebody resumes it. Returns it, None when there is none.

    Raises InvalidInput about `name` when it is broken.
    """
    found = _locked(name, actor)
    if found is None:
        return None
    record = _valid(found)
    if record.paused is not None and not record.is_held:
        return found.answer
    paused = SchedulePause(by=actor.name, at_ms=Task.objects.now_ms(), reason=actor.reason)
    return _replaced(found, msgspec.structs.replace(record, paused=paused), "pause schedule", actor).answer


def hold(task: Task, record: ScheduleRecord, why: str) -> None:
    """Pause a schedule because it may not add what it plans. Its due times are not forgotten."""
    paused = SchedulePause(by=BY_RIGHTS, at_ms=Task.objects.now_ms(), reason=why)
    _write(task, msgspec.structs.replace(record, paused=paused), why)


def go_on(task: Task, record: ScheduleRecord) -> None:
    """Let a held schedule go on: it may add what it plans again."""
    _write(task, msgspec.structs.replace(record, paused=None), "it may add what it plans again")


def _write(task: Task, record: ScheduleRecord, why: str) -> None:
    change = Change(id=task.id, data=record.encode(), error="", timespec_ms=available_at_ms(record), release=True)
    Task.objects.commit(owner=0, updates=[change], operator=Operator(name=BY_RIGHTS, reason=why[:REASON_LENGTH]))


@atomic()
def resume(name: str, actor: Actor = PROGRAM) -> Schedule | None:
    """Resume a schedule from now on, without catching up. Returns it, None when there is none.

    One that is held because its rights are lost goes on with those of the actor, and catches up as its plan says.
    """
    found = _locked(name, actor)
    if found is None:
        return None
    record = _valid(found)
    if record.paused is None:
        return found.answer
    if not record.is_held and record.due:
        passed = timetable_of(record).passed(record.due, Task.objects.now_ms(), past.KEPT)
        why = f"by {record.paused.by}" + (f": {record.paused.reason}" if record.paused.reason else "")
        past.note(found.task.origin, past.Outcome.PAUSED, passed, why)
    resumed = msgspec.structs.replace(record, paused=None, due=record.due if record.is_held else first_due_of(record))
    holder = found.task.labels.get(RIGHTS_OF, "")
    takes_over = bool(Holders([holder]).why_lacking(holder, [record.group]))
    action = "take over schedule" if takes_over else "resume schedule"
    return _replaced(found, resumed, action, actor, takes_over=takes_over).answer


@atomic()
def run_now(name: str, actor: Actor = PROGRAM) -> Task | None:
    """Add the task of a schedule at once, even while it is paused; its due times stay. None when there is none.

    Raises InvalidInput about `name` when the unique key of its tasks is taken.
    """
    found = _locked(name, actor)
    if found is None:
        return None
    record, now_ms = _valid(found), Task.objects.now_ms()
    [added] = Task.objects.commit(owner=0, adds=[record.due_task(name, now_ms)])
    if added.duplicate:
        why = f'must not be run now: another task holds the unique key "{record.adds.unique}"'
        raise InvalidInput({"name": [why]})
    last = LastRun(due_ms=now_ms, at_ms=now_ms, origin=added.origin)
    _replaced(found, msgspec.structs.replace(record, last=last), "run schedule", actor, ids=[added.id])
    return added


def named(name: str, scope: GroupScope = EVERY_GROUP, *, is_locked: bool = False) -> Task | None:
    """Return the present task of the schedule of this name; the oldest one within the scope.

    There may be several: who has some groups only must not learn from a name what others have.
    `is_locked`: nobody claims or changes it until the caller's transaction ends.
    """
    tasks = Task.objects.get_queryset().in_group(SCHEDULES).bearing(NAME_LABEL, name)
    for _ in range(TRIES if is_locked else 1):
        # A query that waited for the lock of a replaced task finds the successor only when repeated.
        for found in stored(tasks.select_for_update() if is_locked else tasks):
            if scope.is_everything or found.is_within(scope):
                return found.task
    return None


def older_double(found: StoredSchedule) -> Task | None:
    """Return an older task of the same name that adds to the same group: one of the two is a mistake."""
    tasks = Task.objects.get_queryset().in_group(SCHEDULES).bearing(NAME_LABEL, found.name)
    for older in stored(tasks.filter(origin__lt=found.task.origin)):
        if older.record is None or found.record is None or older.record.group == found.record.group:
            return older.task
    return None


def available_at_ms(record: ScheduleRecord) -> int:
    """Return the time from which servers claim the schedule: never while it is paused.

    What waits for the end of the last one is looked for at once.
    """
    return max(record.waits or record.due, 1) if record.paused is None else LATEST_MS  # 0 would mean now.


def first_due_of(plan: SchedulePlan) -> int:
    """Return the next due time from now. Raises InvalidInput about `cron` when there is none."""
    due_ms = timetable_of(plan).after(Task.objects.now_ms())
    if due_ms is None:
        raise InvalidInput({"cron": ["must be an expression that will be due again"]})
    return due_ms


def _locked(name: str, actor: Actor, *, ends_it: bool = False) -> StoredSchedule | None:
    """Return the schedule, locked until the transaction ends; None when there is none within the actor's scope."""
    refuse(actor.problems())
    task = named(name, actor.scope, is_locked=True)
    found = StoredSchedule.of(task) if task else None
    if found and not ends_it:
        _refuse_forbidden(found, actor)
    return found


def _refuse_forbidden(found: StoredSchedule, actor: Actor) -> None:
    """Raise Forbidden when the actor may not change the group that the schedule adds to."""
    if found.record:
        actor.must_change(found.record.group)


def _valid(found: StoredSchedule) -> ScheduleRecord:
    if found.record is None or found.error:
        raise InvalidInput({"name": [f"must not be a broken schedule: {found.error}"]})
    return found.record


def _changed(before: ScheduleRecord | None, plan: SchedulePlan) -> ScheduleRecord:
    """Return the record of a plan that replaces another one."""
    keeps_times = before and before.due and timetable_of(before) == timetable_of(plan)
    return ScheduleRecord(
        **{name: getattr(plan, name) for name in SchedulePlan.__struct_fields__},
        due=before.due if before and keeps_times else first_due_of(plan),
        last=before.last if before else None,
        waits=before.waits if before else 0,
        paused=before.paused if before else None,
    )


def _added(name: str, plan: SchedulePlan, actor: Actor) -> StoredSchedule:
    if Task.objects.get_queryset().in_group(SCHEDULES).count() >= MOST:
        raise InvalidInput(
            {"name": [f"must be the name of an existing schedule: there can be at most {MOST} schedules"]}
        )
    record = _changed(None, plan)
    new = NewTask(group=SCHEDULES, data=record.encode(), labels={NAME_LABEL: name}, timespec_ms=record.due)
    [task] = Task.objects.commit(owner=0, adds=[new], scope=GroupScope(holder=actor.scope.holder))
    made = StoredSchedule.of(task)
    _record("put schedule", made, actor)
    return made


def _replaced(
    found: StoredSchedule,
    record: ScheduleRecord,
    action: str,
    actor: Actor,
    *,
    takes_over: bool = False,
    **details: Any,
) -> StoredSchedule:
    """Write another record. `takes_over`: it adds with the rights of the actor from now on."""
    at_ms = available_at_ms(record)
    labels = None
    if takes_over:
        labels = {name: value for name, value in found.task.labels.items() if name != RIGHTS_OF}
        labels |= {RIGHTS_OF: actor.scope.holder} if actor.scope.holder else {}
    change = Change(id=found.task.id, data=record.encode(), error="", labels=labels, timespec_ms=at_ms, release=True)
    [task] = Task.objects.commit(owner=0, updates=[change], operator=actor.operator())
    made = StoredSchedule.of(task)
    _record(action, made, actor, details)
    return made


def _record(action: str, found: StoredSchedule, actor: Actor, details: Mapping[str, Any] | None = None) -> None:
    audit.record(
        actor,
        action,
        group=found.record.group if found.record else "",
        selection=f"schedule {found.name}",
        done=1,
        details={"ids": [found.task.id]} | dict(details or {}),
    )
