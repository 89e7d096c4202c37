"""The first page: is anything wrong?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ..attention import Kind, Notice, notices
from ..clients import Seen, seen
from ..counts import Stats, group_stats
from ..models import Task
from ..operations import State
from ..policy import Action
from ..rates import Span
from . import reading
from .commands import command_to_add
from .group_rows import rows_of
from .group_table import Table
from .pages import go_to, is_partial, page
from .reading import Notices, Order, View
from .replica import from_replica
from .tiles import lines_of_tiles, tiles_of, workers_of

NOTICES, MOST_NOTICES = 5, 200
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
    return render(request, "console/_attention.html", _attention(request, group_stats(), seen()))


@require_safe
@page(Action.SEE)
@from_replica
def overview(request: HttpRequest) -> HttpResponse:
    """The whole page; for a script that arranges the groups anew just these."""
    stats = group_stats()
    if is_partial(request):
        return _arranged_anew(request, stats)
    clients, lines = seen(), lines_of_tiles()
    return render(
        request,
        "console/overview.html",
        {
            **_attention(request, stats, clients),
            **_groups(request, stats),
            "tiles": tiles_of(stats, lines),
            "workers": workers_of(clients, lines),
            "command": command_to_add(request, "mail"),
            "span": reading.span_of(request.GET),
            "spans": list(Span),
        },
    )


def _arranged_anew(request: HttpRequest, stats: Mapping[str, Stats]) -> HttpResponse:
    if not stats:  # The page has other words for that.
        return go_to(request, request.get_full_path())
    return render(request, "console/_groups_part.html", _groups(request, stats))


def _groups(request: HttpRequest, stats: Mapping[str, Stats]) -> dict[str, Any]:
    wanted, now_ms = reading.arrangement_of(request.GET), Task.objects.now_ms()
    table = Table(stats, wanted)
    shown = table.page()
    return {
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
        "now_ms": now_ms,
    }


def _attention(request: HttpRequest, stats: Mapping[str, Stats], clients: Sequence[Seen]) -> dict[str, Any]:
    """The worst notices, or all of them, and in a word what trouble there is."""
    found = notices(stats, clients)
    extent = reading.notices_of(request.GET)
    shown = worst(found, NOTICES) if extent is Notices.WORST else found[:MOST_NOTICES]
    numbers = Counter(notice.kind for notice in found)
    return {
        "notices": shown,
        "more": len(found) - len(shown),
        "can_be_fewer": len(shown) > NOTICES,
        "trouble": ", ".join(f"{numbers[kind]} {kind}" for kind in Kind if numbers[kind] and kind is not Kind.RUNNING),
        "now_ms": Task.objects.now_ms(),
    }


def worst(found: Sequence[Notice], most: int) -> list[Notice]:
    """So many of them in their order, and at least one of each kind: many of one kind hide no other."""
    firsts = list({notice.kind: notice for notice in reversed(found)}.values())
    others = [notice for notice in found if notice not in firsts]
    return sorted([*firsts, *others][:most], key=found.index)
