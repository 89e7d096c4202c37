"""The options of jobs as Python programs give them: to `@job`, to `@task`, and in the settings of a Django project."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ..types.job_record import LEAST_MEMORY, MOST_MEMORY, MOST_TIMES, JobOptions, OnLost
from ..types.records import MOST
from ..types.sentences import between

MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Option:
    """The member of JobOptions that an option sets, what it must be, and its conversion.

    `take` raises ValueError, TypeError or OverflowError.
    """

    member: str
    right: str
    take: Callable[[Any], Any]


def job_options(*layers: Mapping[str, Any]) -> JobOptions:
    """Return the options of these layers, of which later ones take precedence. None counts as not given.

    Raises TypeError for an unknown option, and ValueError that names an option with an invalid value.
    """
    return JobOptions(**taken({name: value for each in layers for name, value in each.items() if value is not None}))


def taken(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of JobOptions that the options set, of which None sets None. Raises as `job_options` does."""
    return {_option(name).member: None if value is None else _taken(name, value) for name, value in options.items()}


def _option(name: str) -> Option:
    if name not in OPTIONS:
        raise TypeError(f"{name} is not a known option: use one of {', '.join(OPTIONS)}")
    return OPTIONS[name]


def _taken(name: str, value: Any) -> Any:
    option = OPTIONS[name]
    try:
        return option.take(value)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"{name} {option.right}, not {value!r}") from None


def _number(least: int, most: int) -> Callable[[Any], int]:
    def take(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError
        return value

    return take


def _milliseconds(least: int) -> Callable[[Any], int]:
    within = _number(least, MOST)
    return lambda value: within((value if isinstance(value, timedelta) else timedelta(seconds=value)) // MILLISECOND)


LENGTH = "must be a timedelta or a number of seconds"
OPTIONS: Mapping[str, Option] = {
    "max_attempts": Option("max_attempts", between(1, MOST_TIMES), _number(1, MOST_TIMES)),
    "backoff": Option("backoff_ms", f"{LENGTH}, and not negative", _milliseconds(0)),
    "timeout": Option("timeout_ms", f"{LENGTH}, at least a millisecond", _milliseconds(1)),
    "memory_bytes": Option("memory_bytes", between(LEAST_MEMORY, MOST_MEMORY), _number(LEAST_MEMORY, MOST_MEMORY)),
    "on_lost": Option("on_lost", f"must be one of {', '.join(OnLost)}", OnLost),
    "max_lost": Option("max_lost", between(1, MOST_TIMES), _number(1, MOST_TIMES)),
}
