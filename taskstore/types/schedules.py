"""Schedules, and the tasks and jobs that they add."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Self

from msgspec import Meta, Struct, field
from msgspec.structs import asdict, replace

from . import sentences
from .checks import MOST, wrong_members
from .job_record import DEFAULT_QUEUE, JobOptions, JobRecord, new_task, problems_of, queue_group
from .jobs import OptionsRequest, arguments_in
from .requests import Asked
from .scalars import KEY_LENGTH, ONE_PART, Int64, Labels, Limits, Priority, Reason
from .sentences import is_utf8
from .tasks import COMMAND_GROUPS, NewTask, Problem

SCHEDULE_NAME_LENGTH = 100
SCHEDULES = "schedules"  # The group of the schedules' own tasks.
# The label of a schedule with whose rights it adds; without it those of the program. Only the rules write it.
RIGHTS_OF = "rights_of"
SCHEDULE_LABEL, DUE_LABEL = "schedule", "due"  # Of the tasks that a schedule adds.
LONGEST_DATA = 64 * 2**10  # Bytes, because one transaction may add a thousand such tasks.

ScheduleName = Annotated[
    str, Meta(max_length=SCHEDULE_NAME_LENGTH, pattern=ONE_PART, description="The schedule's name.")
]
Milliseconds = Annotated[int, Meta(ge=0, le=MOST, description="Milliseconds since the Epoch.")]


class ScheduleState(StrEnum):
    ON = "on"
    PAUSED = "paused"
    BROKEN = "broken"  # Its error says why.


class CatchUp(StrEnum):
    """How to treat due times that passed while no server was running."""

    SKIP = "skip"
    LATEST = "latest"  # Add one for all of them.
    ALL = "all"  # Add one for each, at most the newest thousand.


class Overlap(StrEnum):
    """What to do about a due time while the last task that the schedule has added has not ended."""

    SKIP = "skip"  # Add nothing.
    WAIT = "wait"  # Add one once that has ended, however many due times pass.
    ALLOW = "allow"  # Add another one.


class Due(Struct, frozen=True, kw_only=True):
    """What a schedule says of the tasks or jobs that it adds."""

    unique: Annotated[
        str, Meta(max_length=KEY_LENGTH, description="A unique key of each: nothing is added while it is taken.")
    ] = ""
    expires_ms: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MOST,
                description="How long after the due time one that waits is cancelled, because it is not worth running "
                "any more; in milliseconds.",
            ),
        ]
        | None
    ) = field(name="expires", default=None)
    overlap: (
        Annotated[
            Overlap,
            Meta(
                description="At a due time before the last one has ended: `skip` adds nothing, `wait` adds one "
                "afterwards, `allow` adds another. The default is `skip` for jobs and `allow` for tasks."
            ),
        ]
        | None
    ) = None

    @property
    def problems_of_runs(self) -> Iterator[Problem]:
        if self.unique:
            yield from sentences.unique_key("", self.unique)
        yield from wrong_members(self, "expires_ms", "overlap")


class DueTask(Due, frozen=True, kw_only=True):
    """The task that a schedule adds."""

    group: str
    data: str = ""
    labels: Labels = field(default_factory=dict)
    priority: Priority = 0


class DueJob(Due, frozen=True, kw_only=True):
    """The job that a schedule enqueues."""

    function: Annotated[str, Meta(description="The dotted path of the function.")]
    args: Annotated[Sequence[Any], Meta(description="The positional arguments.")] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    queue: str = DEFAULT_QUEUE
    priority: Priority = 0
    options: JobOptions = JobOptions()
    labels: Labels = field(default_factory=dict)


class LastRun(Struct, frozen=True, kw_only=True):
    """The last run of a schedule."""

    due_ms: Milliseconds = field(name="due")
    at_ms: Milliseconds = field(name="at")  # When it was added.
    origin: Annotated[int, Meta(ge=0, le=2**63 - 1, description="The id of the task that was added.")]


class SchedulePause(Struct, frozen=True, kw_only=True):
    """The pause of a schedule."""

    by: str
    at_ms: Milliseconds = field(name="at")
    reason: str = ""


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule. If its data is invalid, it has only a name, its ids and an error."""

    name: str
    state: ScheduleState
    error: Annotated[str, Meta(description="Why it is broken; otherwise empty.")]
    id: Annotated[Int64, Meta(description="The current id of its task.")]
    origin: Int64
    cron: str = ""
    in_words: Annotated[str, Meta(description="The cron expression in plain English, if that is short.")] = ""
    zone: str = ""
    catch_up: CatchUp | None = None
    task: DueTask | None = None
    job: DueJob | None = None
    next_ms: Annotated[int | None, Meta(description="The next due time; null while it is paused or broken.")] = field(
        name="next"
    )
    last: Annotated[LastRun | None, Meta(description="null if it has not run.")]
    paused: Annotated[SchedulePause | None, Meta(description="null if it is not paused.")]


def wrong_for_schedules(labels: Mapping[str, str]) -> Iterator[Problem]:
    for name in sorted({SCHEDULE_LABEL, DUE_LABEL} & labels.keys()):
        yield f"labels.{name}", "must be absent: the schedule sets this label"


class PlannedTask(DueTask, Asked, frozen=True, kw_only=True):
    """The task that a schedule adds."""

    def problems(self, limits: Limits) -> Iterator[Problem]:
        if not is_utf8(self.data):
            yield "data", sentences.VALID_UTF8
            return
        if len(self.data.encode()) > LONGEST_DATA:
            yield "data", sentences.at_most(LONGEST_DATA, "bytes", len(self.data.encode()))
        yield from self.problems_of_runs
        yield from wrong_for_schedules(self.labels)
        if not self.group:
            yield "group", sentences.NOT_EMPTY
        elif self.group == SCHEDULES:
            yield "group", "must be a group other than that of the schedules"

    def new_task(self) -> NewTask:
        data = self.data.encode()
        return NewTask(
            group=self.group, data=data, labels=self.labels, priority=self.priority, unique=self.unique or None
        )

    @property
    def overlaps(self) -> Overlap:
        return self.overlap or Overlap.ALLOW


class PlannedJob(DueJob, Asked, frozen=True, kw_only=True):
    """The job that a schedule enqueues."""

    args: tuple[Any, ...] = ()
    options: OptionsRequest = OptionsRequest()

    @classmethod
    def of(cls, job: DueJob) -> Self:
        return cls(**{**asdict(job), "options": OptionsRequest(**job.options.given)})

    def problems(self, limits: Limits) -> Iterator[Problem]:
        wrong = list(problems_of(self.queue, self.record, self.labels))
        yield from [*wrong, *self.problems_of_runs, *wrong_for_schedules(self.labels)]
        if not wrong and len(json.dumps([self.args, self.kwargs])) > LONGEST_DATA:
            yield "args", f"must be at most {LONGEST_DATA} bytes"

    @property
    def record(self) -> JobRecord:
        return JobRecord(
            function=self.function, args=self.args, kwargs=self.kwargs, options=JobOptions(**self.options.given)
        )

    def new_task(self) -> NewTask:
        own: Any = {"priority": self.priority, "unique": self.unique or None, "labels": self.labels}
        return new_task(self.record, queue=self.queue, **own)

    @property
    def overlaps(self) -> Overlap:
        return self.overlap or Overlap.SKIP


class SchedulePlan(Asked, frozen=True, kw_only=True):
    """The task or job to add, and the times. Only the server knows whether these are right."""

    cron: Annotated[
        str,
        Meta(
            description="Five cron fields, six fields that start with the seconds, a name such as @daily, or an "
            "interval such as every 30s."
        ),
    ]
    zone: Annotated[str, Meta(description="The name of a time zone.")] = "UTC"
    catch_up: CatchUp = CatchUp.SKIP
    task: Annotated[PlannedTask, Meta(description="Give either `task` or `job`.")] | None = None
    job: Annotated[PlannedJob, Meta(description="Give either `task` or `job`.")] | None = None

    @property
    def adds(self) -> PlannedTask | PlannedJob:
        added = self.task or self.job
        assert added  # noqa: S101 - `problems` has checked it.
        return added

    @property
    def group(self) -> str:
        """Return the group of the tasks that it adds."""
        return self.adds.group if isinstance(self.adds, PlannedTask) else queue_group(self.adds.queue)

    def problems(self, limits: Limits) -> Iterator[Problem]:
        if self.task is not None and self.job is not None:
            yield "job", sentences.not_together("task") + ": a schedule adds exactly one of them"
            return
        if self.task is None and self.job is None:
            yield "task", "is required unless job is given: a schedule adds exactly one of them"
            return
        name = "task" if self.job is None else "job"
        yield from ((f"{name}.{field}", right) for field, right in self.adds.problems(limits))


class ScheduleByName(Asked, frozen=True):
    name: ScheduleName


class ReasonBySchedule(Asked, frozen=True):
    name: ScheduleName
    reason: Reason = ""


class ScheduleRequest(SchedulePlan, frozen=True, kw_only=True):
    """The task or job to add, and when to add it."""

    name: ScheduleName
    reason: Reason = ""

    @property
    def plan(self) -> SchedulePlan:
        return SchedulePlan(**{name: getattr(self, name) for name in SchedulePlan.__struct_fields__})

    def as_written(self, tree: Any) -> Self:
        if self.job is None:
            return self
        return replace(self, job=replace(self.job, **arguments_in(tree["job"])))


# ---- Which groups a schedule feeds: to write a schedule is as good as writing there

ANY_GROUP = f"{COMMAND_GROUPS}*"  # Only unrestricted rights allow to add to it.


def reached_by(group: str, data: bytes | None) -> Iterator[str]:
    """Yield the groups that a task of this group adds to: none, unless it is a schedule. None: unknown data."""
    if group != SCHEDULES:
        return
    if data is None:
        yield ANY_GROUP
        return
    try:
        record = json.loads(data)
    except RecursionError:
        yield ANY_GROUP  # A scheduler, whose stack has more room left, may understand it.
        return
    except ValueError:
        return
    if not isinstance(record, dict):
        return
    task, job = record.get("task"), record.get("job")
    if isinstance(task, dict) and isinstance(fed := task.get("group"), str):
        yield fed
    if isinstance(job, dict):
        queue = job.get("queue")
        yield queue_group(queue if isinstance(queue, str) else DEFAULT_QUEUE)
