"""The table of groups: its rows, sorting, filters and charts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from django.http import HttpRequest, HttpResponse, JsonResponse

from taskstore.types.tasks import State
from taskstore.units import number

from ..access.policy import Action
from ..alerts.diagnosis import of_folder, of_groups, of_worst, troubled
from ..alerts.kinds import Diagnosis
from ..database.time_limits import TookTooLong, at_most
from ..models import Task
from ..reading.clients import Seen, by_group
from ..reading.counts import PERCENTILES, Percentiles, Stats, backlogs, series_of, series_of_all, sum_of
from ..writer.totals import Numbers
from . import parameters, words
from .name_tree import Folder, Node, below, prefix_above, tree_of
from .pages import reads
from .parameters import Arrangement, Order, View

WHOLE = 1_000  # The length of a bar.
IN_BARS = tuple(state for state in State if state is not State.FINISHED)
HEIGHT = 20
LIMIT_S = 5.0


def shares_of(counts: Numbers) -> list[tuple[State, int, int]]:
    """Return the segments of a bar, each from and how long, in thousandths of its length."""
    numbers = [getattr(counts, state) for state in IN_BARS]
    total = max(sum(numbers), 1)
    ends = [WHOLE * sum(numbers[: place + 1]) // total for place in range(len(numbers))]
    return [(state, start, end - start) for state, start, end in zip(IN_BARS, [0, *ends], ends, strict=False)]


SPARK_MINUTES = 30  # The view boxes in _group_row.html and flow.js are one less wide.
NONE_KNOWN: Mapping[str, Diagnosis] = {}
DEEPEST = 8  # The greatest indentation.


def rows_of(
    lines: Sequence[Line],
    clients: Sequence[Seen],
    now_ms: int,
    known: Mapping[str, Diagnosis] = NONE_KNOWN,
    table: Table | None = None,
) -> list[dict[str, Any]]:
    """Return the rows of these lines. Those of a table know which folders are open.

    `known`: the worst diagnoses; those of the other groups of the lines are made.
    """
    if not known and any(line.is_folder for line in lines):
        known = of_worst(clients)
    bad = troubled(known)
    unknown = {line.name: line.stats for line in lines if not line.is_folder and line.name not in known}
    found = {**known, **of_groups(unknown, clients)}
    workers = by_group(clients, {name for line in lines for name in line.names})
    numbers = backlogs([(line.names, line.stats.counts.tasks) for line in lines], SPARK_MINUTES)
    rows = []
    for line, backlog in zip(lines, numbers, strict=True):
        stats, oldest_ms = line.stats, line.stats.oldest_ready_ms
        named = {each.client.id: each for name in line.names for each in workers.get(name, ())}
        rows.append(
            {
                "name": line.name,
                "label": below(line.name, line.above[-1].name if line.above else ""),
                "level": min(len(line.above), DEEPEST),
                "groups": len(line.names) if line.is_folder else 0,
                "is_open": table is not None and table.is_open(line),
                "stats": stats,
                "diagnosis": of_folder(line.name, line.names, bad) if line.is_folder else found[line.name],
                "workers": workers_in_words(named.values()),
                "shares": shares_of(stats.counts),
                "oldest_ready_at_ms": None if oldest_ms is None else now_ms - oldest_ms,
                "in": words.rate(stats.in_per_minute),
                "out": words.rate(stats.out_per_minute),
                "drain": words.drain(stats.counts.to_do, stats.in_per_minute, stats.out_per_minute),
                "spark": points_of(backlog),  # Empty: nothing happened.
            }
        )
    return rows


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


@reads(Action.SEE, from_replica=True)
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
