"""The record of a schedule: its plan, next due time and last run.

A schedule is a task of the group `schedules` with its name as the label `name`. Its data is a JSON object with the
fields of `ScheduleRecord`; it becomes available when it is due.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from taskstore.errors import InvalidInput, refuse
from taskstore.types import job_record, sentences
from taskstore.types.scalars import prepare
from taskstore.types.schedules import (
    DUE_LABEL,
    SCHEDULE_LABEL,
    CatchUp,
    LastRun,
    Milliseconds,
    SchedulePause,
    SchedulePlan,
)
from taskstore.types.sentences import is_utf8
from taskstore.types.tasks import NewTask, Problem

from ..core.operations import Commit
from ..managers import limits
from ..wire.requests import every_problem, problems_of
from ..wire.strict_json import value_of
from . import timetable
from .past import KEPT
from .timetable import NotATimetable, Timetable

NAME_LABEL = "name"  # Of a schedule.
MOST_CAUGHT_UP = 1_000
LONGEST_RECORD = 512 * 2**10  # Bytes: more than any that `put` writes. Clients may add longer ones, which are broken.
BY_RIGHTS = "store:rights"  # The store, which pauses a schedule whose rights are lost. User names have no colon.
GRACE_MS = 60_000  # A due time this late was not missed: restarts take time.


class NotASchedule(ValueError):
    """The task is not a valid schedule, or is never due. The text says why."""


class ScheduleRecord(SchedulePlan, frozen=True, kw_only=True):
    """The data of a schedule's task."""

    due: Milliseconds = 0  # The next due time; 0: unknown yet.
    last: LastRun | None = None
    waits: Milliseconds = 0  # The due time of what is added once the last one has ended; 0: nothing waits.
    paused: SchedulePause | None = None

    @classmethod
    def decode(cls, data: bytes) -> ScheduleRecord:
        """Parse a record. Raises NotASchedule that names the problem."""
        if len(data) > LONGEST_RECORD:
            raise NotASchedule(f"invalid schedule: must have at most {LONGEST_RECORD} bytes")
        try:
            # json.loads would take surrogates for UTF-8, and UTF-16, too.
            record = value_of(json.loads(data.decode()), cls)
            refuse(problems_of_plan(record))
            if b"\\u" in data:
                record.encode()
            return record
        except InvalidInput as wrong:
            raise NotASchedule(f"invalid schedule: {wrong}") from None
        except UnicodeDecodeError:
            raise NotASchedule("invalid schedule: must be UTF-8 text") from None
        except UnicodeEncodeError:
            raise NotASchedule(f"invalid schedule: {sentences.VALID_UTF8}") from None
        except (ValueError, RecursionError) as wrong:
            raise NotASchedule(f"invalid schedule: {wrong}") from None

    def encode(self) -> bytes:
        # msgspec's own encoder rejects integers beyond 64 bits, which arguments may have.
        return json.dumps(msgspec.to_builtins(self), ensure_ascii=False, separators=(",", ":")).encode()

    def due_task(self, name: str, due_ms: int) -> NewTask:
        """Return the task to add for a due time."""
        asked = self.adds.new_task()
        labels = {**asked.labels, SCHEDULE_LABEL: name, DUE_LABEL: iso(due_ms)}
        return replace(asked, labels=labels)

    @property
    def is_held(self) -> bool:
        """Return whether it is paused because it may not add what it plans."""
        return self.paused is not None and self.paused.by == BY_RIGHTS

    @property
    def plan(self) -> SchedulePlan:
        """Return the plan alone."""
        return SchedulePlan(cron=self.cron, zone=self.zone, catch_up=self.catch_up, task=self.task, job=self.job)


def timetable_of(plan: SchedulePlan) -> Timetable:
    return Timetable(cron=plan.cron, zone=plan.zone)


@every_problem.register
def problems_of_plan(plan: SchedulePlan) -> Iterator[Problem]:
    """Yield the problems of a plan, with those that the store would have with its task."""
    yield from timetable.problems_of(plan.cron, plan.zone)
    yield from plan.problems(limits())
    if plan.task and plan.job:
        return
    if plan.task:
        name, makes_task = "task", is_utf8(plan.task.data)
    elif plan.job:
        name, makes_task = "job", not any(job_record.problems_of(plan.job.queue, plan.job.record))
    else:
        return
    if makes_task:
        for field, right in problems_of(Commit(owner=0, adds=(plan.adds.new_task(),)), below="adds[0]."):
            yield f"{name}.{field}", right


class Turn(NamedTuple):
    """The work of a schedule at a moment."""

    due: list[int]  # The due times to add tasks for, the oldest first.
    next: int  # The next due time.
    missed: list[int] = []  # The latest of those that have passed and get none.


def turn_of(record: ScheduleRecord, now_ms: int) -> Turn:
    """Return the due times that have passed, and the next one. Raises NotASchedule when there is no next one."""
    try:
        return _turn_of(record, now_ms)
    except NotATimetable as problem:
        raise NotASchedule(f"the field cron {problem}") from None


def _turn_of(record: ScheduleRecord, now_ms: int) -> Turn:
    if record.due > now_ms or record.paused is not None:  # Somebody made the task available early.
        return Turn([], record.due)
    times = timetable_of(record)
    next_ms = times.after(now_ms)
    if next_ms is None:
        raise NotASchedule("the schedule has no further due time")
    if not record.due:
        return Turn([], next_ms)
    due = passed = [record.due]
    second = times.after(record.due)
    if second is not None and second <= now_ms:
        most = MOST_CAUGHT_UP if record.catch_up is CatchUp.ALL else 1
        passed = times.passed(record.due, now_ms, max(most, KEPT)) or passed
        due = passed[-most:]
    if record.catch_up is CatchUp.SKIP and now_ms - due[-1] > GRACE_MS:
        due = []
    return Turn(due, next_ms, [due_ms for due_ms in passed if due_ms not in due] if len(due) < len(passed) else [])


def iso(at_ms: int) -> str:
    """Format a time as 2026-11-22T03:00:00Z."""
    return f"{datetime.fromtimestamp(at_ms // 1_000, tz=UTC):%Y-%m-%dT%H:%M:%SZ}"


def due_of(labels: Mapping[str, str]) -> int | None:
    """Return the due time that the labels of a task say; None if they say none."""
    try:
        return round(datetime.strptime(labels[DUE_LABEL], "%Y-%m-%dT%H:%M:%S%z").timestamp() * 1_000)
    except (LookupError, ValueError):
        return None


prepare(ScheduleRecord)
