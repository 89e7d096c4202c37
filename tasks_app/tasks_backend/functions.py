"""What the processes of a worker run: the tasks of the project."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import django
from django.db import close_old_connections, connections
from django.utils.module_loading import autodiscover_modules

from taskstore.jobs.registry import JobContext, Runnable, Stopped, UnknownFunction

from .backend import find_task, of_alias
from .framework import Task, TaskContext, TaskResult, normalize_json


class Functions:
    """Made once in a worker, in the process that those of the jobs are copies of."""

    def __init__(self, alias: str) -> None:
        django.setup()
        # Models can be imported only now.
        from .runs import Runs

        backend = of_alias(alias)
        self._modules = backend.modules
        self._runs = Runs(backend)
        # Here, and not in each copy.
        autodiscover_modules("tasks")
        for module in self._modules:
            importlib.import_module(module)
        _disconnect()

    def find(self, function: str) -> Runnable:
        try:
            task = find_task(function, self._modules)
        except LookupError as problem:
            raise UnknownFunction(str(problem)) from None
        return partial(self._run, task)

    def _run(self, task: Task[..., Any], context: JobContext, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        close_old_connections()
        try:
            return self._run_and_tell(self._runs.begin(task, context, args, kwargs), is_last=context.is_last)
        finally:
            close_old_connections()

    def _run_and_tell(self, result: TaskResult[..., Any], *, is_last: bool) -> Any:
        try:
            returned = _as_json(_call(result))
        except Stopped:
            raise  # Whoever stopped it says what becomes of it.
        except BaseException as problem:
            if is_last:
                self._runs.fail(result, problem)
            raise
        self._runs.succeed(result, returned)
        return returned


def _call(result: TaskResult[..., Any]) -> Any:
    """An asyncio function is run to its end."""
    context = [TaskContext(task_result=result)] if result.task.takes_context else []
    return result.task.call(*context, *result.args, **result.kwargs)


def _as_json(returned: Any) -> Any:
    """Raises TypeError or ValueError for what JSON can't say: before anybody is told of a success."""
    value = normalize_json(returned)
    json.dumps(value, allow_nan=False)
    return value


def _disconnect() -> None:
    """No copy may use a connection of this process: what an app asked the database when it started is done.

    And none has a pool of them: it would open some for each job, which has one thread.
    """
    for connection in connections.all():
        connection.close()
        if hasattr(connection, "close_pool"):
            connection.close_pool()
        connection.settings_dict["OPTIONS"].pop("pool", None)
