"""Enqueue tasks, and read their results and errors."""

from __future__ import annotations

import builtins
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.utils import timezone

from taskstore.errors import InvalidInput
from taskstore.types.job_record import UNCOUNTED, JobError, JobRecord, JobStatus, NotAJob
from taskstore.types.jobs import Job

from ..jobs import queues as job_queues
from .backend import TaskStoreBackend, find_task
from .framework import InvalidTask, Task, TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus


class JobEnded(Exception):
    """The process of the job ended, was ended, or could not report the result.

    It is the `exception_class` of such an error, with the details in the traceback.
    """


MILLISECOND = timedelta(milliseconds=1)

P = ParamSpec("P")
R = TypeVar("R")

STATUSES = {
    JobStatus.SCHEDULED: TaskResultStatus.READY,
    JobStatus.PENDING: TaskResultStatus.READY,
    JobStatus.STARTED: TaskResultStatus.RUNNING,
    JobStatus.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    JobStatus.FAILED: TaskResultStatus.FAILED,
}


def enqueue(task: Task[P, R], record: JobRecord, alias: str) -> tuple[TaskResult[P, R], bool]:
    """Add the job, unless its key is taken. Returns the result, and whether the job is new. Joins the caller's
    transaction.
    """
    at_ms = round(task.run_after.timestamp() * 1000) if task.run_after else 0
    unique, unique_for = getattr(task, "unique", None), getattr(task, "unique_for", None) or 0
    length = unique_for if isinstance(unique_for, timedelta) else timedelta(seconds=unique_for)
    try:
        stored = job_queues.enqueue(
            record,
            queue=task.queue_name,
            at_ms=at_ms,
            priority=task.priority,
            unique=unique,
            unique_for_ms=length // MILLISECOND,
        )
        holder = job_queues.holder_of_key(stored.origin) if stored.duplicate else None
    except InvalidInput as problem:
        if problem.fields.keys().isdisjoint(("unique", "unique_for")):
            raise
        raise InvalidTask(f"{problem}.") from None
    if holder:
        return of(holder, task), False
    result = TaskResult(
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
    return result, not stored.duplicate


def find(result_id: str, backend: TaskStoreBackend) -> TaskResult[..., Any]:
    """Return a result. Raises TaskResultDoesNotExist, also for a job that is not a task of this project."""
    try:
        job = job_queues.find(int(result_id))
    except (ValueError, NotAJob, OverflowError):
        job = None
    if job is None:
        raise TaskResultDoesNotExist(result_id)
    try:
        task = find_task(job.function, backend.modules)
        run_after = moment(job.available_at_ms) if job.status is JobStatus.SCHEDULED else None
        # Raises InvalidTask for a queue that the backend no longer has.
        task = task.using(queue_name=job.queue, priority=job.priority, run_after=run_after, backend=backend.alias)
        return of(job, task)
    except (LookupError, InvalidTask) as problem:
        raise TaskResultDoesNotExist(f"{result_id}: {problem}") from None


def of(job: Job, task: Task[P, R]) -> TaskResult[P, R]:
    """Return the result of a job. An attempt that a stopping worker gave back does not count."""
    attempts = [each for each in job.attempts if each.how not in (None, *UNCOUNTED)]
    if job.status is JobStatus.STARTED and job.attempt:
        attempts.append(job.attempt)
    result: TaskResult[P, R] = TaskResult(
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
    # The constructor does not take it.
    object.__setattr__(result, "_return_value", job.result)
    return result


def error(known: JobError) -> TaskError:
    """Convert an error. Its exception class is a path, which is imported only when somebody asks for the class."""
    if "." in known.type or hasattr(builtins, known.type):
        path = known.type if "." in known.type else f"builtins.{known.type}"
        return TaskError(exception_class_path=path, traceback=known.traceback or f"{known.line}\n")
    # The traceback, if there is one, says where the function was.
    path = f"{JobEnded.__module__}.{JobEnded.__qualname__}"
    return TaskError(exception_class_path=path, traceback=f"{known.traceback}{known.line}\n")


def moment(ms: int) -> datetime | None:
    """Convert milliseconds to a time, aware if the project uses time zones; None for 0."""
    if not ms:
        return None
    at = datetime.fromtimestamp(ms / 1000, tz=UTC)
    return at if settings.USE_TZ else timezone.make_naive(at, timezone.get_default_timezone())
