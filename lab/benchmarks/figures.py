"""The arithmetic of measurements."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

# What one measurement gave, by the names that the columns of its scene use.
Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Spread:
    """What several rounds gave: the middle, and how far they were apart."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Of one value or more; the median of an even number lies between the two in the middle."""
        found = sorted(values)
        return cls(statistics.median(found), found[0], found[-1])


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of the values that `percent` of them do not exceed; 0 when there are none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def spreads(rounds: Sequence[Figures]) -> dict[str, Spread]:
    """Each figure that every round has, over the rounds."""
    common = [name for name in rounds[0] if all(name in figures for figures in rounds)] if rounds else []
    return {name: Spread.of(figures[name] for figures in rounds) for name in common}
