"""Jobs in requests and responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Self

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from .job_record import (
    DEFAULT_QUEUE,
    FINISHED,
    SHOWN_MEMBERS,
    Attempt,
    JobError,
    JobOptions,
    JobRecord,
    JobStatus,
    QueueName,
    problems_of,
)
from .progress import Progress
from .requests import Asked, AskedOperation
from .scalars import After, Int64, Labels, Limits, NextAfter, PageSize, Priority, Reason, Timespec, UniqueFor, UniqueKey
from .sentences import unique_key, why_no_json
from .tasks import Problem

Args = Annotated[tuple[Any, ...], Meta(description="The positional arguments.")]
Kwargs = Annotated[dict[str, Any], Meta(description="Keyword arguments.")]
SomeArgs = Annotated[Sequence[Any], Meta(description="The positional arguments.")]


class Job(Struct, frozen=True, kw_only=True):
    """A job with its status, attempts and result."""

    id: Annotated[Int64, Meta(description="The first id of its task. It never changes.")]
    task: Annotated[Int64, Meta(description="The current id of its task.")]
    queue: str
    status: JobStatus
    function: str
    args: Annotated[Sequence[Any], Meta(description="The positional arguments.")]
    kwargs: Mapping[str, Any]
    options: JobOptions
    attempts: Annotated[tuple[Attempt, ...], Meta(description="Oldest first; the last one may still be running.")]
    result: Annotated[Any, Meta(description="The function's return value; null until the job has succeeded.")]
    error: Annotated[JobError | None, Meta(description="The error of the last attempt, if it failed.")]
    log: Annotated[str, Meta(description="The end of the last attempt's output.")]
    worker: Annotated[str, Meta(description="The worker that runs it or ran it last; empty if none or unknown.")]
    host: str
    pid: Annotated[int, Meta(description="The id of the process; 0 if unknown.")]
    started: Annotated[int, Meta(description="When the last attempt started; 0 if none or unknown.")]
    priority: int
    created: Annotated[int, Meta(description="When it was enqueued; milliseconds since the Epoch.")]
    updated: Annotated[int, Meta(description="When it last changed; milliseconds since the Epoch.")]
    available_at_ms: Annotated[int, Meta(description="When it is due; for a started job, when its lease ends.")] = (
        field(name="timespec")
    )
    is_whole: Annotated[
        bool, Meta(description="false if its record is too large for a list; request the job by its id.")
    ] = field(name="whole")
    place: Annotated[str, Meta(description="Its position in the sort order; send it as `after` to continue from here.")]
    progress: Annotated[Progress | None, Meta(description="The progress that its function reported; null if none.")] = (
        None
    )
    labels: Annotated[Mapping[str, str], Meta(description="Its labels, without those that the store sets.")] = field(
        default_factory=dict
    )
    more: Annotated[Mapping[str, Any], Meta(description="Members that other programs have added to its record.")] = (
        field(default_factory=dict)
    )
    duplicate: Annotated[
        bool, Meta(description="true if the unique key was taken; this is then the job that holds it.")
    ] = False

    @property
    def record(self) -> JobRecord:
        """The record of the job's task, as far as it is whole."""
        return JobRecord(**{name: getattr(self, name) for name in SHOWN_MEMBERS})

    @property
    def is_finished(self) -> bool:
        """Whether the job has succeeded or failed."""
        return self.status in FINISHED

    @property
    def attempt(self) -> Attempt | None:
        """The attempt under way or the last one; None before the first."""
        if self.status is JobStatus.STARTED:
            return Attempt(started=self.started, worker=self.worker, host=self.host, pid=self.pid)
        return self.attempts[-1] if self.attempts else None


class JobsPage(Struct, frozen=True, kw_only=True):
    """A page of jobs, latest first."""

    jobs: tuple[Job, ...]
    after: After


class OptionsRequest(JobOptions, Asked, frozen=True, kw_only=True):
    """How a job is run. What is absent is as its function declares, otherwise the default."""


class JobRequest(AskedOperation, frozen=True, kw_only=True):
    """A function to run as soon as a worker is free, or at a later time."""

    function: Annotated[str, Meta(description="The dotted path of the function.")]
    args: Args = ()
    kwargs: Kwargs = field(default_factory=dict)
    queue: Annotated[QueueName, Meta(description="Must not contain /.")] = DEFAULT_QUEUE
    timespec: Timespec = 0
    priority: Priority = 0
    options: OptionsRequest = field(default_factory=OptionsRequest)
    unique: UniqueKey | None = None
    unique_for: UniqueFor = 0
    labels: Labels = field(default_factory=dict)
    clientid: Int64 = 0

    def problems(self, limits: Limits) -> Iterator[Problem]:
        yield from problems_of(self.queue, self.record(), self.labels, limits.labels)
        yield from unique_key("", self.unique, self.unique_for)

    def record(self) -> JobRecord:
        return JobRecord(
            function=self.function, args=self.args, kwargs=self.kwargs, options=JobOptions(**self.options.given)
        )

    def as_written(self, tree: Any) -> Self:
        return replace(self, **arguments_in(tree))


class RequeueRequest(Asked, frozen=True):
    """A finished job to run again."""

    id: Int64
    args: Annotated[SomeArgs, Meta(description="New positional arguments; unchanged if absent.")] | None = None
    kwargs: Annotated[Kwargs, Meta(description="New keyword arguments; unchanged if absent.")] | None = None
    reason: Reason = ""

    def problems(self, limits: Limits) -> Iterator[Problem]:
        for name in ("args", "kwargs"):
            if why := why_no_json(getattr(self, name)):
                yield name, why

    def as_written(self, tree: Any) -> Self:
        return replace(self, **arguments_in(tree))


def arguments_in(tree: Any) -> dict[str, Any]:
    """Return the arguments of a function as they were written: null and large integers are theirs to have."""
    kinds = {"args": tuple, "kwargs": dict}
    return {name: kind(tree[name]) for name, kind in kinds.items() if tree.get(name) is not None}


class JobsRequest(Asked, frozen=True, kw_only=True):
    """Which jobs to list."""

    queue: Annotated[QueueName, Meta(description="Only jobs of this queue.")] | None = None
    status: Annotated[JobStatus, Meta(description="Only jobs with this status.")] | None = None
    function: Annotated[str, Meta(description="Only jobs of this function: its full dotted path.")] = ""
    batch: Annotated[Int64, Meta(description="Only jobs of this batch, by its id.")] | None = None
    after: NextAfter | None = None
    limit: PageSize = 50
