"""From the name that a job has for its function to the task of the project."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection
from typing import Any

from django.apps import apps

from .framework import Task


def find_task(path: str, modules: Collection[str]) -> Task[..., Any]:
    """A task that stands in a module of an installed app, in one of these modules, or in one that is imported already.

    Raises LookupError for everything else. Whoever can add a job can name any path: importing a module runs it,
    so one that is no part of the project is not even imported.
    """
    module, _, name = path.rpartition(".")
    if not (module in sys.modules or module in modules or apps.get_containing_app_config(module)):
        raise LookupError(f"{path} is in no installed app, nor in a module that OPTIONS['modules'] names")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as problem:
        raise LookupError(f"{path} can't be imported: {problem}") from None
    if not isinstance(found, Task):
        raise LookupError(f"{path} is no task: put @task on the function, and leave it its name")
    return found
