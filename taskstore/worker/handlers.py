"""The handlers of a worker: their arguments, their results and their exceptions."""

from __future__ import annotations

import inspect
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, cast

from ..errors import TaskStoreError, refuse
from ..types.checks import MOST
from ..types.progress import problems_of
from ..types.tasks import Change, NewTask
from ..types.texts import clean

MILLISECOND = timedelta(milliseconds=1)
FIRST = timedelta(seconds=1)
LONGEST_BACKOFF_MS = 3_600_000

Kinds = type[BaseException] | tuple[type[BaseException], ...]
Pause = timedelta | float  # Or a number of seconds.
Backoff = Pause | Sequence[Pause] | Callable[[int], timedelta]


class Rules(TypedDict, total=False):
    """The rules of a function as keyword arguments; see Retries. None: the default."""

    backoff: Backoff | None
    jitter: float | None
    retry_on: Kinds | None
    fail_on: Kinds | None
    discard_on: Kinds | None


class Discard(Exception):
    """Raise it to end the task or job without a result: it is deleted."""


class Save(Exception):
    """Raise it if retrying can't help: the task is moved unchanged with the error, the job fails at once.

    `group`: the target of a task, by default the handler's failed group. `error`: by default the exception that caused
    this one.
    """

    def __init__(self, group: str = "", error: str = "") -> None:
        self.group, self.error = group, error
        super().__init__(error or group)


class Retry(Exception):
    """Raise it for another attempt after `in_`. It counts as a failed attempt. `error`: as of Save."""

    def __init__(self, in_: timedelta, error: str = "") -> None:
        self.in_, self.error = in_, error
        super().__init__(error or f"again in {in_}")


class Snooze(Exception):
    """Raise it to be called again after `in_`, without counting this attempt: what it waits for is not there yet."""

    def __init__(self, in_: timedelta) -> None:
        self.in_ = in_
        super().__init__(f"again in {in_}")


class Then(StrEnum):
    """What follows an attempt that raised an exception."""

    RETRY = "retry"
    FAIL = "fail"
    DISCARD = "discard"
    SNOOZE = "snooze"
    LEAVE = "leave"  # To workers that have the function. Only of jobs.


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """The rules of a function.

    `backoff`: the pause before the next attempt: the first one, which doubles with each attempt; a list of pauses, the
    last of which is used again; or a function of the number of the attempt. At most an hour. `jitter`: the part of
    each pause that is random, from 0 to 1, so that not all retries come at the same time.

    `retry_on`, `fail_on`, `discard_on`: exception classes. Those of `discard_on` end the task or job; those of
    `fail_on`, and all that `retry_on` lacks, fail at once.
    """

    backoff: timedelta | Sequence[timedelta] | Callable[[int], timedelta] = FIRST
    jitter: float = 0
    retry_on: Kinds = BaseException
    fail_on: Kinds = ()
    discard_on: Kinds = ()

    @classmethod
    def of(cls, **given: Unpack[Rules]) -> Self:
        """Return the rules that are not None. Raises TypeError or ValueError, which name the invalid one."""
        rules: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if "backoff" in rules:
            rules["backoff"] = _pauses(rules["backoff"])
        made = cls(**rules)
        for name in ("retry_on", "fail_on", "discard_on"):
            kinds = getattr(made, name)
            if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in _each(kinds)):
                raise TypeError(f"{name} must be an exception class or a tuple of them, not {kinds!r}")
        if not isinstance(made.jitter, int | float) or not 0 <= made.jitter <= 1:
            raise ValueError(f"jitter: must be a number between 0 and 1, not {made.jitter!r}")
        return made

    @property
    def first_ms(self) -> int | None:
        """The pause before the second attempt in milliseconds; None if only a function knows it."""
        return None if callable(self.backoff) else _each(self.backoff)[0] // MILLISECOND

    def after(self, problem: BaseException) -> Then:
        """Return what follows this exception."""
        if isinstance(problem, Snooze):
            return Then.SNOOZE
        if isinstance(problem, (Discard, *_each(self.discard_on))):
            return Then.DISCARD
        if isinstance(problem, Retry):
            return Then.RETRY
        if isinstance(problem, (Save, *_each(self.fail_on))) or not isinstance(problem, self.retry_on):
            return Then.FAIL
        return Then.RETRY

    def pause_ms(self, attempt: int, problem: BaseException | None = None) -> int:
        """Return the pause between this attempt and the next one."""
        if isinstance(problem, Retry | Snooze):
            return max(0, problem.in_ // MILLISECOND)
        if callable(self.backoff):
            whole = max(0, self.backoff(attempt) // MILLISECOND)
        elif isinstance(self.backoff, timedelta):
            whole = (self.backoff // MILLISECOND) << min(attempt - 1, 40)
        else:
            whole = self.backoff[min(attempt, len(self.backoff)) - 1] // MILLISECOND
        whole = min(whole, LONGEST_BACKOFF_MS)
        return round(whole * (1 - self.jitter * _random())) if self.jitter else whole


DEFAULT = Retries()


def _random() -> float:
    from random import random  # Here, because each process that is forked after its import gets a new seed.

    return random()  # noqa: S311 - not a secret.


def _pauses(given: Any) -> timedelta | Sequence[timedelta] | Callable[[int], timedelta]:
    """Return a backoff with each pause as a timedelta. Raises TypeError or ValueError."""
    if callable(given):
        return cast("Callable[[int], timedelta]", given)
    pauses = []
    for each in _each(given):
        try:
            pauses.append(each if isinstance(each, timedelta) else timedelta(seconds=each))
        except (TypeError, ValueError, OverflowError):
            pauses = []
            break
    if not pauses:
        raise TypeError(
            "backoff must be a timedelta or a number of seconds, a list of them, or a function of the number of the "
            f"attempt, not {given!r}"
        )
    if any(pause < timedelta() for pause in pauses):
        raise ValueError(f"backoff: must not be negative, but is {given!r}")
    if any(pause > timedelta(milliseconds=MOST) for pause in pauses):
        raise ValueError(f"backoff must be at most {MOST // 1_000} s, but is {given!r}")
    return pauses if isinstance(given, Sequence) else pauses[0]


def _each(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Sequence) else (value,)


if TYPE_CHECKING:
    from ..types.tasks import Task


class LeaseLost(TaskStoreError):
    """Another worker may have the task, so the result can't be committed. Stop working on it."""

    code = "lease_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The commit of a finished task, which is applied whole or not at all.

    It also deletes the task itself, unless an update or a delete names it. Name the task by the id with which it was
    claimed, even if it was renewed since. An add with that id becomes its successor.
    """

    adds: Sequence[NewTask] = ()
    updates: Sequence[Change] = ()
    deletes: Sequence[int] = ()
    depends: Sequence[int] = ()

    @property
    def size(self) -> int:
        """The number of bytes of its new tasks, about."""
        if not (self.adds or self.updates):
            return 0
        changes: list[NewTask | Change] = [*self.adds, *self.updates]
        return sum([CHANGE_BYTES + len(each.data or b"") for each in changes])


CHANGE_BYTES = 2**13  # Of a change besides its data, at most.
Report = Callable[[float, str], object]


def unreported(done: float, text: str) -> None:
    """Drop a report of progress, for a function that runs without a worker."""


class Context:
    """The context of an attempt, the optional second argument of a handler.

    `attempt`: its number, starting at 1. `worker`: the worker's name.
    """

    def __init__(self, attempt: int, worker: str, report: Report = unreported) -> None:
        self.attempt = attempt
        self.worker = worker
        self._is_lost = self._is_cancelled = False
        self._lost: threading.Event | None = None
        self._report = report

    @property
    def lost(self) -> threading.Event:
        """An event that is set when the lease is lost."""
        if self._lost is None:  # Most functions don't ask.
            self._lost = threading.Event()
        if self._is_lost:  # After that, because it may be lost meanwhile.
            self._lost.set()
        return self._lost

    @property
    def cancelled(self) -> bool:
        """Whether the lease is lost because somebody has cancelled the task."""
        return self._is_cancelled

    def lose(self, *, is_cancelled: bool = False) -> None:
        """Tell the function that the lease is lost."""
        self._is_cancelled, self._is_lost = is_cancelled, True
        if self._lost:
            self._lost.set()

    def progress(self, done: float, text: str = "") -> None:
        """Report the progress of the task: `done` from 0 to 1, and a text of up to 255 characters.

        Call it as often as you like: the worker sends the last report once a second. Raises InvalidInput.
        """
        refuse(problems_of(done, text))
        self._report(done, text)

    def check(self) -> None:
        """Raise LeaseLost if the result can no longer be committed. Call it from time to time during long work."""
        if self.lost.is_set():
            raise LeaseLost("the task no longer belongs to this worker")


Returned = NewTask | Change | Result | Iterable[NewTask | Change] | None
Function = Callable[..., Returned | Awaitable[Returned]]

LONGEST_TRACEBACK = 2**14  # Characters.


class How(StrEnum):
    """How an attempt at a task ended."""

    DONE = "done"
    FAILED = "failed"
    DISCARDED = "discarded"
    SAVED = "saved"
    LOST = "lost"
    GIVEN_BACK = "given back"  # The worker stopped. Does not count as an attempt.
    SNOOZED = "snoozed"  # It is called again later. Does not count as an attempt.


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of an attempt. It is pickled between processes."""

    how: How
    result: Result = field(default_factory=Result)
    error: str = ""
    traceback: str = ""
    group: str = ""  # Where a saved task goes; empty: the failed group.
    in_ms: int | None = None  # The pause before the next attempt. None: by the number of the attempt.
    size: int = 0  # The number of bytes of the result, about.

    @classmethod
    def of(cls, problem: BaseException, attempt: int, retries: Retries) -> Self:
        """Return the outcome of an attempt that ended with this exception."""
        if isinstance(problem, LeaseLost):
            return cls(how=How.LOST)
        match retries.after(problem):
            case Then.SNOOZE:
                return cls(how=How.SNOOZED, in_ms=retries.pause_ms(attempt, problem))
            case Then.DISCARD:
                error = clean(str(problem)) if isinstance(problem, Discard) else error_text(problem)
                return cls(how=How.DISCARDED, error=error)
            case Then.FAIL if isinstance(problem, Save):
                return cls(how=How.SAVED, error=reason_of(problem) or "saved for review", group=problem.group)
            case then:
                text = clean("".join(traceback.format_exception(problem)), LONGEST_TRACEBACK)
                error = (reason_of(problem) if isinstance(problem, Retry) else "") or error_text(problem)
                how = How.SAVED if then is Then.FAIL else How.FAILED
                return cls(how=how, error=error, traceback=text, in_ms=retries.pause_ms(attempt, problem))


DONE = Outcome(how=How.DONE)  # With nothing to write but the end of the task.


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function with its retry policy."""

    group: str
    function: Function
    failed_group: str
    max_attempts: int
    retries: Retries = DEFAULT
    is_coroutine: bool = field(init=False)
    takes_context: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_coroutine", inspect.iscoroutinefunction(self.function))
        object.__setattr__(self, "takes_context", takes_two(self.function))
        if self.failed_group == self.group:
            raise ValueError(f"failed_group must be a group other than {self.group!r}")
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts: must be at least 1, not {self.max_attempts}")

    def call(self, task: Task, context: Context | None) -> Any:
        """Call the function with the task, and with the context if it takes two positional arguments."""
        return self.function(task, context) if self.takes_context else self.function(task)

    def attempt(self, task: Task, context: Context | None, number: int) -> Outcome:
        """Call the function. Any exception becomes an outcome, so that it can't end a worker's thread."""
        try:
            return done(self.call(task, context))
        except BaseException as problem:
            return self.outcome_of(problem, number)

    def outcome_of(self, problem: BaseException, attempt: int) -> Outcome:
        try:
            return Outcome.of(problem, attempt, self.retries)
        except Exception as worse:  # Of a function for the backoff.
            return Outcome.of(worse, attempt, DEFAULT)


def takes_two(function: Function) -> bool:
    """Whether the function takes two positional arguments."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in kinds for each in inspect.signature(function).parameters.values()) > 1


def done(returned: Returned) -> Outcome:
    """Return the outcome of a function that has returned this. Raises TypeError for an unsupported value."""
    if returned is None:
        return DONE
    result = as_result(returned)
    return Outcome(how=How.DONE, result=result, size=result.size)


def as_result(returned: Returned) -> Result:
    """Convert the return value of a function. Raises TypeError for an unsupported one."""
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


def reason_of(problem: Save | Retry) -> str:
    """Return the error that was given, or else the text of the exception that caused this one."""
    return clean(problem.error) or (error_text(problem.__cause__) if problem.__cause__ else "")


def error_text(problem: BaseException) -> str:
    """Return class and message of an exception."""
    return clean("".join(traceback.format_exception_only(problem)).strip())
