"""Handlers: what they are given, what they may return, and how they fail."""

from __future__ import annotations

import inspect
import threading
import traceback
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from ..errors import TaskStoreError
from ..types.tasks import Change, NewTask

if TYPE_CHECKING:
    from ..types.tasks import Task


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


Returned = NewTask | Change | Result | Iterable[NewTask | Change] | None
Function = Callable[..., Returned | Awaitable[Returned]]

LONGEST_ERROR = 2_000  # Characters.


class How(StrEnum):
    """How an attempt at a task ended."""

    DONE = "done"
    FAILED = "failed"
    DISCARDED = "discarded"
    SAVED = "saved"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of an attempt. Processes send it to each other."""

    how: How
    result: Result = field(default_factory=Result)
    error: str = ""
    traceback: str = ""
    group: str = ""  # Where a saved task goes; empty: the failed group.

    @classmethod
    def of(cls, problem: BaseException) -> Self:
        """Of an attempt that ended with this exception."""
        if isinstance(problem, LeaseLost):
            return cls(how=How.LOST)
        if isinstance(problem, Discard):
            return cls(how=How.DISCARDED, error=str(problem))
        if isinstance(problem, Save):
            return cls(how=How.SAVED, error=_saved_error(problem), group=problem.group)
        told = "".join(traceback.format_exception(problem))
        return cls(how=How.FAILED, error=error_text(problem), traceback=told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function, and how often and when it is tried."""

    group: str
    function: Function
    failed_group: str
    max_attempts: int
    backoff_ms: int  # Before the second attempt; twice as long before each further one.

    def __post_init__(self) -> None:
        if self.failed_group == self.group:
            raise ValueError(f"failed_group must be a group other than {self.group!r}")
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts: must be at least 1, not {self.max_attempts}")

    @property
    def is_coroutine(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    def call(self, task: Task, context: Context) -> Any:
        return self.function(*(task, context)[: _places(self.function)])

    def attempt(self, task: Task, context: Context) -> Outcome:
        """Call the function. Whatever it raises is an outcome: nothing that it does ends a worker's thread."""
        try:
            return Outcome(how=How.DONE, result=as_result(self.call(task, context)))
        except BaseException as problem:
            return Outcome.of(problem)

    async def attempt_async(self, task: Task, context: Context) -> Outcome:
        try:
            return Outcome(how=How.DONE, result=as_result(await self.call(task, context)))
        except CancelledError:
            raise
        except BaseException as problem:
            return Outcome.of(problem)


def as_result(returned: Returned) -> Result:
    """Raises TypeError for what a function should not return."""
    if isinstance(returned, Result):
        return returned
    each = () if returned is None else (returned,) if isinstance(returned, NewTask | Change) else tuple(returned)
    adds = [item for item in each if isinstance(item, NewTask)]
    updates = [item for item in each if isinstance(item, Change)]
    if len(adds) + len(updates) < len(each):
        raise TypeError(
            f"a function must return NewTask, Change, several of them, Result or None, not {returned!r:.90}"
        )
    return Result(adds=adds, updates=updates)


def error_text(problem: BaseException) -> str:
    """The class and the message, without what is no text to the store: a task must not be kept from failing."""
    told = "".join(traceback.format_exception_only(problem)).strip()[:LONGEST_ERROR]
    return told.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def _saved_error(problem: Save) -> str:
    """What it was given, or else the exception that it was raised from."""
    if problem.error or not problem.__cause__:
        return problem.error or "saved for review"
    return error_text(problem.__cause__)


def _places(function: Function) -> int:
    """1, or 2 for a function that takes the context too."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return 2 if sum(each.kind in kinds for each in parameters) > 1 else 1
