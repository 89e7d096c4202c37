"""Results of tasks: found, awaited, and their errors."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.utils import timezone

from taskstore.types.job_record import Attempt, How, JobError, JobRecord, JobStatus, NotAJob
from taskstore.types.jobs import Job

from ..jobs import queues as job_queues
from .backend import TaskStoreBackend, find_task
from .framework import InvalidTask, Task, TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus


class JobEnded(Exception):
    """The process of the job ended, was ended, or could not say what the function returned.

    It is the `exception_class` of such an error; what happened stands in its traceback.
    """


P = ParamSpec("P")
R = TypeVar("R")

STATUSES = {
    JobStatus.SCHEDULED: TaskResultStatus.READY,
    JobStatus.PENDING: TaskResultStatus.READY,
    JobStatus.STARTED: TaskResultStatus.RUNNING,
    JobStatus.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    JobStatus.FAILED: TaskResultStatus.FAILED,
}


def enqueue(task: Task[P, R], record: JobRecord, alias: str) -> TaskResult[P, R]:
    """Add the job. Joins the caller's transaction."""
    at_ms = round(task.run_after.timestamp() * 1000) if task.run_after else 0
    stored = job_queues.enqueue(record, queue=task.queue_name, at_ms=at_ms, priority=task.priority)
    return TaskResult(
        task=task,
        id=str(stored.id),
        status=TaskResultStatus.READY,
        enqueued_at=moment(stored.created_at_ms),
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=list(record.args),
        kwargs=dict(record.kwargs),
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def find(result_id: str, backend: TaskStoreBackend) -> TaskResult[..., Any]:
    """Raises TaskResultDoesNotExist, also for a job that is no task of this project."""
    job = _job(result_id)
    try:
        return of(job, _task(job, backend))
    except (LookupError, InvalidTask) as problem:
        raise TaskResultDoesNotExist(f"{result_id}: {problem}") from None


def _task(job: Job, backend: TaskStoreBackend) -> Task[..., Any]:
    """As it was enqueued. Raises LookupError, and InvalidTask for a queue that the backend no longer has."""
    task = find_task(job.function, backend.modules)
    run_after = moment(job.available_at_ms) if job.status is JobStatus.SCHEDULED else None
    return task.using(queue_name=job.queue, priority=job.priority, run_after=run_after, backend=backend.alias)


def of(job: Job, task: Task[..., Any]) -> TaskResult[..., Any]:
    attempts = _attempts(job)
    result: TaskResult[..., Any] = TaskResult(
        task=task,
        id=str(job.id),
        status=STATUSES[job.status],
        enqueued_at=moment(job.created),
        started_at=moment(attempts[0].started) if attempts else None,
        last_attempted_at=moment(attempts[-1].started) if attempts else None,
        finished_at=moment(attempts[-1].ended) if attempts and job.is_finished else None,
        args=list(job.args),
        kwargs=dict(job.kwargs),
        backend=task.backend,
        errors=[error(each.error) for each in attempts if each.error],
        worker_ids=[each.worker for each in attempts],
    )
    # It can't be given when the result is made.
    object.__setattr__(result, "_return_value", job.result)
    return result


def error(known: JobError) -> TaskError:
    """The class of an exception is known by its path only: whoever asks for it needs its module."""
    if "." in known.type or hasattr(builtins, known.type):
        path = known.type if "." in known.type else f"builtins.{known.type}"
        return TaskError(exception_class_path=path, traceback=known.traceback or f"{known.line}\n")
    # The traceback, if there is one, tells where the function was then.
    path = f"{JobEnded.__module__}.{JobEnded.__qualname__}"
    return TaskError(exception_class_path=path, traceback=f"{known.traceback}{known.line}\n")


def moment(ms: int) -> datetime | None:
    """With a zone where the project has them."""
    if not ms:
        return None
    at = datetime.fromtimestamp(ms / 1000, tz=UTC)
    return at if settings.USE_TZ else timezone.make_naive(at, timezone.get_default_timezone())


def _job(result_id: str) -> Job:
    try:
        job = job_queues.find(int(result_id))
    except (ValueError, NotAJob, OverflowError):
        job = None
    if job is None:
        raise TaskResultDoesNotExist(result_id)
    return job


def _attempts(job: Job) -> Sequence[Attempt]:
    """Those that ended, and the one under way. One that a worker gave back when it stopped counts for nothing."""
    ended = [each for each in job.attempts if each.how not in (None, How.GIVEN_BACK)]
    return [*ended, job.attempt] if job.status is JobStatus.STARTED and job.attempt else ended
