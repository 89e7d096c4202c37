"""How the jobs of a backend are run: what its OPTIONS say, what they say for a queue, what a task says for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from taskstore.types.job_record import JobOptions, OnLost

MODULES, QUEUES = "modules", "queues"  # Options that are about other things than how a job is run.
MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Option:
    """Of which kind the value is, in words, and how the record of a job has it.

    `take` raises ValueError or TypeError.
    """

    member: str
    kind: str
    take: Callable[[Any], Any]


def for_all(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the OPTIONS of a backend say of every job."""
    return {name: value for name, value in options.items() if name not in (MODULES, QUEUES)}


def by_queue(options: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """What they say of the jobs of single queues."""
    said = options.get(QUEUES)
    return said if isinstance(said, Mapping) else {}


def job_options(*layers: Mapping[str, Any]) -> JobOptions:
    """What the layers say, a later one in place of those before it. None says nothing.

    Raises ValueError naming the option with an invalid value.
    """
    said = {name: value for layer in layers for name, value in layer.items() if name in OPTIONS and value is not None}
    return JobOptions(**{OPTIONS[name].member: _taken(name, value) for name, value in said.items()})


def problems(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with those for every job, or of one queue, and a hint, which may be empty."""
    for name, value in options.items():
        if name not in OPTIONS:
            yield f"{name} is not a known option", f"Use one of {', '.join(OPTIONS)}."
        elif value is not None and not _makes_sense(name, value):
            yield f"{name} must be {OPTIONS[name].kind}, not {value!r}", ""


def misshapen(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """As `problems`, of the others."""
    if not isinstance(options.get(QUEUES, {}), Mapping):
        yield f"{QUEUES} must be a dict of options by name of queue, not {options[QUEUES]!r}", ""
    if not isinstance(options.get(MODULES, []), list | tuple):
        yield f"{MODULES} must be a list of modules, not {options[MODULES]!r}", ""


def _makes_sense(name: str, value: Any) -> bool:
    try:
        _taken(name, value)
    except ValueError:
        return False
    return True


def _taken(name: str, value: Any) -> Any:
    option = OPTIONS[name]
    try:
        return option.take(value)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"{name} must be {option.kind}, not {value!r}") from None


def _count(least: int) -> Callable[[Any], int]:
    def take(value: Any) -> int:
        if type(value) is not int or value < least:
            raise ValueError
        return value

    return take


def _milliseconds(least: timedelta) -> Callable[[Any], int]:
    def take(value: Any) -> int:
        length = value if isinstance(value, timedelta) else timedelta(seconds=value)
        if length < least:
            raise ValueError
        return length // MILLISECOND

    return take


OPTIONS: Mapping[str, Option] = {
    "max_attempts": Option("max_attempts", "a whole number above 0", _count(1)),
    "backoff": Option("backoff_ms", "a timedelta or a number of seconds, and not negative", _milliseconds(timedelta())),
    "timeout": Option(
        "timeout_ms", "a timedelta or a number of seconds, at least a millisecond", _milliseconds(MILLISECOND)
    ),
    "memory_bytes": Option("memory_bytes", "a whole number of bytes, at least 1 MiB", _count(2**20)),
    "on_lost": Option("on_lost", f"one of {', '.join(OnLost)}", OnLost),
    "max_lost": Option("max_lost", "a whole number, and not negative", _count(0)),
}
