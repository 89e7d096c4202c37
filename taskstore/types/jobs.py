"""Jobs in responses of the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from .job_record import FINISHED, Attempt, JobError, JobOptions, JobStatus
from .progress import Progress
from .scalars import After, Int64, prepare


class Job(Struct, frozen=True, kw_only=True):
    """A job with its status, attempts and result."""

    id: Annotated[Int64, Meta(description="The first id of its task. It never changes.")]
    task: Annotated[Int64, Meta(description="The current id of its task.")]
    queue: str
    status: JobStatus
    function: str
    args: Annotated[Sequence[Any], Meta(description="Any JSON.")]
    kwargs: Mapping[str, Any]
    options: JobOptions
    attempts: Annotated[tuple[Attempt, ...], Meta(description="Oldest first; the last may be under way.")]
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
        bool, Meta(description="false: its record is too large for a list; request the job by its id.")
    ] = field(name="whole")
    place: Annotated[str, Meta(description="Its position in the sort order; send it as `after` to continue from here.")]
    progress: Annotated[Progress | None, Meta(description="As its function reported it; null if it did not.")] = None

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


prepare(JobsPage)
