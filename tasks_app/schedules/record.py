"""The record of a schedule: its plan, next due time and last run.

A schedule is a task of the group `schedules` with its name as the label `name`. Its data is a JSON object with the
fields of `ScheduleRecord`; it becomes available when it is due.
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
from ..wire.scalars import Labels, Priority
from ..wire.strict_json import value_of
from ..wire.tasks import problems_of
from . import timetable
from .timetable import Timetable

GROUP = "schedules"
NAME_LABEL = "name"  # Of a schedule.
SCHEDULE_LABEL, DUE_LABEL = "schedule", "due"  # Of the tasks that it adds.
NAME_LENGTH = 100
LONGEST_DATA = 64 * 2**10  # Bytes; one transaction adds up to MOST_CAUGHT_UP such tasks.
MOST_CAUGHT_UP = 1_000
GRACE_MS = 60_000  # A due time this late was not missed: restarts take time.

Duration = Annotated[int, Meta(ge=1, le=LATEST_MS // 2, description="Milliseconds.")]
Bytes = Annotated[int, Meta(ge=2**20, le=2**50)]


class NotASchedule(ValueError):
    """The task is not a valid schedule, or is never due. The text says why."""


class PlannedTask(DueTask, Asked, frozen=True, kw_only=True):
    """The task that a schedule adds."""

    labels: Labels = field(default_factory=dict)
    priority: Priority = 0

    def new_task(self) -> NewTask:
        return NewTask(group=self.group, data=self.data.encode(), labels=self.labels, priority=self.priority)


class ScheduledJobOptions(Asked, frozen=True, kw_only=True):
    """The options of a scheduled job."""

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
    """The job that a schedule enqueues."""

    args: tuple[Any, ...] = ()
    priority: Priority = 0
    # Options that are not given are absent; in the options of a job they are null.
    options: ScheduledJobOptions = ScheduledJobOptions()  # type: ignore[assignment]

    @property
    def record(self) -> JobRecord:
        options = {name: value for name, value in msgspec.structs.asdict(self.options).items() if value is not UNSET}
        return JobRecord(function=self.function, args=self.args, kwargs=self.kwargs, options=JobOptions(**options))

    def new_task(self) -> NewTask:
        return new_task(self.record, queue=self.queue, priority=self.priority)


class SchedulePlan(Asked, frozen=True, kw_only=True):
    """The task or job to add, and the times."""

    cron: Annotated[
        str,
        Meta(
            description="Five cron fields, six fields that start with the seconds, a name such as @daily, or an "
            "interval such as every 30s."
        ),
    ]
    zone: Annotated[str, Meta(description="The name of a time zone.")] = "UTC"
    catch_up: CatchUp = CatchUp.SKIP
    task: Annotated[PlannedTask | UnsetType, Meta(description="Give either `task` or `job`.")] = UNSET
    job: Annotated[PlannedJob | UnsetType, Meta(description="Give either `task` or `job`.")] = UNSET

    @property
    def adds(self) -> PlannedTask | PlannedJob:
        added = self.job if self.task is UNSET else self.task
        assert added is not UNSET  # noqa: S101 - `problems` has checked it.
        return added

    @property
    def group(self) -> str:
        """Return the group of the tasks that it adds."""
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
        """Return the task to add for a due time."""
        asked = self.adds.new_task()
        labels = {**asked.labels, SCHEDULE_LABEL: name, DUE_LABEL: iso(due_ms)}
        return replace(asked, labels=labels)


class ScheduleRecord(SchedulePlan, frozen=True, kw_only=True):
    """The data of a schedule's task."""

    due: Milliseconds = 0  # The next due time; 0: unknown yet.
    last: LastRun | UnsetType = UNSET
    paused: SchedulePause | UnsetType = UNSET

    @classmethod
    def decode(cls, data: bytes) -> ScheduleRecord:
        """Parse a record. Raises NotASchedule that names the problem."""
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
        # msgspec's own encoder rejects integers beyond 64 bits, which arguments may have.
        return json.dumps(msgspec.to_builtins(self), ensure_ascii=False, separators=(",", ":")).encode()

    @property
    def plan(self) -> SchedulePlan:
        """Return the plan alone."""
        return SchedulePlan(cron=self.cron, zone=self.zone, catch_up=self.catch_up, task=self.task, job=self.job)


class Turn(NamedTuple):
    """The work of a schedule at a moment."""

    due: list[int]  # The due times to add tasks for, the oldest first.
    next: int  # The next due time.


def turn_of(record: ScheduleRecord, now_ms: int) -> Turn:
    """Return the due times that have passed, and the next one. Raises NotASchedule when there is no next one."""
    if record.due > now_ms or record.paused is not UNSET:  # Somebody made the task available early.
        return Turn([], record.due)
    times = record.timetable
    next_ms = times.after(now_ms)
    if next_ms is None:
        raise NotASchedule("the schedule has no due time any more")
    if not record.due:
        return Turn([], next_ms)
    due = [record.due]
    second = times.after(record.due)
    if second is not None and second <= now_ms:
        most = MOST_CAUGHT_UP if record.catch_up is CatchUp.ALL else 1
        due = times.passed(record.due, now_ms, most) or due
    was_missed = record.catch_up is CatchUp.SKIP and now_ms - due[-1] > GRACE_MS
    return Turn([] if was_missed else due, next_ms)


def iso(at_ms: int) -> str:
    """Format a time as 2026-11-22T03:00:00Z."""
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
    if wrong:  # Without valid JSON there is no task to check.
        return
    if len(json.dumps([asked.args, asked.kwargs])) > LONGEST_DATA:
        yield "job.args", f"must be at most {LONGEST_DATA} bytes"
    yield from _wrong_for_the_store(asked, "job.")


def _wrong_for_the_store(asked: PlannedTask | PlannedJob, path: str) -> Iterator[Problem]:
    """Yield the errors that the store would raise when the task is due."""
    for name, right in problems_of(Commit(owner=0, adds=(asked.new_task(),)), below="adds[0]."):
        yield f"{path}{name}", right


prepare(ScheduleRecord)
