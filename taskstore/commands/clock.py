"""The time by the store's clock, as whoever runs commands knows it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from ..types.tasks import Task


@dataclass(frozen=True, slots=True)
class Clock:
    """Told by what a claim has answered: the time of this machine may be days off, and decide what is too late."""

    ahead_s: float  # Of the monotonic clock, which all processes of a machine have in common.

    @classmethod
    def of_claim(cls, task: Task, duration_ms: int) -> Self:
        """The task has just been claimed for so long."""
        return cls((task.available_at_ms - duration_ms) / 1_000 - time.monotonic())

    def now_s(self) -> int:
        """Whole seconds since the Epoch."""
        return int(time.monotonic() + self.ahead_s)
