"""Tasks that run: what they may know of themselves, and the signals that tell of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from taskstore.jobs.registry import JobContext

from .framework import (
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_finished,
    task_started,
)

if TYPE_CHECKING:
    from .backend import TaskStoreBackend

SIGNALS = (task_started, task_finished)


class Runs:
    """Signals are sent where the function runs, and robustly: what a receiver does wrong is not the task's fault."""

    def __init__(self, backend: TaskStoreBackend) -> None:
        self._backend = backend

    def begin(
        self, task: Task[..., Any], context: JobContext, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult[..., Any]:
        result = self._stored(context) if task.takes_context or _somebody_listens() else None
        if result is None:
            result = self._known(task, context, args, kwargs)
        _set(result, status=TaskResultStatus.RUNNING)
        task_started.send_robust(type(self._backend), task_result=result)
        return result

    def succeed(self, result: TaskResult[..., Any], returned: Any) -> None:
        _set(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=returned)
        task_finished.send_robust(type(self._backend), task_result=result)

    def fail(self, result: TaskResult[..., Any], problem: BaseException) -> None:
        kind = type(problem)
        path = f"{kind.__module__}.{kind.__qualname__}"
        result.errors.append(TaskError(exception_class_path=path, traceback="".join(format_exception(problem))))
        _set(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
        task_finished.send_robust(type(self._backend), task_result=result)

    def _stored(self, context: JobContext) -> TaskResult[..., Any] | None:
        try:
            return self._backend.get_result(str(context.job_id))
        except TaskResultDoesNotExist:  # Somebody has purged it while it runs.
            return None

    def _known(
        self, task: Task[..., Any], context: JobContext, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult[..., Any]:
        """Without asking the store: to connect takes longer than many a task."""
        now = timezone.now()
        return TaskResult(
            task=task,
            id=str(context.job_id),
            status=TaskResultStatus.RUNNING,
            enqueued_at=None,
            started_at=now,
            finished_at=None,
            last_attempted_at=now,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self._backend.alias,
            errors=[],
            worker_ids=[context.worker] * context.attempt,
        )


def _somebody_listens() -> bool:
    """Besides the framework, whose receivers log the id, the function and the status."""
    return any(len(signal.receivers) > 1 for signal in SIGNALS)


def _set(result: TaskResult[..., Any], **members: Any) -> None:
    """A result is frozen for those who look at it."""
    for name, value in members.items():
        object.__setattr__(result, name, value)
