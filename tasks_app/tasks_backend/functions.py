"""Run the tasks of the project in a worker's processes, and send the framework's signals about them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from traceback import format_exception
from typing import Any

import django
from django.db import close_old_connections, connections
from django.utils import timezone
from django.utils.module_loading import autodiscover_modules

from taskstore.jobs.registry import JobContext, ResultNotJson, Runnable, UnknownFunction, result_of
from taskstore.types.job_record import JobOptions
from taskstore.worker.children import Stopped
from taskstore.worker.handlers import Retries, Then

from .backend import TaskStoreBackend, of_alias
from .framework import (
    Task,
    TaskContext,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_finished,
    task_started,
)
from .results import find_task, known_tasks
from .signals import task_retried


def prepared(alias: str) -> Functions:
    """Set up Django and import all modules, once in a worker: in the process from which those of jobs are forked."""
    django.setup()
    backend = of_alias(alias)
    autodiscover_modules("tasks")
    for module in backend.modules:
        importlib.import_module(module)
    # Forked processes must not share connections that an app has opened. And they need no pools, which would open
    # several connections for each job with its one thread.
    for connection in connections.all():
        connection.close()
        if hasattr(connection, "close_pool"):
            connection.close_pool()
        connection.settings_dict["OPTIONS"].pop("pool", None)
    return Functions(backend, close_old_connections)


class Functions:
    """Finds and runs tasks. `close_connections` is called before and after each, as around a request."""

    def __init__(self, backend: TaskStoreBackend, close_connections: Callable[[], object] = lambda: None) -> None:
        self._backend, self._modules, self._runs = backend, backend.modules, Runs(backend)
        self._close_connections = close_connections

    def declared(self) -> Mapping[str, JobOptions]:
        """Return the options of the tasks in all modules that are imported."""
        found = {}
        for task in known_tasks():
            with suppress(TypeError, ValueError):  # Of invalid options, which `enqueue` rejects.
                found[task.module_path] = self._backend.job_options(task)
        return found

    def retries(self, function: str) -> Retries:
        return self._backend.described(find_task(function, self._modules))[1]

    def find(self, function: str) -> Runnable:
        try:
            task = find_task(function, self._modules)
        except LookupError as problem:
            raise UnknownFunction(str(problem)) from None
        return partial(self._run, task)

    def _run(self, task: Task[..., Any], context: JobContext, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self._close_connections()
        try:
            result = self._runs.begin(task, context, args, kwargs)
            try:
                first = [TaskContext(task_result=result)] if result.task.takes_context else []
                called = result.task.call(*first, *result.args, **result.kwargs)
                returned = result_of(context, called, self._backend.converted)  # Raises before a success is reported.
            except Stopped:
                raise  # The worker that stopped the task reports it.
            except BaseException as problem:
                retries = self._backend.described(task)[1]
                then = Then.FAIL if isinstance(problem, ResultNotJson) else retries.after(problem)
                if then is Then.FAIL or (then is Then.RETRY and context.is_last):
                    self._runs.fail(result, problem)
                elif then is Then.RETRY:
                    self._runs.retry(result, problem)
                raise
            self._runs.succeed(result, returned)
            return returned
        finally:
            self._close_connections()


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
        if task.takes_context or task_retried.receivers or any(len(signal.receivers) > 1 for signal in SIGNALS):
            with suppress(TaskResultDoesNotExist):  # The task may have been purged while it runs.
                result = self._backend.get_result(str(context.job_id))
        if result is None:  # Without a query: connecting takes longer than many tasks.
            now = timezone.now()
            result = TaskResult(
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
        # With the results that it was given in their places.
        _set(result, status=TaskResultStatus.RUNNING, args=list(args), kwargs=dict(kwargs))
        task_started.send_robust(type(self._backend), task_result=result)
        return result

    def succeed(self, result: TaskResult[..., Any], returned: Any) -> None:
        _set(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=returned)
        task_finished.send_robust(type(self._backend), task_result=result)

    def fail(self, result: TaskResult[..., Any], problem: BaseException) -> None:
        self._failed(result, problem, TaskResultStatus.FAILED, finished_at=timezone.now())
        task_finished.send_robust(type(self._backend), task_result=result)

    def retry(self, result: TaskResult[..., Any], problem: BaseException) -> None:
        self._failed(result, problem, TaskResultStatus.READY)
        task_retried.send_robust(type(self._backend), task_result=result)

    def _failed(
        self, result: TaskResult[..., Any], problem: BaseException, status: TaskResultStatus, **more: Any
    ) -> None:
        kind = type(problem)
        path = f"{kind.__module__}.{kind.__qualname__}"
        result.errors.append(TaskError(exception_class_path=path, traceback="".join(format_exception(problem))))
        _set(result, status=status, **more)


def _set(result: TaskResult[..., Any], **members: Any) -> None:
    """Set members of a result, which is frozen."""
    for name, value in members.items():
        object.__setattr__(result, name, value)
