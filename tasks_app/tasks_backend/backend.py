"""The backend of Django's task framework."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ParamSpec, Self, TypedDict, TypeVar

from asgiref.sync import sync_to_async
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured

from taskstore.errors import InvalidInput, refuse
from taskstore.jobs.registry import MILLISECOND, OPTIONS, as_json, checked_labels, described, job_options
from taskstore.types.job_record import JobOptions, JobRecord, JobStatus, NotAJob, OnLost, new_task, why_no_queue
from taskstore.types.jobs import Job
from taskstore.types.scalars import Limits
from taskstore.types.sentences import text
from taskstore.types.tasks import NewTask
from taskstore.worker.handlers import Backoff, Kinds, Retries, Rules

from . import results
from .batches import current_batch
from .framework import (
    JSON_DEFAULT,
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    by_queue,
    for_all,
    normalize_json,
    of_backend,
    task_backends,
    task_enqueued,
)

RULES = frozenset(Rules.__annotations__)

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTask(Task):  # type: ignore[type-arg]  # Not subscriptable at run time.
    """A task with its options. None means as in the options of the backend. Durations are a timedelta, or seconds."""

    max_attempts: int | None = None
    backoff: Backoff | None = None
    jitter: float | None = None
    retry_on: Kinds | None = None
    fail_on: Kinds | None = None
    discard_on: Kinds | None = None
    timeout: timedelta | float | None = None
    memory_bytes: int | None = None
    on_lost: OnLost | str | None = None
    max_lost: int | None = None
    ignore_result: bool | None = None
    soft_time_limit: timedelta | float | None = None
    expires: timedelta | float | None = None
    unique: str | None = None  # A key: while an unfinished job of the queue has it, `enqueue` returns that job.
    unique_for: timedelta | float | None = None  # How long the key stays reserved even if the job finishes.
    labels: Mapping[str, str] | None = None  # By which its jobs are found, limited and cancelled.
    schedule: str | None = None  # When it is added, in the project's time zone; see schedules.py.

    def using(self, **changes: Any) -> Self:
        """Return a task with the changes that are not None, options included. Labels are added to those it has."""
        if labels := changes.get("labels"):
            try:
                changes["labels"] = {**(self.labels or {}), **checked_labels(labels)}
            except ValueError as problem:
                raise InvalidTask(f"{problem}.") from None
        return replace(self, **{name: value for name, value in changes.items() if value is not None})


class Where(TypedDict):
    """Where a job goes, and when: arguments of `tasks_app.jobs.queues.enqueue`."""

    queue: str
    at_ms: int
    priority: int
    unique: str | None
    unique_for_ms: int
    labels: Mapping[str, str]


def of_alias(alias: str) -> TaskStoreBackend:
    """Return the backend. Raises ImproperlyConfigured when TASKS has no such alias, or another kind of backend."""
    found = task_backends[alias]
    if not isinstance(found, TaskStoreBackend):
        raise ImproperlyConfigured(f'TASKS["{alias}"] must be a backend of Task Store, not {type(found).__name__}')
    return found


class TaskStoreBackend(BaseTaskBackend):
    """A backend whose tasks are jobs: `manage.py work` runs them, and their results are read from the store.

    OPTIONS: those of jobs, such as `max_attempts`; `queues` with the same for single queues; `modules` with tasks
    outside of the installed apps; `schedules`, see schedules.py.
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
            self.described(task)
            checked_labels(getattr(task, "labels", None) or {})
        except (TypeError, ValueError) as problem:
            raise InvalidTask(f"{problem}.") from None

    def described(self, task: Task[..., Any]) -> tuple[JobOptions, Retries]:
        """Return the options of the task, with defaults from its queue, then from the backend; and its rules."""
        # A task that was made for another backend has no options.
        own, retries = described({name: getattr(task, name, None) for name in (*OPTIONS, *RULES)})
        default = job_options(for_all(self.options), by_queue(self.options).get(task.queue_name, {}))
        return JobOptions(**(default.given | own.given)), retries

    def job_options(self, task: Task[..., Any]) -> JobOptions:
        return self.described(task)[0]

    def enqueue(self, task: Task[P, R], args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult[P, R]:
        """Add a job in the caller's transaction: it exists once that is committed, or never.

        Raises InvalidTask, and TypeError or ValueError for parameters that are not JSON.
        """
        record, where = self._call_of(task, args, kwargs)
        try:
            job = self._add(record, where)
        except InvalidInput as problem:
            if problem.fields.keys().isdisjoint(("unique", "unique_for")):
                raise
            raise InvalidTask(f"{problem}.") from None
        result = results.of(job, task)
        if not job.duplicate:
            task_enqueued.send(type(self), task_result=result)
        return result

    def planned(self, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewTask:
        """Return the job that a batch adds later. Raises as `enqueue` does, and InvalidTask for a task with a key."""
        record, where = self._call_of(task, args, kwargs)
        if where["unique"]:
            raise InvalidTask(f"{task.module_path} must have no unique key: a batch adds it.")
        return new_task(record, **where)

    def _call_of(self, task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[JobRecord, Where]:
        self.validate_task(task)
        self._refuse_other_rules(task)
        record = JobRecord(
            function=task.module_path,
            args=[self._as_json(f"args[{place}]", each) for place, each in enumerate(args)],
            kwargs={name: self._as_json(name, each) for name, each in kwargs.items()},
            options=self.job_options(task),
        )
        unique_for = getattr(task, "unique_for", None) or 0
        length = unique_for if isinstance(unique_for, timedelta) else timedelta(seconds=unique_for)
        where = Where(
            queue=task.queue_name,
            at_ms=round(task.run_after.timestamp() * 1000) if task.run_after else 0,
            priority=task.priority,
            unique=getattr(task, "unique", None),
            unique_for_ms=length // MILLISECOND,
            labels=getattr(task, "labels", None) or {},
        )
        return record, where

    def _refuse_other_rules(self, task: Task[..., Any]) -> None:
        """Raise InvalidTask for rules that the worker, which finds the task by its name, would not know."""
        rules = {name: value for name in RULES if (value := getattr(task, name, None)) is not None}
        if isinstance(rules.get("backoff"), timedelta | float | int):
            del rules["backoff"]  # An option of each job.
        declared = vars(sys.modules.get(task.func.__module__, object)).get(task.func.__name__) if rules else None
        for name, value in rules.items():
            if value != getattr(declared, name, None):
                raise InvalidTask(f"{name} must be where the task is declared, because workers read it there.")

    def converted(self, value: Any) -> Any:
        """Return an argument or a result as JSON. Raises TypeError, ValueError, or what the hook raises."""
        return normalize_json(as_json(value, self.options.get(JSON_DEFAULT)))

    def _as_json(self, name: str, value: Any) -> Any:
        """Return an argument as JSON. Raises TypeError or ValueError, which names it."""
        try:
            return self.converted(value)
        except Exception as problem:  # Also of the hook.
            hint = 'convert it, or set OPTIONS["json_default"] to a function such as str'
            kind = ValueError if isinstance(problem, ValueError) else TypeError  # Subclasses take other arguments.
            raise kind(f"{name} must be JSON: {problem}: {hint}") from None

    async def aenqueue(self, task: Task[P, R], args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult[P, R]:
        # In the thread of the caller's connection, and thus in its transaction.
        return await sync_to_async(self.enqueue, thread_sensitive=True)(task, args, kwargs)

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Return a result. Raises TaskResultDoesNotExist, also for a job that is not a task of this project."""
        return self.result_of(self.job_of(result_id))

    def cancel(self, result_id: str, reason: str = "") -> bool:
        """Cancel the job of a result. Returns whether it had not finished yet."""
        from ..models import Task as StoredTask

        refuse(text("reason", reason, Limits().error_length))
        return bool(StoredTask.objects.cancel([result_id], reason=reason))

    def job_of(self, result_id: str) -> Job:
        """Return the job of a result. Raises TaskResultDoesNotExist."""
        try:
            job = self._find(int(result_id))
        except (ValueError, NotAJob, OverflowError):
            job = None
        if job is None:
            raise TaskResultDoesNotExist(result_id)
        return job

    def result_of(self, job: Job) -> TaskResult[..., Any]:
        """Return the result of a job. Raises TaskResultDoesNotExist when it is not a task of this project."""
        try:
            task = results.find_task(job.function, self.modules)
            run_after = results.moment(job.available_at_ms) if job.status is JobStatus.SCHEDULED else None
            # Raises InvalidTask for a queue that the backend no longer has.
            task = task.using(queue_name=job.queue, priority=job.priority, run_after=run_after, backend=self.alias)
            return results.of(job, task)
        except (LookupError, InvalidTask) as problem:
            raise TaskResultDoesNotExist(f"{job.id}: {problem}") from None

    def check(self, **_: Any) -> list[CheckMessage]:
        return list(of_backend(self.alias, self.queues, self.options))

    def _add(self, record: JobRecord, where: Where) -> Job:
        """Add the job, or return the one that holds its key, as a duplicate. Raises InvalidInput."""
        from ..jobs import queues

        stored = queues.enqueue(record, batch=current_batch(), **where)
        if stored.duplicate:
            return queues.holder_of_key(stored.origin)
        return queues.job_from(stored, record, stored.made_at_ms)

    def _find(self, job_id: int) -> Job | None:
        """Return the job. Raises NotAJob."""
        from ..jobs import queues

        return queues.find(job_id)
