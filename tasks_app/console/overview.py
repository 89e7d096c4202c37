"""The overview page: what needs attention, totals, and the groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from taskstore.types.tasks import State

from ..access.policy import Action
from ..alerts.attention import Kind, Notice, notices
from ..core.heartbeats import LOST_MS
from ..models import Task
from ..reading.clients import Seen, seen
from ..reading.counts import stats_of
from ..reading.rates import LEVELS, Span, levels
from ..writer.totals import Part, Summary, names_of, ranked, summary
from . import parameters as reading
from .charts import points_of
from .group_table import ROWS, Page, Table, group_line, rows_of
from .pages import go_to, is_partial, page
from .parameters import Notices, Order, View
from .replica import from_replica
from .snippets import command_to_add
from .words import number

LINE_MINUTES = 30  # The boxes of the lines, in _level.html, are one less wide.
STATES = (State.READY, State.CLAIMED, State.SCHEDULED, State.EXPIRED, State.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """How many tasks are in a state, over all groups, and in how many groups there are any."""

    state: State
    tasks: int
    groups: int
    line: str  # Points of a line; empty: not yet known.


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """How many are heard, and what there is to say of the others."""

    heard: int
    note: str
    line: str


def lines_of_tiles() -> dict[str, str]:
    """The points of how much there was within the last half hour, by LEVELS; empty where that is not yet known."""
    past = levels(LINE_MINUTES)
    return {name: points_of(past.get(name, [])) for name in LEVELS}


def tiles_of(every: Summary, lines: Mapping[str, str]) -> list[Tile]:
    return [
        Tile(state=state, tasks=getattr(every.numbers, state), groups=every.holding[state], line=lines[state])
        for state in STATES
    ]


def workers_of(clients: Iterable[Seen], lines: Mapping[str, str]) -> Workers:
    """Of those that were heard within a day."""
    ages_ms = [each.age_ms for each in clients]
    lost = sum(age_ms >= LOST_MS for age_ms in ages_ms)
    heard = len(ages_ms) - lost
    note = f"{number(lost)} lost" if lost else "all reporting" if heard else "no workers reporting"
    return Workers(heard=heard, note=note, line=lines["workers"])


NOTICES, MOST_NOTICES = 5, 200
MOST_IN_TREE = 10_000  # Groups; of more a tree would take seconds to make, in which everybody waits.
COLUMNS = {
    Order.NAME: "Group",
    Order.READY: "Ready",
    Order.OLDEST: "Oldest ready",
    Order.CLAIMED: "Claimed",
    Order.EXPIRED: "Expired",
    Order.SCHEDULED: "Scheduled",
    Order.FAILED: "Failed",
    Order.IN: "In/min",
    Order.OUT: "Out/min",
}


@require_safe
@page(Action.SEE)
def attention(request: HttpRequest) -> HttpResponse:
    """What needs attention alone, which an open page asks for again and again."""
    return render(request, "console/_attention.html", _attention(request, seen(), Task.objects.now_ms()))


@require_safe
@page(Action.SEE)
@from_replica
def overview(request: HttpRequest) -> HttpResponse:
    """The whole page; for a script that arranges the groups anew just these."""
    every = summary()
    if is_partial(request):
        return _arranged_anew(request, every)
    clients, lines = seen(), lines_of_tiles()
    return render(
        request,
        "console/overview.html",
        {
            **_attention(request, clients, every.at_ms),
            **_groups(request, every),
            "tiles": tiles_of(every, lines),
            "workers": workers_of(clients, lines),
            "command": command_to_add(request, "mail"),
            "span": reading.span_of(request.GET),
            "spans": list(Span),
        },
    )


def _arranged_anew(request: HttpRequest, every: Summary) -> HttpResponse:
    if not every.groups:  # The page has other words for that.
        return go_to(request, request.get_full_path())
    return render(request, "console/_groups_part.html", _groups(request, every))


def _groups(request: HttpRequest, every: Summary) -> dict[str, Any]:
    wanted, now_ms = reading.arrangement_of(request.GET), every.at_ms
    part = Part(searched=wanted.searched)
    found = summary(part).groups if wanted.searched else every.groups
    is_tree = wanted.view is View.TREE and found <= MOST_IN_TREE
    if is_tree:
        table = Table(stats_of(names_of(part, MOST_IN_TREE)), wanted)
        shown = table.page()
    else:
        # The database sorts, and only what is shown is read.
        number = max(1, min(wanted.page, -(-found // ROWS)))
        start = (number - 1) * ROWS
        names = ranked(wanted.order, part, is_downwards=wanted.is_downwards, start=start, limit=ROWS)
        stats = stats_of(names)
        table = Table(stats, wanted)
        shown = Page(lines=[group_line(name, stats) for name in stats], number=number, has_more=found > number * ROWS)
    return {
        "rows": rows_of(shown.lines, table, now_ms),
        "groups": every.groups,
        "found": found,
        "is_too_much_for_tree": wanted.view is View.TREE and not is_tree,
        "most_in_tree": MOST_IN_TREE,
        "wanted": wanted,
        "filter": wanted.searched,
        "order": wanted.order,
        "is_downwards": wanted.is_downwards,
        "columns": COLUMNS.items(),
        "views": list(View),
        "states": list(State),
        "page": shown.number,
        "next_page": shown.number + 1 if shown.has_more else None,
        "now_ms": now_ms,
    }


def _attention(request: HttpRequest, clients: Sequence[Seen], now_ms: int) -> dict[str, Any]:
    """The worst notices, or all of them, and in a word what trouble there is."""
    found = notices(clients)
    extent = reading.notices_of(request.GET)
    shown = worst(found, NOTICES) if extent is Notices.WORST else found[:MOST_NOTICES]
    numbers = Counter(notice.kind for notice in found)
    return {
        "notices": shown,
        "more": len(found) - len(shown),
        "can_be_fewer": len(shown) > NOTICES,
        "trouble": ", ".join(f"{numbers[kind]} {kind}" for kind in Kind if numbers[kind] and kind is not Kind.RUNNING),
        "now_ms": now_ms,
    }


def worst(found: Sequence[Notice], most: int) -> list[Notice]:
    """So many of them in their order, and at least one of each kind: many of one kind hide no other."""
    firsts = list({notice.kind: notice for notice in reversed(found)}.values())
    others = [notice for notice in found if notice not in firsts]
    return sorted([*firsts, *others][:most], key=found.index)
