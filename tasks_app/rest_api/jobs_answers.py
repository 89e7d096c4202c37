"""What is answered about jobs, as types (contract.md section 7)."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from ..job_queues import Job, Page
from ..job_record import Attempt, JobError, JobOptions, JobStatus
from ..wire.scalars import Int64


class JobAnswer(Struct, frozen=True, kw_only=True):
    """A job."""

    id: Annotated[Int64, Meta(description="The first id of its task, for good.")]
    task: Annotated[Int64, Meta(description="The id that its task has now.")]
    queue: str
    status: JobStatus
    function: str
    args: Annotated[list[Any], Meta(description="Any JSON.")]
    kwargs: dict[str, Any]
    options: JobOptions
    attempts: Annotated[list[Attempt], Meta(description="The oldest first; the last may be under way.")]
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
    timespec: Annotated[int, Meta(description="When it is due; while it is started: when the lease ends.")]
    whole: Annotated[
        bool, Meta(description="false: its record is larger than a list takes; ask for the job by itself.")
    ]
    place: Annotated[str, Meta(description="Where it stands in the list: what follows comes `after`.")]

    @classmethod
    def of(cls, job: Job) -> JobAnswer:
        record, attempt = job.record, job.attempt or Attempt()
        return cls(
            id=job.id,
            task=job.task,
            queue=job.queue,
            status=job.status,
            function=record.function,
            args=list(record.args),
            kwargs=dict(record.kwargs),
            options=record.options,
            attempts=list(record.attempts),
            result=record.result,
            error=record.error,
            log=record.log,
            worker=attempt.worker,
            host=attempt.host,
            pid=attempt.pid,
            started=attempt.started,
            priority=job.priority,
            created=job.created_ms,
            updated=job.updated_ms,
            timespec=job.available_at_ms,
            whole=job.is_whole,
            place=str(job.place),
        )


class JobsAnswer(Struct, frozen=True, kw_only=True):
    """Some jobs, the latest first."""

    jobs: tuple[JobAnswer, ...]
    after: Annotated[str | None, Meta(description="Send it as `after` to go on; null: there are no more.")]

    @classmethod
    def of(cls, page: Page) -> JobsAnswer:
        return cls(jobs=tuple(map(JobAnswer.of, page.jobs)), after=str(page.after) if page.after else None)
