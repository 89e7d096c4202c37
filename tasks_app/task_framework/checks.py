"""What Django's `check` says about the setting of a backend of the task framework."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error

from ..job_record import why_no_queue
from .options import by_queue, for_all, misshapen, problems


def of_backend(alias: str, queues: Collection[str], options: Mapping[str, Any]) -> Iterator[CheckMessage]:
    place = f'TASKS["{alias}"]'
    yield from _app(place)
    yield from _options(f'{place}["OPTIONS"]', options)
    yield from _queues(place, queues, by_queue(options))


def _app(place: str) -> Iterator[CheckMessage]:
    if not apps.is_installed("tasks_app"):
        yield Error(
            f"The jobs of {place} are kept by tasks_app, which is not installed.",
            hint='Add "tasks_app" to INSTALLED_APPS and run `manage.py migrate`.',
            id="tasks_app.E007",
        )


def _options(place: str, options: Mapping[str, Any]) -> Iterator[CheckMessage]:
    found = {place: [*misshapen(options), *problems(for_all(options))]}
    found |= {f'{place}["queues"]["{queue}"]': [*problems(said)] for queue, said in by_queue(options).items()}
    for where, mistakes in found.items():
        for problem, right in mistakes:
            yield Error(f"{where}: {problem}.", hint=f"Let it be {right}.", id="tasks_app.E008")


def _queues(place: str, queues: Collection[str], described: Collection[str]) -> Iterator[CheckMessage]:
    for queue in sorted({*queues, *described}):
        if right := why_no_queue(queue):
            yield Error(
                f"{place}: {queue!r} can't be the name of a queue.", hint=f"Let it be {right}.", id="tasks_app.E009"
            )
        elif queues and queue not in queues:
            yield Error(
                f"{place}: the options of {queue!r} are those of a queue that the backend does not have.",
                hint=f'Add it to {place}["QUEUES"].',
                id="tasks_app.E010",
            )
