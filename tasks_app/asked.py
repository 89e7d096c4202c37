"""An operation on its way through the writer."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from .operations import Claim, Operation, TaskRecord


@dataclass(slots=True, eq=False)
class Asked:
    """An operation, and who waits for its answer."""

    operation: Operation
    answer: asyncio.Future[list[TaskRecord]]
    arrived_s: float = field(default_factory=time.monotonic)
    tries: int = 0  # How often nothing could be said yet.

    @property
    def size(self) -> int:
        """Roughly its bytes."""
        if isinstance(self.operation, Claim):
            return 0
        adds, updates = self.operation.adds, self.operation.updates
        return sum(len(add.data) for add in adds) + sum(len(change.data) for change in updates)

    @property
    def wait_s(self) -> float:
        """How long it wants to wait until there is something to claim."""
        return self.operation.wait_ms / 1000 if isinstance(self.operation, Claim) else 0

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.arrived_s

    def succeed(self, tasks: list[TaskRecord]) -> None:
        if not self.answer.done():
            self.answer.set_result(tasks)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
