"""Format sizes and time spans for people. Pure."""

from __future__ import annotations

UNITS_S = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


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
