"""A function that runs as a job: what it may know of it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """Which job it is."""

    job_id: int
    attempt: int  # The first is 1.
    is_last: bool  # Whether the job is reported failed when this attempt fails.
    worker: str


class Stopped(BaseException):
    """The job is to end: its time is up, its lease is lost, or its worker stops. Not for the job to catch."""


_current: ContextVar[JobContext] = ContextVar("taskstore_job")


def current_job() -> JobContext:
    """The job that this code runs in. Raises LookupError outside of one."""
    return _current.get()


def enter(context: JobContext) -> None:
    _current.set(context)


def call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What the function returns; an asyncio function is run to its end."""
    returned = function(*args, **kwargs)
    return asyncio.run(_awaited(returned)) if inspect.isawaitable(returned) else returned


async def _awaited(returned: Any) -> Any:
    return await returned
