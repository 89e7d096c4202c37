"""An attempt at a task, from the claim to its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from .endings import attempt_of
from .handlers import Handler
from .keeper import Held, nothing
from .work import Context

if TYPE_CHECKING:
    from .answers import Task


class Attempt:
    """What is known of it in the worker. `held` is there as soon as its lease is kept."""

    held: Held

    def __init__(self, task: Task, handler: Handler, worker: str) -> None:
        self.task = task  # As the function knows it.
        self.handler = handler
        self.context = Context(attempt_of(task), worker)
        self._interrupt: Callable[[], object] = nothing
        self._ending = threading.Lock()

    @property
    def number(self) -> int:
        return self.context.attempt

    @property
    def is_lost(self) -> bool:
        return self.context.lost.is_set()

    def lose(self) -> None:
        """Tell the function that it works for nothing."""
        self.context.lost.set()
        self._interrupt()

    def on_interrupt(self, interrupt: Callable[[], object]) -> None:
        """What runs the function says how that is told where it runs. It may be told twice."""
        self._interrupt = interrupt
        if self.is_lost:
            interrupt()

    def take_ending(self) -> bool:
        """True for the first that asks: either what came of it is committed, or the task is given back."""
        return self._ending.acquire(blocking=False)
