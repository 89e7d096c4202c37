"""The options of jobs: of a backend, of a queue, and of a task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error

from taskstore.types.job_record import JobOptions, OnLost, why_no_queue

MODULES, QUEUES, SCHEDULES = "modules", "queues", "schedules"  # OPTIONS that are not job options.
MILLISECOND = timedelta(milliseconds=1)


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
    return {name: value for name, value in options.items() if name not in (MODULES, QUEUES, SCHEDULES)}


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
    if not isinstance(options.get(SCHEDULES, {}), Mapping):
        yield f"{SCHEDULES} must be a dict of times by path of task, not {options[SCHEDULES]!r}", ""
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
