"""Schedules that a project declares: `@task(schedule="0 3 * * *")`, or in OPTIONS.

    "schedules": {"shop.tasks.clean": "0 3 * * *", "shop.tasks.report": {"cron": "@monthly", "kwargs": {"days": 30}}}

A worker puts them at its start: `manage.py work --schedules`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules

from taskstore.errors import InvalidInput
from taskstore.types import sentences
from taskstore.types.jobs import OptionsRequest
from taskstore.types.schedules import CatchUp, Overlap, PlannedJob, SchedulePlan

from ..database import atomic
from ..schedules import verbs
from .backend import TaskStoreBackend
from .framework import SCHEDULES, Task, normalize_json
from .results import find_task, known_tasks

Chosen = TypeVar("Chosen", bound=StrEnum)

# Before the names of declared schedules: whoever takes a declaration away takes its schedule away.
MARK = "@"
MEMBERS = {"cron", "zone", "catch_up", "overlap", "expires", "unique", "args", "kwargs"}


def put_declared(backend: TaskStoreBackend) -> list[str]:
    """Put the schedules of the backend's tasks, and delete those that none declares any more. Returns what was done.

    Raises ImproperlyConfigured for times and arguments that are not right; then nothing is done.
    """
    autodiscover_modules("tasks")
    for module in backend.modules:
        importlib.import_module(module)
    plans = dict(_declared(backend))
    with atomic():
        before = {each.name: each for each in verbs.schedules() if each.name.startswith(MARK)}
        done = []
        for name, plan in plans.items():
            try:
                now, _ = verbs.put(name, plan)
            except InvalidInput as wrong:
                raise ImproperlyConfigured(f"the schedule of {name.removeprefix(MARK)}: {wrong}") from None
            if before.get(name) != now:
                done.append(f"{name}: {plan.cron} ({plan.zone})")
        for name, each in before.items():
            is_ours = each.job is not None and (not backend.queues or each.job.queue in backend.queues)
            if name not in plans and is_ours:
                verbs.delete(name)
                done.append(f"{name}: deleted, as no task declares it")
    return done


def _declared(backend: TaskStoreBackend) -> Iterator[tuple[str, SchedulePlan]]:
    for task in known_tasks():
        if task.backend == backend.alias and (cron := getattr(task, "schedule", None)):
            yield f"{MARK}{task.module_path}", _plan(backend, task, {"cron": cron})
    for path, given in backend.options.get(SCHEDULES, {}).items():
        place = f'TASKS["{backend.alias}"]["OPTIONS"]["{SCHEDULES}"]["{path}"]'
        members = given if isinstance(given, Mapping) else {"cron": given}
        if not isinstance(members.get("cron"), str) or members.keys() - MEMBERS:
            raise ImproperlyConfigured(f"{place} must be a cron expression, or a dict of {', '.join(sorted(MEMBERS))}")
        try:
            task = find_task(path, backend.modules)
        except LookupError as problem:
            raise ImproperlyConfigured(f"{place}: {problem}") from None
        yield f"{MARK}{path}", _plan(backend, task, members)


def _plan(backend: TaskStoreBackend, task: Task[..., Any], members: Mapping[str, Any]) -> SchedulePlan:
    job = PlannedJob(
        function=task.module_path,
        args=tuple(normalize_json(each) for each in members.get("args", ())),
        kwargs={name: normalize_json(each) for name, each in members.get("kwargs", {}).items()},
        queue=task.queue_name,
        priority=task.priority,
        options=OptionsRequest(**backend.job_options(task).given),
        labels=dict(getattr(task, "labels", None) or {}),
        unique=members.get("unique", ""),
        expires_ms=members.get("expires"),
        overlap=_choice(Overlap, members, "overlap", task),
    )
    zone, catch_up = members.get("zone", settings.TIME_ZONE), _choice(CatchUp, members, "catch_up", task)
    return SchedulePlan(cron=members["cron"], zone=zone, catch_up=catch_up or CatchUp.SKIP, job=job)


def _choice(kind: type[Chosen], members: Mapping[str, Any], name: str, task: Task[..., Any]) -> Chosen | None:
    if (value := members.get(name)) is None:
        return None
    if value not in list(kind):
        right = sentences.one_of([each.value for each in kind], value)
        raise ImproperlyConfigured(f"the schedule of {task.module_path}: {name} {right}")
    return kind(value)
