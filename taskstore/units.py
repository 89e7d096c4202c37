"""Format sizes and time spans for people. Pure."""

from __future__ import annotations

UNITS_S = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


THIN_SPACE = "\N{NARROW NO-BREAK SPACE}"


def number(value: int) -> str:
    """Format a number as 12 431, with spaces that do not break."""
    return f"{value:,}".replace(",", THIN_SPACE)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: 1 task, 12 tasks."""
    return f"{number(count)} {noun}{'s' * (count != 1)}"


def about(value_ms: int) -> str:
    """Format a time span in its largest unit: 0 s, 38 s, 17 min, 2 d."""
    length_s = value_ms // 1_000
    unit, unit_s = next((unit for unit in UNITS_S if length_s >= unit[1]), UNITS_S[-1])
    return f"{number(length_s // unit_s)} {unit}"


def ago(at_ms: int, now_ms: int) -> str:
    """Format a time by its distance: now, 38 s ago, in 2 h."""
    distance_ms = abs(at_ms - now_ms)
    if distance_ms < 1_000:
        return "now"
    return f"in {about(distance_ms)}" if at_ms > now_ms else f"{about(distance_ms)} ago"


def size(value: int) -> str:
    """Format a number of bytes: 112 B, 1.5 kB, 10 MB."""
    if value < 1_000:
        return f"{value} B"
    amount = float(value)
    for unit in ("kB", "MB", "GB"):
        amount /= 1_000
        if amount < 999.5 or unit == "GB":
            break
    return f"{amount:.1f} {unit}" if amount < 9.95 else f"{amount:.0f} {unit}"


def duration(value_ms: int) -> str:
    """Format a time span in its two largest units: 40 ms, 3.1 s, 4 min 9 s, 2 d 5 h."""
    if value_ms < 1_000:
        return f"{value_ms} ms"
    if value_ms < 10_000:
        return f"{value_ms // 100 / 10:g} s"
    rest_s = value_ms // 1_000
    parts: list[tuple[int, str]] = []
    for unit, length_s in UNITS_S:
        count, rest_s = divmod(rest_s, length_s)
        if count or parts:
            parts.append((count, unit))
    return " ".join(f"{count} {unit}" for count, unit in parts[:2] if count)
