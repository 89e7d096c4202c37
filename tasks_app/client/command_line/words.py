"""Numbers, times and texts as people read them on a terminal: as the console has them, but for its thin spaces."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from ...quantities import UNITS_S

# What moves the cursor, changes colours or rings: also in what strangers put into a task.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
BUT_LINES = re.compile(CONTROL.pattern.replace(r"\x00-\x1f", r"\x00-\x08\x0b-\x1f"))


def number(value: int) -> str:
    """12 431"""
    return f"{value:,}".replace(",", " ")


def rate(per_minute: float) -> str:
    """0, 0.4, 7.5, 1 204"""
    return f"{per_minute:.1f}".removesuffix(".0") if per_minute < 9.95 else number(round(per_minute))


def rough(value_ms: int) -> str:
    """A time span in its largest unit: 0 s, 38 s, 2 h."""
    seconds = value_ms // 1_000
    unit, length_s = next((each for each in UNITS_S if seconds >= each[1]), UNITS_S[-1])
    return f"{number(seconds // length_s)} {unit}"


def relative(at_ms: int, now_ms: int) -> str:
    """How far off a time is: now, 38 s ago, in 2 h."""
    if abs(at_ms - now_ms) < 1_000:
        return "now"
    return f"in {rough(at_ms - now_ms)}" if at_ms > now_ms else f"{rough(now_ms - at_ms)} ago"


def exact(at_ms: int) -> str:
    """2026-11-20 14:02:11 UTC; a time that no calendar has stays a number."""
    try:
        return f"{datetime.fromtimestamp(at_ms // 1_000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError):
        return f"{at_ms} ms"


def when(at_ms: int, now_ms: int) -> str:
    """2026-11-20 14:02:11 UTC, 3 min ago"""
    return f"{exact(at_ms)}, {relative(at_ms, now_ms)}"


def printable(text: str) -> str:
    """The text in one line, without anything that a terminal would obey."""
    return CONTROL.sub(_escaped, text)


def printable_lines(text: str) -> str:
    """The same, but lines and tabs stay."""
    return BUT_LINES.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]
