"""The backend that Django's task framework enqueues with, and asks for results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured

from ..job_record import JobOptions, JobRecord, why_no_queue
from . import checks
from .framework import BaseTaskBackend, InvalidTask, Task, TaskResult, normalize_json, task_backends, task_enqueued
from .options import by_queue, for_all, job_options
from .tasks import StoreTask, own_options

P = ParamSpec("P")
R = TypeVar("R")


def of_alias(alias: str) -> TaskStoreBackend:
    """Raises ImproperlyConfigured when the setting TASKS has no such backend, or it is not this one."""
    found = task_backends[alias]
    if not isinstance(found, TaskStoreBackend):
        raise ImproperlyConfigured(f'TASKS["{alias}"] is not a backend of Task Store but {type(found).__name__}')
    return found


class TaskStoreBackend(BaseTaskBackend):
    """Tasks are jobs: `manage.py work` runs them, and what is known of them is read from the store.

    OPTIONS: `max_attempts`, `backoff`, `timeout`, `memory_bytes`, `on_lost`, `max_lost`; `queues` with the same
    for single queues; `modules` that hold tasks outside of the installed apps.
    """

    task_class = StoreTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def modules(self) -> Sequence[str]:
        """What a worker imports, beside the apps, to find tasks in."""
        return tuple(self.options.get("modules", ()))

    def validate_task(self, task: Task[..., Any]) -> None:
        """Raises InvalidTask, also for options that make no sense."""
        super().validate_task(task)
        if right := why_no_queue(task.queue_name):
            raise InvalidTask(f"Queue {task.queue_name!r} can't be one: let it be {right}.")
        try:
            self.job_options(task)
        except ValueError as problem:
            raise InvalidTask(f"{problem}.") from None

    def job_options(self, task: Task[..., Any]) -> JobOptions:
        """How the task is run: as it says, else as its queue does, else as the backend does."""
        queue = by_queue(self.options).get(task.queue_name, {})
        return job_options(for_all(self.options), queue, own_options(task))

    def enqueue(self, task: Task[P, R], args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult[P, R]:
        """Within the caller's transaction: the job is there when that is committed, or never.

        Raises InvalidTask, and TypeError or ValueError for parameters that are no JSON.
        """
        from . import results

        self.validate_task(task)
        result = results.enqueue(task, self._record(task, args, kwargs), self.alias)
        task_enqueued.send(type(self), task_result=result)
        return result

    async def aenqueue(self, task: Task[P, R], args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult[P, R]:
        # In the thread of the caller's connection, and so in its transaction.
        return await sync_to_async(self.enqueue, thread_sensitive=True)(task, args, kwargs)

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Raises TaskResultDoesNotExist, also for a job that is no task of this project."""
        from . import results

        return results.find(result_id, self)

    def check(self, **_: Any) -> list[CheckMessage]:
        return list(checks.of_backend(self.alias, self.queues, self.options))

    def _record(self, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> JobRecord:
        return JobRecord(
            function=task.module_path,
            args=[normalize_json(each) for each in args],
            kwargs={name: normalize_json(each) for name, each in kwargs.items()},
            options=self.job_options(task),
        )
