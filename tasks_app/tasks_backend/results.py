"""Find tasks by their names, and make results of jobs."""

from __future__ import annotations

import builtins
import importlib
import sys
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar

from django.apps import apps
from django.conf import settings
from django.utils import timezone

from taskstore.client.errors import JobFailed
from taskstore.client.jobs import pauses
from taskstore.types.job_record import UNCOUNTED, JobError, JobStatus
from taskstore.types.jobs import Job
from taskstore.types.progress import Progress

from .framework import TASK_REFRESH_ATTRS, Task, TaskError, TaskResult, TaskResultStatus


class JobEnded(Exception):
    """The process of the job ended, was ended, or could not report the result.

    It is the `exception_class` of such an error, with the details in the traceback.
    """


P = ParamSpec("P")
R = TypeVar("R")


def known_tasks() -> Iterator[Task[..., Any]]:
    """Yield the tasks in all modules that are imported, those of several modules repeatedly."""
    for module in list(sys.modules.values()):
        for member in list(getattr(module, "__dict__", {}).values()):
            # Not isinstance, which would set up lazy objects.
            if issubclass(type(member), Task):
                yield member


STATUSES = {
    JobStatus.SCHEDULED: TaskResultStatus.READY,
    JobStatus.PENDING: TaskResultStatus.READY,
    JobStatus.STARTED: TaskResultStatus.RUNNING,
    JobStatus.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    JobStatus.FAILED: TaskResultStatus.FAILED,
    JobStatus.CANCELLED: TaskResultStatus.FAILED,
}


def find_task(path: str, modules: Collection[str]) -> Task[..., Any]:
    """Return a task of an installed app, of one of these modules, or of a module that is imported already.

    Raises LookupError for everything else. Clients can name any path in a job, and importing a module runs it, so
    modules that are not part of the project are not imported.
    """
    module, _, name = path.rpartition(".")
    if not (module in sys.modules or module in modules or apps.get_containing_app_config(module)):
        raise LookupError(f"{path} must be in an installed app, or in a module that OPTIONS['modules'] names")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as problem:
        raise LookupError(f"{path} can't be imported: {problem}") from None
    if not isinstance(found, Task):
        raise LookupError(f"{path} is not a task: decorate the function with @task, and keep its name")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreResult(TaskResult):  # type: ignore[misc, type-arg]  # Frozen, and not subscriptable at run time.
    """A result with the progress that the running task has reported; None before it has, and after its end."""

    progress: Progress | None = None

    def get(self, timeout: float | None = None) -> Any:
        """Wait until the task has finished, for `timeout` seconds at most, and return what it returned.

        It reads what is committed: inside a transaction of your own, its task can't begin. Raises JobFailed of
        taskstore if it failed or was cancelled; TimeoutError; TaskResultDoesNotExist if it is no longer kept.
        """
        for pause_s in pauses(timeout):
            self.refresh()
            if self.is_finished:
                break
            time.sleep(pause_s)
        else:
            raise TimeoutError(f"task {self.id} has not finished yet")
        if self.status is TaskResultStatus.FAILED:
            raise JobFailed(self.task.get_backend().job_of(self.id))  # type: ignore[attr-defined]
        return self.return_value

    def cancel(self, reason: str = "") -> bool:
        """Cancel the task, also while it runs: its worker ends it within a second. False: it has finished already.

        It joins the caller's transaction. The result has failed then, with `reason` in its error.
        """
        return bool(self.task.get_backend().cancel(self.id, reason))  # type: ignore[attr-defined]

    def refresh(self) -> None:
        self._take(self.task.get_backend().get_result(self.id))

    async def arefresh(self) -> None:
        self._take(await self.task.get_backend().aget_result(self.id))

    def _take(self, found: Any) -> None:
        for name in (*TASK_REFRESH_ATTRS, "progress"):
            object.__setattr__(self, name, getattr(found, name))


def of(job: Job, task: Task[P, R]) -> TaskResult[P, R]:
    """Return the result of a job. An attempt that a stopping worker gave back does not count."""
    attempts = [each for each in job.attempts if each.how not in (None, *UNCOUNTED)]
    if job.status is JobStatus.STARTED and job.attempt:
        attempts.append(job.attempt)
    errors = [error(each.error) for each in attempts if each.error]
    finished_ms = attempts[-1].ended if attempts and job.is_finished else 0
    if job.status is JobStatus.CANCELLED and job.error:
        errors, finished_ms = [*errors, error(job.error)], job.updated
    result: TaskResult[P, R] = StoreResult(
        progress=job.progress if job.status is JobStatus.STARTED else None,
        task=task,
        id=str(job.id),
        status=STATUSES[job.status],
        enqueued_at=moment(job.created),
        started_at=moment(attempts[0].started) if attempts else None,
        last_attempted_at=moment(attempts[-1].started) if attempts else None,
        finished_at=moment(finished_ms),
        args=list(job.args),
        kwargs=dict(job.kwargs),
        backend=task.backend,
        errors=errors,
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
