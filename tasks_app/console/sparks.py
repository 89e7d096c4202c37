"""Small lines that show where numbers have been going. Pure."""

from __future__ import annotations

from collections.abc import Sequence

HEIGHT = 20


def points_of(numbers: Sequence[int]) -> str:
    """The points of a line one step for each number wide, the largest at its top; empty for too few numbers."""
    if len(numbers) < 2:
        return ""
    most = max(*numbers, 1)
    return " ".join(f"{place},{_tenths(HEIGHT - HEIGHT * value / most)}" for place, value in enumerate(numbers))


def _tenths(height: float) -> str:
    # Short, because there are six thousand of them on a page.
    return f"{height:.1f}".removesuffix(".0")
