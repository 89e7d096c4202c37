"""The table of groups: its rows, sorting and filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from taskstore.types.tasks import State

from ..reading.counts import Counts, Stats, sum_of
from ..reading.rates import backlogs
from . import words
from .charts import points_of
from .name_tree import Folder, Node, below, prefix_above, tree_of
from .parameters import Arrangement, Order, View

WHOLE = 1_000  # The length of a bar.
ORDER = (State.READY, State.CLAIMED, State.EXPIRED, State.SCHEDULED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A piece of the bar, in thousandths of its length."""

    state: State
    start: int
    length: int


def part(number: int, total: int) -> int:
    """The length of the bar that stands for `number` of `total`."""
    return WHOLE * number // max(total, 1)


def shares_of(counts: Counts) -> Sequence[Share]:
    """The pieces, in the order of a task's life. Failed tasks are counted beside the others, so they are none."""
    numbers = [getattr(counts, state) for state in ORDER]
    ends = [part(sum(numbers[: place + 1]), sum(numbers)) for place in range(len(numbers))]
    starts = [0, *ends]
    return [
        Share(state=state, start=start, length=end - start)
        for state, start, end in zip(ORDER, starts, ends, strict=False)
    ]


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


ROWS = 25  # On one page: more than that nobody reads, and browsers get slow.


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A group, or a folder of groups with the numbers of all below it."""

    name: str  # Or the folder's prefix.
    is_folder: bool
    names: Sequence[str]  # Of the groups that the numbers are of.
    stats: Stats
    nodes: Sequence[Node]  # What the folder holds, if it is to be opened.
    above: Above  # The folders in which it stands, the outermost first.


Above: TypeAlias = tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of the table. It begins with the folders that its first line stands in."""

    lines: Sequence[Line]
    number: int
    has_more: bool


class Table:
    """The groups as somebody wants to see them; `stats`: those of all groups."""

    def __init__(self, stats: Mapping[str, Stats], wanted: Arrangement) -> None:
        self._stats = stats
        self._wanted = wanted
        self._opened = with_all_above(wanted.opened)
        self.names = matching(stats, wanted.searched)

    def page(self) -> Page:
        """The page that is wanted, or the last one when there are not so many."""
        lines = list(self._lines(self._first_level(), ()))
        number = max(1, min(self._wanted.page, -(-len(lines) // ROWS)))
        shown = lines[(number - 1) * ROWS : number * ROWS]
        above = shown[0].above if shown else ()
        return Page(lines=[*above, *shown], number=number, has_more=len(lines) > number * ROWS)

    def is_open(self, line: Line) -> bool:
        """Whether what is in the folder is shown; a search shows all that it found."""
        return line.is_folder and (bool(self._wanted.searched) or line.name in self._opened)

    def paused(self, line: Line) -> int:
        """How many of its groups are paused."""
        return sum(self._stats[name].is_paused for name in line.names)

    def _first_level(self) -> Sequence[Node]:
        return tree_of(self.names) if self._wanted.view is View.TREE else self.names

    def _lines(self, nodes: Sequence[Node], above: Above) -> Iterator[Line]:
        for line in self._sorted(self._line(node, above) for node in nodes):
            yield line
            if self.is_open(line):
                yield from self._lines(line.nodes, (*above, line))

    def _line(self, node: Node, above: Above) -> Line:
        if isinstance(node, Folder):
            return folder_line(node.prefix, node.names, self._stats, nodes=node.nodes, above=above)
        return group_line(node, self._stats, above=above)

    def _sorted(self, lines: Iterable[Line]) -> list[Line]:
        """By the order; equal ones by name, upwards."""
        order, is_downwards = self._wanted.order, self._wanted.is_downwards
        if order is Order.NAME:
            return sorted(lines, key=lambda line: line.name, reverse=is_downwards)
        by_name = sorted(lines, key=lambda line: line.name)
        return sorted(by_name, key=lambda line: _rank(line.stats, order), reverse=is_downwards)


def group_line(name: str, stats: Mapping[str, Stats], *, above: Above = ()) -> Line:
    return Line(name=name, is_folder=False, names=(name,), stats=stats[name], nodes=(), above=above)


def folder_line(
    prefix: str, names: Sequence[str], stats: Mapping[str, Stats], *, nodes: Sequence[Node] = (), above: Above = ()
) -> Line:
    together = sum_of([stats[name] for name in names])
    return Line(name=prefix, is_folder=True, names=names, stats=together, nodes=nodes, above=above)


def matching(names: Iterable[str], searched: str) -> list[str]:
    """The names that contain what was searched for, in whatever case."""
    return [name for name in names if searched.casefold() in name.casefold()]


def with_all_above(prefixes: Iterable[str]) -> set[str]:
    """The prefixes, and all shorter ones: a folder does not close because a new one comes around it."""
    found: set[str] = set()
    for prefix in prefixes:
        while prefix and prefix not in found:
            found.add(prefix)
            prefix = prefix_above(prefix)
    return found


def _rank(stats: Stats, order: Order) -> float:
    match order:
        case Order.OLDEST:
            return stats.oldest_ready_ms or 0
        case Order.IN:
            return stats.in_per_minute
        case Order.OUT:
            return stats.out_per_minute
        case state:
            return int(getattr(stats.counts, state))
