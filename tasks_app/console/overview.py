"""The first page: is anything wrong?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ..attention import Kind, notices
from ..clients import LOST_MS, Seen, seen
from ..counts import Counts, Stats, group_stats
from ..models import Task
from ..operations import State
from ..policy import Action
from ..rates import Span, backlogs
from . import reading
from .commands import command_to_add
from .pages import page
from .reading import Order
from .shares import Share, part, shares_of
from .sparks import points_of

NOTICES = 5
SPARK_MINUTES = 30
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
ROWS = 200  # On one page: more than that nobody reads, and browsers get slow.


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A group of the table."""

    name: str
    stats: Stats
    shares: Sequence[Share]
    oldest_ready_at_ms: int | None
    spark: str  # Points of a line; empty: nothing happened.


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """How many tasks are in a state, over all groups, and in how many groups there are any."""

    state: State
    tasks: int
    groups: int
    share: int  # Of all tasks, in thousandths.


@require_safe
@page(Action.SEE)
def attention(request: HttpRequest) -> HttpResponse:
    """What needs attention alone, which an open page asks for again and again."""
    return render(request, "console/_attention.html", _attention(group_stats(), seen()))


@require_safe
@page(Action.SEE)
def overview(request: HttpRequest) -> HttpResponse:
    order, is_downwards = reading.order_of(request.GET)
    searched, number = reading.filter_of(request.GET), reading.page_of(request.GET)
    stats, clients, now_ms = group_stats(), seen(), Task.objects.now_ms()
    found = sorted_groups(matching(stats, searched), stats, order, is_downwards)
    shown = found[(number - 1) * ROWS : number * ROWS]
    sparks = backlogs(shown, SPARK_MINUTES)
    return render(
        request,
        "console/overview.html",
        {
            **_attention(stats, clients),
            "workers": _workers(clients),
            "tiles": tiles_of(numbers.counts for numbers in stats.values()),
            "rows": [_row(name, stats[name], now_ms, sparks.get(name, [])) for name in shown],
            "groups": len(stats),
            "found": len(found),
            "filter": searched,
            "order": order,
            "columns": COLUMNS.items(),
            "states": list(State),
            "is_downwards": is_downwards,
            "page": number,
            "next_page": number + 1 if len(found) > number * ROWS else None,
            "command": command_to_add(request, "mail"),
            "span": reading.span_of(request.GET),
            "spans": list(Span),
        },
    )


def matching(names: Iterable[str], searched: str) -> list[str]:
    """The names that contain what was searched for, in whatever case."""
    return [name for name in names if searched.casefold() in name.casefold()]


def sorted_groups(names: list[str], stats: Mapping[str, Stats], order: Order, is_downwards: bool) -> list[str]:
    """The names by the order; equal ones by name, upwards."""
    if order is Order.NAME:
        return sorted(names, reverse=is_downwards)
    return sorted(sorted(names), key=lambda name: _rank(stats[name], order), reverse=is_downwards)


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


def tiles_of(counts: Iterable[Counts]) -> list[Tile]:
    numbers = list(counts)
    total = sum(group.total for group in numbers)
    states = (State.READY, State.CLAIMED, State.SCHEDULED, State.EXPIRED, State.FAILED)
    return [_tile(state, [getattr(group, state) for group in numbers], total) for state in states]


def _workers(clients: Iterable[Seen]) -> dict[str, int]:
    """How many workers are heard, and how many were within a day and are no longer."""
    ages_ms = [each.age_ms for each in clients]
    lost = sum(age_ms >= LOST_MS for age_ms in ages_ms)
    return {"heard": len(ages_ms) - lost, "lost": lost}


def _attention(stats: Mapping[str, Stats], clients: Sequence[Seen]) -> dict[str, Any]:
    """The worst notices, and in a word what trouble there is."""
    found = notices(stats, clients)
    numbers = Counter(notice.kind for notice in found)
    return {
        "notices": found[:NOTICES],
        "more": max(0, len(found) - NOTICES),
        "trouble": ", ".join(f"{numbers[kind]} {kind}" for kind in Kind if numbers[kind]),
        "now_ms": Task.objects.now_ms(),
    }


def _row(name: str, stats: Stats, now_ms: int, backlog: Sequence[int]) -> Row:
    age_ms = stats.oldest_ready_ms
    return Row(
        name=name,
        stats=stats,
        shares=shares_of(stats.counts),
        oldest_ready_at_ms=None if age_ms is None else now_ms - age_ms,
        spark=points_of(backlog),
    )


def _tile(state: State, tasks_by_group: Sequence[int], total: int) -> Tile:
    tasks = sum(tasks_by_group)
    return Tile(state=state, tasks=tasks, groups=sum(map(bool, tasks_by_group)), share=part(tasks, total))
