"""From the name of a resolver to the functions that it finds."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Sequence
from pathlib import Path

from .registry import Functions, UnknownFunction

IMPORTING = importlib.__file__ or "<frozen"
REGISTERED = "tasks_app.jobs.registry:Registered"


def resolve(runner: Sequence[str]) -> Functions:
    """`module:callable`, called with the words that follow. Raises what the import or the call raises."""
    resolver, *words = runner
    module, _, name = resolver.partition(":")
    functions: Functions = getattr(importlib.import_module(module), name)(*words)
    return functions


def why_not(problem: Exception) -> str:
    """For people: what kept functions from being found, and where."""
    if isinstance(problem, UnknownFunction):
        return str(problem)
    ours = str(Path(__file__).parent)
    frames = traceback.extract_tb(problem.__traceback__)
    places = [frame for frame in frames if not frame.filename.startswith((ours, "<frozen", IMPORTING))]
    where = f" ({places[-1].filename}, line {places[-1].lineno})" if places else ""
    return f"{type(problem).__name__}: {problem}{where}"
