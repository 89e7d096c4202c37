"""What stands in the lines of the table of groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..counts import Stats
from ..rates import backlogs
from . import words
from .group_table import Line, Table
from .name_tree import below
from .shares import Share, shares_of
from .sparks import points_of

SPARK_MINUTES = 30  # The boxes of the lines, in _group_row.html and flow.js, are one less wide.
DEEPEST = 8  # What lies deeper is indented like this.


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A group, or a folder of groups."""

    name: str  # Or the folder's prefix.
    label: str  # The name as it stands in its folder.
    level: int
    groups: int  # How many are in the folder; 0: this is a group.
    is_open: bool
    stats: Stats
    paused: int  # How many groups are.
    shares: Sequence[Share]
    oldest_ready_at_ms: int | None
    spark: str  # Points of a line; empty: nothing happened.


def rows_of(lines: Sequence[Line], table: Table, now_ms: int) -> list[Row]:
    sparks = sparks_of(lines)
    return [_row(line, table, now_ms, spark) for line, spark in zip(lines, sparks, strict=True)]


def sparks_of(lines: Sequence[Line]) -> list[str]:
    """For each group or folder the points of how many tasks it held within the last half hour."""
    numbers = backlogs([(line.names, line.stats.counts.total) for line in lines], SPARK_MINUTES)
    return [points_of(each) for each in numbers]


def oldest_at_ms(stats: Stats, now_ms: int) -> int | None:
    """Since when the oldest ready task has been ready; None: there is none."""
    return None if stats.oldest_ready_ms is None else now_ms - stats.oldest_ready_ms


def drained(stats: Stats) -> str:
    """When nothing will wait any more."""
    return words.drain(stats.counts.ready + stats.counts.expired, stats.in_per_minute, stats.out_per_minute)


def _row(line: Line, table: Table, now_ms: int, spark: str) -> Row:
    return Row(
        name=line.name,
        label=below(line.name, line.above[-1].name if line.above else ""),
        level=min(len(line.above), DEEPEST),
        groups=len(line.names) if line.is_folder else 0,
        is_open=table.is_open(line),
        stats=line.stats,
        paused=table.paused(line),
        shares=shares_of(line.stats.counts),
        oldest_ready_at_ms=oldest_at_ms(line.stats, now_ms),
        spark=spark,
    )
