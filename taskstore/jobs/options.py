"""The options of jobs as Python programs give them: to `@job`, to `@task`, and in the settings of a Django project."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from msgspec import inspect

from ..types.checks import why_wrong
from ..types.job_record import JobOptions, OnLost

MILLISECOND = timedelta(milliseconds=1)

# The member of JobOptions that each option sets. Durations are a timedelta or seconds, in Python.
OPTIONS: Mapping[str, str] = {
    "max_attempts": "max_attempts",
    "backoff": "backoff_ms",
    "timeout": "timeout_ms",
    "memory_bytes": "memory_bytes",
    "on_lost": "on_lost",
    "max_lost": "max_lost",
}


def job_options(*layers: Mapping[str, Any]) -> JobOptions:
    """Return the options of these layers, of which later ones take precedence. None counts as not given.

    Raises TypeError for an unknown option, and ValueError that names an option with an invalid value.
    """
    return JobOptions(**taken({name: value for each in layers for name, value in each.items() if value is not None}))


def taken(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of JobOptions that the options set, of which None sets None. Raises as `job_options` does."""
    if unknown := [name for name in options if name not in OPTIONS]:
        raise TypeError(f"{unknown[0]} is not a known option: use one of {', '.join(OPTIONS)}")
    return {OPTIONS[name]: None if value is None else _taken(name, value) for name, value in options.items()}


def _taken(name: str, value: Any) -> Any:
    member = OPTIONS[name]
    [type_] = [each.type.types[0] for each in inspect.type_info(JobOptions).fields if each.name == member]  # type: ignore[attr-defined]
    if member != name:
        try:
            given_ms = (value if isinstance(value, timedelta) else timedelta(seconds=value)) // MILLISECOND
        except (TypeError, ValueError, OverflowError):
            given_ms = -1
        if why_wrong(_plain(type_), given_ms):
            least = "at least a millisecond" if name == "timeout" else "and not negative"
            raise ValueError(f"{name} must be a timedelta or a number of seconds, {least}, not {value!r}")
        return given_ms
    if why := why_wrong(_plain(type_), value):
        raise ValueError(f"{name} {why}")
    return OnLost(value) if name == "on_lost" else value


def _plain(type_: inspect.Type) -> inspect.Type:
    return type_.type if isinstance(type_, inspect.Metadata) else type_
