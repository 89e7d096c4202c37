"""A schedule as its task carries it: when something is due, what is added then, and what was last.

A schedule is a task of the group `schedules` with its name as the label `name`. Its data is a JSON object with the
members of `ScheduleRecord`; it becomes available when it is due.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from taskstore.errors import InvalidInput
from taskstore.types import sentences
from taskstore.types.job_record import JobOptions, JobRecord, OnLost, new_task, queue_group
from taskstore.types.requests import Asked
from taskstore.types.scalars import prepare
from taskstore.types.schedules import CatchUp, DueJob, DueTask, LastRun, Milliseconds, SchedulePause
from taskstore.types.tasks import NewTask, Problem

from ..core.operations import Commit
from ..core.validation import LATEST_MS, is_utf8
from ..jobs import queues as job_queues
from ..wire.decoding import value_of
from ..wire.scalars import Labels, Priority
from ..wire.tasks import problems_of
from . import timetable
from .timetable import Timetable

GROUP = "schedules"
NAME_LABEL = "name"  # Of a schedule.
SCHEDULE_LABEL, DUE_LABEL = "schedule", "due"  # Of what it adds.
NAME_LENGTH = 100
LONGEST_DATA = 64 * 2**10  # Bytes: up to MOST_CAUGHT_UP of them are added in one transaction.
MOST_CAUGHT_UP = 1_000
GRACE_MS = 60_000  # What is late by no more was not missed: servers are restarted, and take turns.

Duration = Annotated[int, Meta(ge=1, le=LATEST_MS // 2, description="Milliseconds.")]
Bytes = Annotated[int, Meta(ge=2**20, le=2**50)]


class NotASchedule(ValueError):
    """The task can't be understood as a schedule, or is never due. The text says why."""


class PlannedTask(DueTask, Asked, frozen=True, kw_only=True):
    """The task that is added when it is due."""

    labels: Labels = field(default_factory=dict)
    priority: Priority = 0

    def new_task(self) -> NewTask:
        return NewTask(group=self.group, data=self.data.encode(), labels=self.labels, priority=self.priority)


class ScheduledJobOptions(Asked, frozen=True, kw_only=True):
    """How the job is run."""

    max_attempts: Annotated[int, Meta(ge=1, le=1_000, description="The maximum number of attempts.")] = 1
    backoff_ms: Annotated[int, Meta(ge=0, le=LATEST_MS // 2, description="The pause before the second attempt.")] = (
        1_000
    )
    timeout_ms: Annotated[
        Duration | UnsetType, Meta(description="The time limit of one attempt; unlimited if absent.")
    ] = UNSET
    memory_bytes: Annotated[
        Bytes | UnsetType, Meta(description="The memory limit of its process; unlimited if absent.")
    ] = UNSET
    on_lost: OnLost = OnLost.RETRY
    max_lost: Annotated[
        int, Meta(ge=1, le=1_000, description="The number of times its worker may die before the job fails.")
    ] = 3


class PlannedJob(DueJob, Asked, frozen=True, kw_only=True):
    """The job that is enqueued when it is due."""

    args: tuple[Any, ...] = ()
    priority: Priority = 0
    # What it does not say is absent, where the options of a job have null.
    options: ScheduledJobOptions = ScheduledJobOptions()  # type: ignore[assignment]

    @property
    def record(self) -> JobRecord:
        options = {name: value for name, value in msgspec.structs.asdict(self.options).items() if value is not UNSET}
        return JobRecord(function=self.function, args=self.args, kwargs=self.kwargs, options=JobOptions(**options))

    def new_task(self) -> NewTask:
        return new_task(self.record, queue=self.queue, priority=self.priority)


class SchedulePlan(Asked, frozen=True, kw_only=True):
    """What is to be added, and when."""

    cron: Annotated[
        str, Meta(description="Five cron fields, or six with seconds first, @daily or the like, or every 30s.")
    ]
    zone: Annotated[str, Meta(description="The name of a time zone.")] = "UTC"
    catch_up: CatchUp = CatchUp.SKIP
    task: Annotated[PlannedTask | UnsetType, Meta(description="Give either this or job.")] = UNSET
    job: Annotated[PlannedJob | UnsetType, Meta(description="Give either this or task.")] = UNSET

    @property
    def adds(self) -> PlannedTask | PlannedJob:
        added = self.job if self.task is UNSET else self.task
        assert added is not UNSET  # noqa: S101 - `problems` has seen to it.
        return added

    @property
    def group(self) -> str:
        """Where what it adds goes."""
        return self.adds.group if isinstance(self.adds, PlannedTask) else queue_group(self.adds.queue)

    @property
    def timetable(self) -> Timetable:
        return Timetable(cron=self.cron, zone=self.zone)

    def problems(self) -> Iterator[Problem]:
        yield from timetable.problems_of(self.cron, self.zone)
        if (self.task is UNSET) == (self.job is UNSET):
            yield "task", "must be given, unless job is: a schedule adds exactly one of them"
        elif self.task is not UNSET:
            yield from _wrong_task(self.task)
        elif self.job is not UNSET:
            yield from _wrong_job(self.job)

    def due_task(self, name: str, due_ms: int) -> NewTask:
        """What is added at a due time."""
        asked = self.adds.new_task()
        labels = {**asked.labels, SCHEDULE_LABEL: name, DUE_LABEL: iso(due_ms)}
        return replace(asked, labels=labels)


class ScheduleRecord(SchedulePlan, frozen=True, kw_only=True):
    """What the task of a schedule holds as its data."""

    due: Milliseconds = 0  # The next due time; 0: not known yet.
    last: LastRun | UnsetType = UNSET
    paused: SchedulePause | UnsetType = UNSET

    @classmethod
    def decode(cls, data: bytes) -> ScheduleRecord:
        """Raises NotASchedule that names what is wrong."""
        try:
            record = value_of(json.loads(data), cls)
            if b"\\u" in data:
                record.encode()
            return record
        except InvalidInput as wrong:
            raise NotASchedule(f"invalid schedule: {wrong}") from None
        except UnicodeEncodeError:
            raise NotASchedule(f"invalid schedule: {sentences.VALID_UTF8}") from None
        except (ValueError, RecursionError) as wrong:  # JSON and UTF-8.
            raise NotASchedule(f"invalid schedule: {wrong}") from None

    def encode(self) -> bytes:
        # Not msgspec's own writer, to which an integer beyond 64 bits among the arguments is none.
        return json.dumps(msgspec.to_builtins(self), ensure_ascii=False, separators=(",", ":")).encode()

    @property
    def plan(self) -> SchedulePlan:
        """What somebody asked for, without what came of it."""
        return SchedulePlan(cron=self.cron, zone=self.zone, catch_up=self.catch_up, task=self.task, job=self.job)


class Turn(NamedTuple):
    """What a schedule has to do at a moment."""

    due: list[int]  # The due times for which something is added, the oldest first.
    next: int  # When it is due again.


def turn_of(record: ScheduleRecord, now_ms: int) -> Turn:
    """What has come due. Raises NotASchedule when nothing does any more."""
    if record.due > now_ms or record.paused is not UNSET:  # Somebody made the task available by hand.
        return Turn([], record.due)
    next_ms = record.timetable.after(now_ms)
    if next_ms is None:
        raise NotASchedule("the schedule has no due time any more")
    return Turn(_passed(record, now_ms) if record.due else [], next_ms)


def _passed(record: ScheduleRecord, now_ms: int) -> list[int]:
    times = record.timetable
    second = times.after(record.due)
    if second is not None and second <= now_ms:  # More than one: rarely.
        most = MOST_CAUGHT_UP if record.catch_up is CatchUp.ALL else 1
        due = times.passed(record.due, now_ms, most) or [record.due]
    else:
        due = [record.due]
    was_missed = record.catch_up is CatchUp.SKIP and now_ms - due[-1] > GRACE_MS
    return [] if was_missed else due


def iso(at_ms: int) -> str:
    """2026-11-22T03:00:00Z"""
    return f"{datetime.fromtimestamp(at_ms // 1_000, tz=UTC):%Y-%m-%dT%H:%M:%SZ}"


def _wrong_task(asked: PlannedTask) -> Iterator[Problem]:
    if not is_utf8(asked.data):
        yield "task.data", sentences.VALID_UTF8
        return
    if len(asked.data.encode()) > LONGEST_DATA:
        yield "task.data", sentences.at_most(LONGEST_DATA, "bytes", len(asked.data.encode()))
    for name in {SCHEDULE_LABEL, DUE_LABEL} & asked.labels.keys():
        yield f"task.labels.{name}", "must be absent: the schedule sets this label"
    if not asked.group:
        yield "task.group", sentences.NOT_EMPTY
    elif asked.group == GROUP:
        yield "task.group", "must be a group other than that of the schedules"
    yield from _wrong_for_the_store(asked, "task.")


def _wrong_job(asked: PlannedJob) -> Iterator[Problem]:
    wrong = list(job_queues.problems_of(asked.queue, asked.record))
    yield from ((f"job.{name}", right) for name, right in wrong)
    if wrong:  # What is no JSON would make no task to look at.
        return
    if len(json.dumps([asked.args, asked.kwargs])) > LONGEST_DATA:
        yield "job.args", f"must be at most {LONGEST_DATA} bytes"
    yield from _wrong_for_the_store(asked, "job.")


def _wrong_for_the_store(asked: PlannedTask | PlannedJob, path: str) -> Iterator[Problem]:
    """What the store would say of the values, before they are due."""
    for name, right in problems_of(Commit(owner=0, adds=(asked.new_task(),)), below="adds[0]."):
        yield f"{path}{name}", right


prepare(ScheduleRecord)
