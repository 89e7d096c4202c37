"""The table of groups: its rows, sorting, filters and charts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from taskstore.types.tasks import State
from taskstore.units import number

from ..access.policy import Action
from ..alerts.diagnosis import Diagnosis, of_folder, of_groups, of_worst, troubled
from ..database.time_limits import TookTooLong, at_most
from ..models import Task
from ..reading.clients import Seen, by_group
from ..reading.counts import Stats, sum_of
from ..reading.rates import PERCENTILES, Percentiles, backlogs, series_of, series_of_all
from ..writer.totals import Numbers
from . import parameters, words
from .name_tree import Folder, Node, below, prefix_above, tree_of
from .pages import page
from .parameters import Arrangement, Order, View
from .replica import from_replica

WHOLE = 1_000  # The length of a bar.
IN_BARS = tuple(state for state in State if state is not State.FINISHED)
HEIGHT = 20
LIMIT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A segment of the bar, in thousandths of its length."""

    state: State
    start: int
    length: int


def part(number: int, total: int) -> int:
    """Return the length of the segment for `number` of `total`."""
    return WHOLE * number // max(total, 1)


def shares_of(counts: Numbers) -> Sequence[Share]:
    """Return the segments in the order of the states. Finished tasks have none: nobody waits for them."""
    numbers = [getattr(counts, state) for state in IN_BARS]
    ends = [part(sum(numbers[: place + 1]), sum(numbers)) for place in range(len(numbers))]
    starts = [0, *ends]
    return [
        Share(state=state, start=start, length=end - start)
        for state, start, end in zip(IN_BARS, starts, ends, strict=False)
    ]


SPARK_MINUTES = 30  # The view boxes in _group_row.html and flow.js are one less wide.
NONE_KNOWN: Mapping[str, Diagnosis] = {}
DEEPEST = 8  # The greatest indentation.


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A group, or a folder of groups."""

    name: str  # Or the folder's prefix.
    label: str  # The name without the folder's prefix.
    level: int
    groups: int  # The number of groups in a folder; 0: this is a group.
    is_open: bool
    stats: Stats
    diagnosis: Diagnosis
    workers: str  # How many have named it: "2, 1 lost".
    shares: Sequence[Share]
    oldest_ready_at_ms: int | None
    drained: str
    spark: str  # Points of a line; empty: nothing happened.


def rows_of(
    lines: Sequence[Line],
    clients: Sequence[Seen],
    now_ms: int,
    known: Mapping[str, Diagnosis] = NONE_KNOWN,
    table: Table | None = None,
) -> list[Row]:
    """Return the rows of these lines. Those of a table know which folders are open.

    `known`: the worst diagnoses; those of the other groups of the lines are made.
    """
    if not known and any(line.is_folder for line in lines):
        known = of_worst(clients)
    bad = troubled(known)
    unknown = {line.name: line.stats for line in lines if not line.is_folder and line.name not in known}
    found = {**known, **of_groups(unknown, clients)}
    workers = by_group(clients, {name for line in lines for name in line.names})
    return [
        Row(
            name=line.name,
            label=below(line.name, line.above[-1].name if line.above else ""),
            level=min(len(line.above), DEEPEST),
            groups=len(line.names) if line.is_folder else 0,
            is_open=table is not None and table.is_open(line),
            stats=line.stats,
            diagnosis=of_folder(line.name, line.names, bad) if line.is_folder else found[line.name],
            workers=workers_in_words(
                {each.client.id: each for name in line.names for each in workers.get(name, ())}.values()
            ),
            shares=shares_of(line.stats.counts),
            oldest_ready_at_ms=oldest_at_ms(line.stats, now_ms),
            drained=words.drain(line.stats.counts.to_do, line.stats.in_per_minute, line.stats.out_per_minute),
            spark=spark,
        )
        for line, spark in zip(lines, sparks_of(lines), strict=True)
    ]


def sparks_of(lines: Sequence[Line]) -> list[str]:
    """Return the sparkline of each group or folder: its number of tasks within the last half hour."""
    numbers = backlogs([(line.names, line.stats.counts.tasks) for line in lines], SPARK_MINUTES)
    return [points_of(each) for each in numbers]


def oldest_at_ms(stats: Stats, now_ms: int) -> int | None:
    """Return the time since which the oldest ready task has been ready; None when no task is."""
    return None if stats.oldest_ready_ms is None else now_ms - stats.oldest_ready_ms


def workers_in_words(named: Collection[Seen]) -> str:
    """Return how many workers live, and how many are lost; a dash for none."""
    lost = sum(each.is_lost for each in named)
    live = len(named) - lost
    return ", ".join([number(live)] * bool(live) + [f"{number(lost)} lost"] * bool(lost)) or "—"


ROWS = 25  # A page: browsers get slow with many more.


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A group, or a folder of groups with the numbers of all below it."""

    name: str  # Or the folder's prefix.
    is_folder: bool
    names: Sequence[str]  # The groups that the numbers include.
    stats: Stats
    nodes: Sequence[Node]  # The contents of a folder that may be opened.
    above: Above  # The enclosing folders, the outermost first.


Above: TypeAlias = tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of the table. It begins with the enclosing folders of its first line."""

    lines: Sequence[Line]
    number: int
    has_more: bool


class Table:
    """The groups in the requested order and view. `stats` has all groups."""

    def __init__(self, stats: Mapping[str, Stats], wanted: Arrangement, troubled: Iterable[str] = ()) -> None:
        self._stats = stats
        self._wanted = wanted
        self._troubled = {name: -place for place, name in enumerate(troubled)}
        self._opened = with_all_above(wanted.opened)
        self.names = matching(stats, wanted.searched)

    def page(self) -> Page:
        """Return the requested page, or the last one when there are fewer."""
        nodes = tree_of(self.names) if self._wanted.view is View.TREE else self.names
        lines = list(self._lines(nodes, ()))
        number = max(1, min(self._wanted.page, -(-len(lines) // ROWS)))
        shown = lines[(number - 1) * ROWS : number * ROWS]
        above = shown[0].above if shown else ()
        return Page(lines=[*above, *shown], number=number, has_more=len(lines) > number * ROWS)

    def is_open(self, line: Line) -> bool:
        """Return whether the contents of the folder are shown; a search opens every folder."""
        return line.is_folder and (bool(self._wanted.searched) or line.name in self._opened)

    def _lines(self, nodes: Sequence[Node], above: Above) -> Iterator[Line]:
        """Yield the sorted lines of a level, each open folder with its contents; equal ones by name, upwards."""
        order, is_downwards = self._wanted.order, self._wanted.is_downwards
        lines = [
            folder_line(node.prefix, node.names, self._stats, nodes=node.nodes, above=above)
            if isinstance(node, Folder)
            else group_line(node, self._stats, above=above)
            for node in nodes
        ]
        lines.sort(key=lambda line: line.name, reverse=is_downwards and order is Order.NAME)
        if order is Order.TROUBLE:
            lines.sort(key=self._trouble, reverse=True)
        elif order is not Order.NAME:
            lines.sort(key=lambda line: _rank(line.stats, order), reverse=is_downwards)
        for line in lines:
            yield line
            if self.is_open(line):
                yield from self._lines(line.nodes, (*above, line))

    def _trouble(self, line: Line) -> tuple[int, int]:
        worst = max(self._troubled.get(name, -len(self._troubled)) for name in line.names)
        return worst, line.stats.counts.ready


def group_line(name: str, stats: Mapping[str, Stats], *, above: Above = ()) -> Line:
    return Line(name=name, is_folder=False, names=(name,), stats=stats[name], nodes=(), above=above)


def folder_line(
    prefix: str, names: Sequence[str], stats: Mapping[str, Stats], *, nodes: Sequence[Node] = (), above: Above = ()
) -> Line:
    together = sum_of([stats[name] for name in names])
    return Line(name=prefix, is_folder=True, names=names, stats=together, nodes=nodes, above=above)


def matching(names: Iterable[str], searched: str) -> list[str]:
    """Return the names that contain the searched text, ignoring case."""
    return [name for name in names if searched.casefold() in name.casefold()]


def with_all_above(prefixes: Iterable[str]) -> set[str]:
    """Return the prefixes with all shorter ones: a folder stays open when a new one encloses it."""
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


def points_of(numbers: Sequence[int]) -> str:
    """Return the points of an SVG line, one unit per number, the largest at the top; empty for fewer than two."""
    if len(numbers) < 2:
        return ""
    most = max(*numbers, 1)
    # Short numbers: a page has about six thousand of them.
    heights = (f"{HEIGHT - HEIGHT * value / most:.1f}".removesuffix(".0") for value in numbers)
    return " ".join(f"{place},{height}" for place, height in enumerate(heights))


@require_safe
@page(Action.SEE)
@from_replica
def rates(request: HttpRequest) -> HttpResponse:
    """Return the chart lines of a group, or of all groups, by name; times are in seconds since the Epoch."""
    span = parameters.span_of(request.GET)
    group = parameters.group_of(request.GET) if "name" in request.GET else None
    try:
        with at_most(LIMIT_S, using=Task.objects.db):
            series = series_of_all(span) if group is None else series_of(group, span)
    except TookTooLong:
        return JsonResponse({"detail": "The database took too long."}, status=503)
    return JsonResponse(
        {
            "times": [at_ms // 1_000 for at_ms in series.starts_ms],
            **series.per_minute,
            "backlog": series.backlog,
            **_by_percentile("wait", series.waits),
            **_by_percentile("run", series.runs),
        }
    )


def _by_percentile(name: str, found: list[Percentiles]) -> dict[str, list[int | None]]:
    return {
        f"{name}{percent}": [times[place] if times else None for times in found]
        for place, percent in enumerate(PERCENTILES)
    }
