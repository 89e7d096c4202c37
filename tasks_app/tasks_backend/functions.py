"""The tasks of the project as functions of a worker's processes."""

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
from .framework import Task, TaskContext, normalize_json


class Functions:
    """Finds and runs tasks. Created once in a worker, in the process from which the job processes are forked."""

    def __init__(self, alias: str) -> None:
        django.setup()
        from .runs import Runs  # After the setup, as it imports models.

        backend = of_alias(alias)
        self._modules = backend.modules
        self._runs = Runs(backend)
        # Once here, and not in each process.
        autodiscover_modules("tasks")
        for module in self._modules:
            importlib.import_module(module)
        # Forked processes must not share connections that an app has opened. And they need no pools, which would open
        # several connections for each job with its one thread.
        for connection in connections.all():
            connection.close()
            if hasattr(connection, "close_pool"):
                connection.close_pool()
            connection.settings_dict["OPTIONS"].pop("pool", None)

    def find(self, function: str) -> Runnable:
        try:
            task = find_task(function, self._modules)
        except LookupError as problem:
            raise UnknownFunction(str(problem)) from None
        return partial(self._run, task)

    def _run(self, task: Task[..., Any], context: JobContext, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        close_old_connections()
        try:
            result = self._runs.begin(task, context, args, kwargs)
            try:
                first = [TaskContext(task_result=result)] if result.task.takes_context else []
                returned = normalize_json(result.task.call(*first, *result.args, **result.kwargs))
                json.dumps(returned, allow_nan=False)  # Raises before a success is reported.
            except Stopped:
                raise  # The worker that stopped the task reports it.
            except BaseException as problem:
                if context.is_last:
                    self._runs.fail(result, problem)
                raise
            self._runs.succeed(result, returned)
            return returned
        finally:
            close_old_connections()
