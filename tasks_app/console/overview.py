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
from ..rates import Span
from . import reading
from .commands import command_to_add
from .group_rows import rows_of
from .group_table import Table
from .pages import page
from .reading import Order, View
from .shares import part

NOTICES = 5
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
    wanted = reading.arrangement_of(request.GET)
    stats, clients, now_ms = group_stats(), seen(), Task.objects.now_ms()
    table = Table(stats, wanted)
    shown = table.page()
    return render(
        request,
        "console/overview.html",
        {
            **_attention(stats, clients),
            "workers": _workers(clients),
            "tiles": tiles_of(numbers.counts for numbers in stats.values()),
            "rows": rows_of(shown.lines, table, now_ms),
            "groups": len(stats),
            "found": len(table.names),
            "wanted": wanted,
            "filter": wanted.searched,
            "order": wanted.order,
            "is_downwards": wanted.is_downwards,
            "columns": COLUMNS.items(),
            "views": list(View),
            "states": list(State),
            "page": shown.number,
            "next_page": shown.number + 1 if shown.has_more else None,
            "command": command_to_add(request, "mail"),
            "span": reading.span_of(request.GET),
            "spans": list(Span),
        },
    )


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


def _tile(state: State, tasks_by_group: Sequence[int], total: int) -> Tile:
    tasks = sum(tasks_by_group)
    return Tile(state=state, tasks=tasks, groups=sum(map(bool, tasks_by_group)), share=part(tasks, total))
