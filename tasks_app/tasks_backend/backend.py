"""The backend of Django's task framework."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ParamSpec, Self, TypeVar

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured

from taskstore.types.job_record import JobOptions, JobRecord, OnLost, why_no_queue

from .framework import BaseTaskBackend, InvalidTask, Task, TaskResult, normalize_json, task_backends, task_enqueued
from .options import OPTIONS, by_queue, for_all, job_options, misshapen, problems


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTask(Task):  # type: ignore[type-arg]  # Not subscriptable at run time.
    """None: as the options of the backend say. Durations are a timedelta, or seconds."""

    max_attempts: int | None = None
    backoff: timedelta | float | None = None
    timeout: timedelta | float | None = None
    memory_bytes: int | None = None
    on_lost: OnLost | str | None = None
    max_lost: int | None = None

    def using(self, **changes: Any) -> Self:
        """A task that differs in what is named and not None, the options among it."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})


def own_options(task: Task[..., Any]) -> Mapping[str, Any]:
    """What the task says for itself. One that was made for another backend says nothing."""
    return {name: getattr(task, name, None) for name in OPTIONS}


def of_backend(alias: str, queues: Collection[str], options: Mapping[str, Any]) -> Iterator[CheckMessage]:
    place = f'TASKS["{alias}"]'
    yield from _app(place)
    yield from _options(f'{place}["OPTIONS"]', options)
    yield from _queues(place, queues, by_queue(options))


def _app(place: str) -> Iterator[CheckMessage]:
    if not apps.is_installed("tasks_app"):
        yield Error(
            f"{place} keeps its jobs in tasks_app, which is not installed.",
            hint='Add "tasks_app" to INSTALLED_APPS and run `manage.py migrate`.',
            id="tasks_app.E007",
        )


def _options(place: str, options: Mapping[str, Any]) -> Iterator[CheckMessage]:
    found = {place: [*misshapen(options), *problems(for_all(options))]}
    found |= {f'{place}["queues"]["{queue}"]': [*problems(said)] for queue, said in by_queue(options).items()}
    for where, mistakes in found.items():
        for problem, hint in mistakes:
            yield Error(f"{where}: {problem}.", hint=hint or None, id="tasks_app.E008")


def _queues(place: str, queues: Collection[str], described: Collection[str]) -> Iterator[CheckMessage]:
    for queue in sorted({*queues, *described}):
        if why := why_no_queue(queue):
            yield Error(f"{place}: the queue {queue!r} {why}.", id="tasks_app.E009")
        elif queues and queue not in queues:
            yield Error(
                f"{place} has options for the queue {queue!r}, which it does not have.",
                hint=f'Add the queue to {place}["QUEUES"].',
                id="tasks_app.E010",
            )


P = ParamSpec("P")
R = TypeVar("R")


def of_alias(alias: str) -> TaskStoreBackend:
    """Raises ImproperlyConfigured when the setting TASKS has no such backend, or it is not this one."""
    found = task_backends[alias]
    if not isinstance(found, TaskStoreBackend):
        raise ImproperlyConfigured(f'TASKS["{alias}"] must be a backend of Task Store, not {type(found).__name__}')
    return found


def find_task(path: str, modules: Collection[str]) -> Task[..., Any]:
    """A task that stands in a module of an installed app, in one of these modules, or in one that is imported already.

    Raises LookupError for everything else. Whoever can add a job can name any path: importing a module runs it,
    so one that is no part of the project is not even imported.
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
        """Raises InvalidTask, also for invalid options."""
        super().validate_task(task)
        if why := why_no_queue(task.queue_name):
            raise InvalidTask(f"The queue {task.queue_name!r} {why}.")
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
        return list(of_backend(self.alias, self.queues, self.options))

    def _record(self, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> JobRecord:
        return JobRecord(
            function=task.module_path,
            args=[normalize_json(each) for each in args],
            kwargs={name: normalize_json(each) for name, each in kwargs.items()},
            options=self.job_options(task),
        )
