"""What a function that does tasks is told, and what it can answer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import TaskStoreError
from ..operations import Change, NewTask


class LeaseLost(TaskStoreError):
    """The task is another worker's by now: nothing that is done for it can be committed. Stop."""

    code = "lease_lost"


class Discard(Exception):
    """Raise it when nobody need do the task: it is deleted."""


class Save(Exception):
    """Raise it when another attempt would not help: the task is moved as it is, with the error, to be looked at.

    `group`: where to; none: the handler's failed group.
    """

    def __init__(self, group: str = "", error: str = "") -> None:
        self.group, self.error = group, error
        super().__init__(error or group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What is committed when a task is done, all or nothing.

    The task itself is deleted with it, unless an update or a delete names it. It may be named by the id with which it
    was claimed, also when it was renewed since; an add with that id is its successor.
    """

    adds: Sequence[NewTask] = ()
    updates: Sequence[Change] = ()
    deletes: Sequence[int] = ()
    depends: Sequence[int] = ()


class Context:
    """The second argument of a function that takes one."""

    def __init__(self, attempt: int, worker: str) -> None:
        self.attempt = attempt  # 1 is the first.
        self.worker = worker  # The worker's name.
        self.lost = threading.Event()  # Set when the task is no longer this worker's.

    def check(self) -> None:
        """Raises LeaseLost when the rest of the work would be for nothing. Long work asks now and then."""
        if self.lost.is_set():
            raise LeaseLost("the task is no longer this worker's")
