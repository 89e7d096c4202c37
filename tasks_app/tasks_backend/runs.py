"""The results of running tasks, and the framework's signals about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
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
    """Sends signals in the process of the function, robustly: an error in a receiver must not fail the task."""

    def __init__(self, backend: TaskStoreBackend) -> None:
        self._backend = backend

    def begin(
        self, task: Task[..., Any], context: JobContext, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult[..., Any]:
        result = None
        # The framework's own receivers, one for each signal, log only the id, the function and the status.
        if task.takes_context or any(len(signal.receivers) > 1 for signal in SIGNALS):
            with suppress(TaskResultDoesNotExist):  # The task may have been purged while it runs.
                result = self._backend.get_result(str(context.job_id))
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

    def _known(
        self, task: Task[..., Any], context: JobContext, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult[..., Any]:
        """Return the result without a query: connecting takes longer than many tasks."""
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


def _set(result: TaskResult[..., Any], **members: Any) -> None:
    """Set members of a result, which is frozen."""
    for name, value in members.items():
        object.__setattr__(result, name, value)
