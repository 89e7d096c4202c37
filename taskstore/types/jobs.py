"""Jobs as the server answers with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from .job_record import FINISHED, Attempt, JobError, JobOptions, JobStatus
from .scalars import After, Int64, prepare


class Job(Struct, frozen=True, kw_only=True):
    """A job."""

    id: Annotated[Int64, Meta(description="The first id of its task, for good.")]
    task: Annotated[Int64, Meta(description="The id that its task has now.")]
    queue: str
    status: JobStatus
    function: str
    args: Annotated[Sequence[Any], Meta(description="Any JSON.")]
    kwargs: Mapping[str, Any]
    options: JobOptions
    attempts: Annotated[tuple[Attempt, ...], Meta(description="The oldest first; the last may be under way.")]
    result: Annotated[Any, Meta(description="What the function returned; null until then.")]
    error: Annotated[JobError | None, Meta(description="Of the last attempt, when it went wrong.")]
    log: Annotated[str, Meta(description="The end of what the last attempt wrote to its outputs.")]
    worker: Annotated[str, Meta(description="Who runs it, or ran it last; empty: not known, or nobody yet.")]
    host: str
    pid: Annotated[int, Meta(description="Of the process; 0: not known.")]
    started: Annotated[int, Meta(description="When the last attempt began; 0: not known, or none yet.")]
    priority: int
    created: Annotated[int, Meta(description="When it was enqueued; milliseconds since the Epoch.")]
    updated: Annotated[int, Meta(description="When anything about it changed.")]
    available_at_ms: Annotated[int, Meta(description="When it is due; while it is started: when the lease ends.")] = (
        field(name="timespec")
    )
    is_whole: Annotated[
        bool, Meta(description="false: its record is larger than a list takes; ask for the job by itself.")
    ] = field(name="whole")
    place: Annotated[str, Meta(description="Where it stands in the list: what follows comes `after`.")]

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
