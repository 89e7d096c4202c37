"""Jobs as the server answers with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from .job_record import FINISHED, Attempt, JobError, JobOptions, JobStatus
from .scalars import After, Int64, prepare


class Job(Struct, frozen=True, kw_only=True):
    """A job."""

    id: Annotated[Int64, Meta(description="The first id of its task, which never changes.")]
    task: Annotated[Int64, Meta(description="The current id of its task.")]
    queue: str
    status: JobStatus
    function: str
    args: Annotated[Sequence[Any], Meta(description="Any JSON.")]
    kwargs: Mapping[str, Any]
    options: JobOptions
    attempts: Annotated[tuple[Attempt, ...], Meta(description="Oldest first; the last may be running.")]
    result: Annotated[Any, Meta(description="The returned value; null until then.")]
    error: Annotated[JobError | None, Meta(description="The error of the last attempt, if it failed.")]
    log: Annotated[str, Meta(description="The end of the output of the last attempt.")]
    worker: Annotated[str, Meta(description="The worker that runs it, or ran it last; empty if unknown.")]
    host: str
    pid: Annotated[int, Meta(description="The process id; 0 if unknown.")]
    started: Annotated[int, Meta(description="The start of the last attempt; 0 if unknown.")]
    priority: int
    created: Annotated[int, Meta(description="When it was enqueued, in milliseconds since the Epoch.")]
    updated: Annotated[int, Meta(description="When it last changed.")]
    available_at_ms: Annotated[
        int, Meta(description="The time at which it is due; while it is started, the end of its lease.")
    ] = field(name="timespec")
    is_whole: Annotated[
        bool, Meta(description="false in a list if the record is too large for it; request the job itself.")
    ] = field(name="whole")
    place: Annotated[str, Meta(description="The position in the list, for `after`.")]

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED

    @property
    def attempt(self) -> Attempt | None:
        """The attempt under way, or the last one: who runs the job, or ran it."""
        if self.status is JobStatus.STARTED:
            return Attempt(started=self.started, worker=self.worker, host=self.host, pid=self.pid)
        return self.attempts[-1] if self.attempts else None


class JobsPage(Struct, frozen=True, kw_only=True):
    """Some jobs, the latest first."""

    jobs: tuple[Job, ...]
    after: After


prepare(JobsPage)
