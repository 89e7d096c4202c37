"""Django's task framework: a part of Django from 6.0 on, before that the package django-tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import django
from django.apps import apps
from django.core.checks import CheckMessage, Error

from taskstore.jobs.registry import taken
from taskstore.types.job_record import why_no_queue

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import DEFAULT_TASK_BACKEND_ALIAS, TaskContext, TaskResult, TaskResultStatus, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TASK_REFRESH_ATTRS, Task, TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
else:
    from django_tasks import (
        DEFAULT_TASK_BACKEND_ALIAS,
        TaskContext,
        TaskResult,
        TaskResultStatus,
        exceptions,
        task_backends,
    )
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import TASK_REFRESH_ATTRS, Task, TaskError
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

    # The newer versions have Django's name.
    InvalidTask = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError

__all__ = [
    "DEFAULT_TASK_BACKEND_ALIAS",
    "TASK_REFRESH_ATTRS",
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]


# ---- The settings of a backend, and what is wrong with them


# OPTIONS that are not job options.
MODULES, QUEUES, SCHEDULES, JSON_DEFAULT = "modules", "queues", "schedules", "json_default"


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
        for problem in mistakes:
            yield Error(f"{where}: {problem}.", id="tasks_app.E008")
    for queue in sorted({*queues, *by_queue(options)}):
        if why := why_no_queue(queue):
            yield Error(f"{place}: the queue {queue!r} {why}.", id="tasks_app.E009")
        elif queues and queue not in queues:
            yield Error(
                f"{place} has options for the queue {queue!r}, which it does not have.",
                hint=f'Add the queue to {place}["QUEUES"].',
                id="tasks_app.E010",
            )


def for_all(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the job options in the OPTIONS of a backend."""
    return {name: value for name, value in options.items() if name not in (MODULES, QUEUES, SCHEDULES, JSON_DEFAULT)}


def by_queue(options: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return the job options of single queues."""
    queues = options.get(QUEUES)
    return queues if isinstance(queues, Mapping) else {}


def problems(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of job options."""
    for name, value in options.items():
        try:
            taken({name: value})
        except (TypeError, ValueError) as problem:
            yield str(problem)


def misshapen(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of the other options."""
    for name, kind, right in (
        (QUEUES, Mapping, "a dict of options by name of queue"),
        (SCHEDULES, Mapping, "a dict of times by path of task"),
        (MODULES, list | tuple, "a list of modules"),
    ):
        if name in options and not isinstance(options[name], kind):
            yield f"{name} must be {right}, not {options[name]!r}"
    if not callable(options.get(JSON_DEFAULT, str)):
        yield f"{JSON_DEFAULT} must be a function such as str, not {options[JSON_DEFAULT]!r}"
