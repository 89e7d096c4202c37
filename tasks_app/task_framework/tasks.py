"""A task that may say how it is run: `@task(max_attempts=5)`, `send.using(timeout=timedelta(minutes=1))`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Self

from ..job_record import OnLost
from .framework import Task
from .options import OPTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTask(Task):  # type: ignore[type-arg]  # Not subscriptable at run time.
    """None: as the options of the backend say. Durations are a timedelta, or seconds."""

    max_attempts: int | None = None
    backoff: timedelta | float | None = None
    timeout: timedelta | float | None = None
    memory_bytes: int | None = None
    on_lost: OnLost | str | None = None
    max_lost: int | None = None

    def using(self, **changes: Any) -> Self:
        """A task that differs in what is named and not None, the options among it."""
        return replace(self, **{name: value for name, value in changes.items() if value is not None})


def own_options(task: Task[..., Any]) -> Mapping[str, Any]:
    """What the task says for itself. One that was made for another backend says nothing."""
    return {name: getattr(task, name, None) for name in OPTIONS}
