"""The first page: is anything wrong?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ..counts import Counts, group_counts
from ..operations import State
from ..pauses import paused_groups
from ..policy import Action
from . import reading
from .commands import command_to_add
from .pages import page
from .reading import Order
from .shares import Share, part, shares_of

ROWS = 200  # On one page: more than that nobody reads, and browsers get slow.


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A group of the table."""

    name: str
    counts: Counts
    shares: Sequence[Share]
    is_paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """How many tasks are in a state, over all groups, and in how many groups there are any."""

    state: State
    tasks: int
    groups: int
    share: int  # Of all tasks, in thousandths.


@require_safe
@page(Action.SEE)
def overview(request: HttpRequest) -> HttpResponse:
    order, is_downwards = reading.order_of(request.GET)
    searched, number = reading.filter_of(request.GET), reading.page_of(request.GET)
    counts = group_counts()
    found = sorted_groups(matching(counts, searched), counts, order, is_downwards)
    shown = found[(number - 1) * ROWS : number * ROWS]
    return render(
        request,
        "console/overview.html",
        {
            "tiles": tiles_of(counts.values()),
            "rows": _rows(shown, counts),
            "groups": len(counts),
            "found": len(found),
            "filter": searched,
            "order": order,
            "orders": list(Order),
            "is_downwards": is_downwards,
            "page": number,
            "next_page": number + 1 if len(found) > number * ROWS else None,
            "states": tuple(Order)[1:],
            "command": command_to_add(request, "mail"),
        },
    )


def matching(names: Iterable[str], searched: str) -> list[str]:
    """The names that contain what was searched for, in whatever case."""
    return [name for name in names if searched.casefold() in name.casefold()]


def sorted_groups(names: list[str], counts: dict[str, Counts], order: Order, is_downwards: bool) -> list[str]:
    """The names by the order; equal ones by name, upwards."""
    if order is Order.NAME:
        return sorted(names, reverse=is_downwards)
    return sorted(sorted(names), key=lambda name: getattr(counts[name], order), reverse=is_downwards)


def tiles_of(counts: Iterable[Counts]) -> list[Tile]:
    numbers = list(counts)
    total = sum(group.total for group in numbers)
    states = (State.READY, State.CLAIMED, State.SCHEDULED, State.EXPIRED, State.FAILED)
    return [_tile(state, [getattr(group, state) for group in numbers], total) for state in states]


def _rows(names: Iterable[str], counts: Mapping[str, Counts]) -> list[Row]:
    paused = paused_groups()
    return [
        Row(name=name, counts=counts[name], shares=shares_of(counts[name]), is_paused=name in paused) for name in names
    ]


def _tile(state: State, tasks_by_group: Sequence[int], total: int) -> Tile:
    tasks = sum(tasks_by_group)
    return Tile(state=state, tasks=tasks, groups=sum(map(bool, tasks_by_group)), share=part(tasks, total))
