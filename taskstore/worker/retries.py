"""What follows a failed attempt: the exceptions that a function can raise, and the rules that it declares."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Self, TypedDict, Unpack

MILLISECOND = timedelta(milliseconds=1)
FIRST = timedelta(seconds=1)
LONGEST_BACKOFF_MS = 3_600_000

Kinds = type[BaseException] | tuple[type[BaseException], ...]
Backoff = timedelta | Sequence[timedelta] | Callable[[int], timedelta]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """The rules of a function.

    `backoff`: the pause before the next attempt: the first one, which doubles with each attempt; a list of pauses, the
    last of which is used again; or a function of the number of the attempt. At most an hour. `jitter`: the part of
    each pause that is random, from 0 to 1, so that not all retries come at the same time.

    `retry_on`, `fail_on`, `discard_on`: exception classes. Those of `discard_on` end the task or job; those of
    `fail_on`, and all that `retry_on` lacks, fail at once.
    """

    backoff: Backoff = FIRST
    jitter: float = 0
    retry_on: Kinds = BaseException
    fail_on: Kinds = ()
    discard_on: Kinds = ()

    @classmethod
    def of(cls, **given: Unpack[Rules]) -> Self:
        """Return the rules that are not None. Raises TypeError or ValueError, which name the invalid one."""
        rules: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        made = cls(**rules)
        for name in ("retry_on", "fail_on", "discard_on"):
            kinds = getattr(made, name)
            if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in _each(kinds)):
                raise TypeError(f"{name} must be an exception class or a tuple of them, not {kinds!r}")
        pauses = () if callable(made.backoff) else _each(made.backoff)
        if not all(isinstance(pause, timedelta) for pause in pauses) or (not pauses and not callable(made.backoff)):
            raise TypeError(
                "backoff must be a timedelta, such as timedelta(seconds=30), a list of them, or a function of the "
                f"number of the attempt, not {made.backoff!r}"
            )
        if any(pause < timedelta() for pause in pauses):
            raise ValueError(f"backoff: must not be negative, but is {made.backoff!r}")
        if not 0 <= made.jitter <= 1:
            raise ValueError(f"jitter: must be between 0 and 1, not {made.jitter!r}")
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
        return round(whole * (1 - self.jitter * random.random()))  # noqa: S311 - not a secret.


DEFAULT = Retries()


def _each(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Sequence) else (value,)
