"""Small lines that show where numbers have been going. Pure."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH, HEIGHT = 100, 20


def points_of(numbers: Sequence[int]) -> str:
    """The points of a line through a box of 100 by 20, the largest number at its top; empty for too few numbers."""
    if len(numbers) < 2:
        return ""
    most, step = max(*numbers, 1), WIDTH / (len(numbers) - 1)
    return " ".join(f"{place * step:.1f},{HEIGHT - HEIGHT * value / most:.1f}" for place, value in enumerate(numbers))
