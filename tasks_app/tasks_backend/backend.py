"""The backend of Django's task framework, and the options of jobs: of a backend, of a queue, and of a task."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ParamSpec, Self, TypeVar

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured

from taskstore.types.job_record import JobOptions, JobRecord, OnLost, why_no_queue

from .framework import BaseTaskBackend, InvalidTask, Task, TaskResult, normalize_json, task_backends, task_enqueued

MODULES, QUEUES = "modules", "queues"  # OPTIONS that are not job options.
MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTask(Task):  # type: ignore[type-arg]  # Not subscriptable at run time.
    """A task with its options. None means as in the options of the backend. Durations are a timedelta, or seconds."""

    max_attempts: int | None = None
    backoff: timedelta | float | None = None
    timeout: timedelta | float | None = None
    memory_bytes: int | None = None
    on_lost: OnLost | str | None = None
    max_lost: int | None = None
    unique: str | None = None  # A key: while an unfinished job of the queue has it, `enqueue` returns that job.
    unique_for: timedelta | float | None = None  # How long the key stays reserved even if the job finishes.

    def using(self, **changes: Any) -> Self:
        """Return a task with the changes that are not None, options included."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})


def of_backend(alias: str, queues: Collection[str], options: Mapping[str, Any]) -> Iterator[CheckMessage]:
    """Yield the errors of a backend's settings."""
    place = f'TASKS["{alias}"]'
    if not apps.is_installed("tasks_app"):
        yield Error(
            f"{place} keeps its jobs in tasks_app, which is not installed.",
            hint='Add "tasks_app" to INSTALLED_APPS and run `manage.py migrate`.',
            id="tasks_app.E007",
        )
    found = {f'{place}["OPTIONS"]': [*misshapen(options), *problems(for_all(options))]}
    for queue, of_queue in by_queue(options).items():
        found[f'{place}["OPTIONS"]["queues"]["{queue}"]'] = [*problems(of_queue)]
    for where, mistakes in found.items():
        for problem, hint in mistakes:
            yield Error(f"{where}: {problem}.", hint=hint or None, id="tasks_app.E008")
    for queue in sorted({*queues, *by_queue(options)}):
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
    """Return the backend. Raises ImproperlyConfigured when TASKS has no such alias, or another kind of backend."""
    found = task_backends[alias]
    if not isinstance(found, TaskStoreBackend):
        raise ImproperlyConfigured(f'TASKS["{alias}"] must be a backend of Task Store, not {type(found).__name__}')
    return found


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


class TaskStoreBackend(BaseTaskBackend):
    """A backend whose tasks are jobs: `manage.py work` runs them, and their results are read from the store.

    OPTIONS: `max_attempts`, `backoff`, `timeout`, `memory_bytes`, `on_lost`, `max_lost`; `queues` with the same
    for single queues; `modules` with tasks outside of the installed apps.
    """

    task_class = StoreTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def modules(self) -> Sequence[str]:
        """Return the modules that a worker imports to find tasks, beside those of the apps."""
        return tuple(self.options.get("modules", ()))

    def validate_task(self, task: Task[..., Any]) -> None:
        """Raise InvalidTask for an invalid task, also for invalid options."""
        super().validate_task(task)
        if why := why_no_queue(task.queue_name):
            raise InvalidTask(f"The queue {task.queue_name!r} {why}.")
        try:
            self.job_options(task)
        except ValueError as problem:
            raise InvalidTask(f"{problem}.") from None

    def job_options(self, task: Task[..., Any]) -> JobOptions:
        """Return the options of the task, with defaults from its queue, then from the backend."""
        queue = by_queue(self.options).get(task.queue_name, {})
        # A task that was made for another backend has no options.
        own = {name: getattr(task, name, None) for name in OPTIONS}
        return job_options(for_all(self.options), queue, own)

    def enqueue(self, task: Task[P, R], args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult[P, R]:
        """Add a job in the caller's transaction: it exists once that is committed, or never.

        Raises InvalidTask, and TypeError or ValueError for parameters that are not JSON.
        """
        from . import results

        self.validate_task(task)
        record = JobRecord(
            function=task.module_path,
            args=[normalize_json(each) for each in args],
            kwargs={name: normalize_json(each) for name, each in kwargs.items()},
            options=self.job_options(task),
        )
        result, is_new = results.enqueue(task, record, self.alias)
        if is_new:
            task_enqueued.send(type(self), task_result=result)
        return result

    async def aenqueue(self, task: Task[P, R], args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult[P, R]:
        # In the thread of the caller's connection, and thus in its transaction.
        return await sync_to_async(self.enqueue, thread_sensitive=True)(task, args, kwargs)

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Return a result. Raises TaskResultDoesNotExist, also for a job that is not a task of this project."""
        from . import results

        return results.find(result_id, self)

    def check(self, **_: Any) -> list[CheckMessage]:
        return list(of_backend(self.alias, self.queues, self.options))


@dataclass(frozen=True, slots=True)
class Option:
    """The field of a job's record, a description of valid values, and their conversion.

    `take` raises ValueError or TypeError.
    """

    member: str
    kind: str
    take: Callable[[Any], Any]


def for_all(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the job options in the OPTIONS of a backend."""
    return {name: value for name, value in options.items() if name not in (MODULES, QUEUES)}


def by_queue(options: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return the job options of single queues."""
    queues = options.get(QUEUES)
    return queues if isinstance(queues, Mapping) else {}


def job_options(*layers: Mapping[str, Any]) -> JobOptions:
    """Merge the layers, of which later ones take precedence. None is ignored.

    Raises ValueError that names an option with an invalid value.
    """
    merged = {name: value for layer in layers for name, value in layer.items() if name in OPTIONS and value is not None}
    return JobOptions(**{OPTIONS[name].member: _taken(name, value) for name, value in merged.items()})


def problems(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the errors of job options, each with a hint, which may be empty."""
    for name, value in options.items():
        if name not in OPTIONS:
            yield f"{name} is not a known option", f"Use one of {', '.join(OPTIONS)}."
        elif value is not None:
            try:
                _taken(name, value)
            except ValueError as problem:
                yield str(problem), ""


def misshapen(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the errors of the other options, each with a hint, which may be empty."""
    if not isinstance(options.get(QUEUES, {}), Mapping):
        yield f"{QUEUES} must be a dict of options by name of queue, not {options[QUEUES]!r}", ""
    if not isinstance(options.get(MODULES, []), list | tuple):
        yield f"{MODULES} must be a list of modules, not {options[MODULES]!r}", ""


def _taken(name: str, value: Any) -> Any:
    option = OPTIONS[name]
    try:
        return option.take(value)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"{name} must be {option.kind}, not {value!r}") from None


def _count(least: int) -> Callable[[Any], int]:
    def take(value: Any) -> int:
        if type(value) is not int or value < least:
            raise ValueError
        return value

    return take


def _milliseconds(least: timedelta) -> Callable[[Any], int]:
    def take(value: Any) -> int:
        length = value if isinstance(value, timedelta) else timedelta(seconds=value)
        if length < least:
            raise ValueError
        return length // MILLISECOND

    return take


OPTIONS: Mapping[str, Option] = {
    "max_attempts": Option("max_attempts", "a whole number above 0", _count(1)),
    "backoff": Option("backoff_ms", "a timedelta or a number of seconds, and not negative", _milliseconds(timedelta())),
    "timeout": Option(
        "timeout_ms", "a timedelta or a number of seconds, at least a millisecond", _milliseconds(MILLISECOND)
    ),
    "memory_bytes": Option("memory_bytes", "a whole number of bytes, at least 1 MiB", _count(2**20)),
    "on_lost": Option("on_lost", f"one of {', '.join(OnLost)}", OnLost),
    "max_lost": Option("max_lost", "a whole number, and not negative", _count(0)),
}
