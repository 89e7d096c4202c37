"""Jobs in requests and responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Self

from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import asdict

from .job_record import (
    DEFAULT_QUEUE,
    FINISHED,
    LEAST_MEMORY,
    MOST_MEMORY,
    MOST_TIMES,
    Attempt,
    JobError,
    JobOptions,
    JobRecord,
    JobStatus,
    OnLost,
    problems_of,
)
from .progress import Progress
from .records import MOST
from .requests import Asked, AskedOperation
from .scalars import After, Int64, Limits, Priority, Reason, Timespec, UniqueFor, UniqueKey, prepare
from .sentences import unique_key, why_no_json
from .tasks import Problem

Args = Annotated[tuple[Any, ...], Meta(description="The positional arguments.")]
Kwargs = Annotated[dict[str, Any], Meta(description="Keyword arguments.")]
Times = Annotated[int, Meta(ge=1, le=MOST_TIMES)]
Milliseconds = Annotated[int, Meta(ge=0, le=MOST)]
Limit = Annotated[int, Meta(ge=1, le=MOST)]
Bytes = Annotated[int, Meta(ge=LEAST_MEMORY, le=MOST_MEMORY)]


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
    duplicate: Annotated[
        bool, Meta(description="true if the unique key was taken; this is then the job that holds it.")
    ] = False

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


class OptionsRequest(Asked, frozen=True, kw_only=True):
    """How a job is run. What is absent is as its function declares, otherwise the default."""

    max_attempts: Annotated[Times, Meta(description="The maximum number of attempts; default 1.")] | UnsetType = UNSET
    backoff_ms: (
        Annotated[
            Milliseconds,
            Meta(description="The pause before the second attempt, doubled for each further one; default 1000."),
        ]
        | UnsetType
    ) = UNSET
    timeout_ms: Annotated[Limit, Meta(description="The time limit of one attempt; default unlimited.")] | UnsetType = (
        UNSET
    )
    memory_bytes: (
        Annotated[Bytes, Meta(description="The memory limit of its processes; default unlimited.")] | UnsetType
    ) = UNSET
    on_lost: (
        Annotated[OnLost, Meta(description="What happens to the job if its worker dies; default retry.")] | UnsetType
    ) = UNSET
    max_lost: (
        Annotated[Times, Meta(description="The number of times its worker may die before the job fails; default 3.")]
        | UnsetType
    ) = UNSET

    @classmethod
    def of(cls, options: JobOptions) -> Self:
        return cls(**options.given)

    def options(self) -> JobOptions:
        return JobOptions(**{name: value for name, value in asdict(self).items() if value is not UNSET})


class JobRequest(AskedOperation, frozen=True, kw_only=True):
    """A function to run as soon as a worker is free, or at a later time."""

    function: Annotated[str, Meta(description="The dotted path of the function.")]
    args: Args = ()
    kwargs: Kwargs = field(default_factory=dict)
    queue: Annotated[str, Meta(description="Must not contain /.")] = DEFAULT_QUEUE
    timespec: Timespec = 0
    priority: Priority = 0
    options: OptionsRequest = field(default_factory=OptionsRequest)
    unique: UniqueKey | UnsetType = UNSET
    unique_for: UniqueFor = 0
    clientid: Int64 = 0

    def problems(self, limits: Limits) -> Iterator[Problem]:
        yield from problems_of(self.queue, self.record())
        yield from unique_key("", None if self.unique is UNSET else self.unique, self.unique_for)

    def record(self) -> JobRecord:
        return JobRecord(function=self.function, args=self.args, kwargs=self.kwargs, options=self.options.options())


class RequeueRequest(Asked, frozen=True, kw_only=True):
    """A finished job to run again."""

    args: Annotated[Args, Meta(description="New arguments; unchanged if absent.")] | UnsetType = UNSET
    kwargs: Annotated[Kwargs, Meta(description="New arguments; unchanged if absent.")] | UnsetType = UNSET
    reason: Reason = ""

    def problems(self, limits: Limits) -> Iterator[Problem]:
        for name in ("args", "kwargs"):
            value = getattr(self, name)
            if value is not UNSET and (why := why_no_json(value)):
                yield name, why


prepare(JobsPage, JobRequest, RequeueRequest)
