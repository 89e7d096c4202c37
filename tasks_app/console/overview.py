"""The overview page: what needs attention, totals, and the groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from taskstore.errors import InvalidInput
from taskstore.types.tasks import State
from taskstore.types.texts import visible
from taskstore.units import number

from ..access.policy import Action, may
from ..alerts.diagnosis import elsewhere, of_worst, troubled
from ..alerts.kinds import Diagnosis, Kind, Link
from ..models import Task
from ..reading.clients import Seen, seen
from ..reading.counts import LEVELS, Span, levels, stats_of
from ..writer.totals import Part, Summary, names_of, ranked, summary
from . import links, parameters, words
from .group_table import IN_BARS, ROWS, Page, Table, folder_line, group_line, matching, points_of, rows_of
from .pages import go_to, is_partial, reads, user_of
from .parameters import Arrangement, Notices, Order, View

LINE_MINUTES = 30  # The view boxes in _level.html are one less wide.


def lines_of_tiles() -> dict[str, str]:
    """Return the lines of the last half hour, by LEVELS; empty where there are no numbers yet."""
    past = levels(LINE_MINUTES)
    return {name: points_of(past.get(name, [])) for name in LEVELS}


def workers_of(clients: Iterable[Seen]) -> tuple[int, str]:
    """Return how many of the clients report, and a note about the others."""
    are_lost = [each.is_lost for each in clients]
    lost, heard = sum(are_lost), len(are_lost) - sum(are_lost)
    return heard, f"{number(lost)} lost" if lost else "all reporting" if heard else "no workers reporting"


NOTICES, MOST_NOTICES = 3, 200
MOST_IN_TREE = 10_000  # Groups: building a larger tree would block the server for seconds.
MOST_ASKED = 200  # Groups and folders in one request for live numbers.
COLUMNS = {
    Order.NAME: "Group",
    Order.TROUBLE: "Status",
    Order.READY: "Ready",
    Order.OLDEST: "Oldest ready",
    Order.CLAIMED: "Claimed",
    Order.EXPIRED: "Expired",
    Order.SCHEDULED: "Scheduled",
    Order.RETRYING: "Retrying",
    Order.FAILED: "Failed",
    Order.IN: "In/min",
    Order.OUT: "Out/min",
}


@reads(Action.SEE)
def attention(request: HttpRequest) -> HttpResponse:
    """Render the notices alone; an open page polls them."""
    clients = seen()
    found = _attention(request, clients, of_worst(clients), Task.objects.now_ms())
    return render(request, "tasks_app/_attention.html", found)


@reads(Action.SEE, from_replica=True)
def overview(request: HttpRequest) -> HttpResponse:
    """Show the overview; as a partial, only the groups in the requested arrangement."""
    every, clients = summary(), seen()
    wanted = parameters.arrangement_of(request.GET)
    needs_worst = not is_partial(request) or wanted.order is Order.TROUBLE or wanted.view is View.TREE
    known = of_worst(clients) if needs_worst else {}
    groups = _groups(request, every, clients, known)
    if is_partial(request):
        if not every.groups:  # An empty store has a different page.
            return go_to(request, request.get_full_path())
        return render(request, "tasks_app/_groups_part.html", groups)
    lines = lines_of_tiles()
    return render(
        request,
        "tasks_app/overview.html",
        {
            **_attention(request, clients, known, every.at_ms),
            **groups,
            "tiles": [(each, getattr(every.numbers, each), every.holding[each], lines[each]) for each in IN_BARS],
            "workers": (*workers_of(clients), lines["workers"]),
            "span": parameters.span_of(request.GET),
            "spans": list(Span),
        },
    )


def _groups(
    request: HttpRequest, every: Summary, clients: Sequence[Seen], known: Mapping[str, Diagnosis]
) -> dict[str, Any]:
    wanted, now_ms = parameters.arrangement_of(request.GET), every.at_ms
    part = Part(searched=wanted.searched)
    found = summary(part).groups if wanted.searched else every.groups
    is_tree = wanted.view is View.TREE and found <= MOST_IN_TREE
    if is_tree:
        table = Table(stats_of(names_of(part, MOST_IN_TREE)), wanted, troubled(known))
        shown = table.page()
    else:
        # The database sorts, and only the groups of this page are read.
        number = max(1, min(wanted.page, -(-found // ROWS)))
        stats = stats_of(_names(wanted, part, (number - 1) * ROWS, troubled(known)))
        table = Table(stats, wanted)
        shown = Page(lines=[group_line(name, stats) for name in stats], number=number, has_more=found > number * ROWS)
    return {
        "rows": rows_of(shown.lines, clients, now_ms, known, table),
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


def _names(wanted: Arrangement, part: Part, start: int, worst: Iterable[str]) -> list[str]:
    if wanted.order is not Order.TROUBLE:
        return ranked(wanted.order, part, is_downwards=wanted.is_downwards, start=start, limit=ROWS)
    first = matching(worst, wanted.searched)
    others, shown = replace(part, others=first), first[start : start + ROWS]
    if len(shown) == ROWS:
        return shown
    start = max(0, start - len(first))
    return [*shown, *ranked(Order.READY, others, is_downwards=True, start=start, limit=ROWS - len(shown))]


def _attention(
    request: HttpRequest, clients: Sequence[Seen], known: Mapping[str, Diagnosis], now_ms: int
) -> dict[str, Any]:
    """Return the worst notices, or all of them, and a summary of the problems."""
    found, of_groups = elsewhere(clients), troubled(known).values()
    extent = parameters.notices_of(request.GET)
    shown = worst(found, NOTICES) if extent is Notices.WORST else found[:MOST_NOTICES]
    alarms = Counter(each.kind for each in [*of_groups, *found] for _ in range(each.count) if each.is_alarm)
    return {
        "notices": shown,
        "more": len(found) - len(shown),
        "can_be_fewer": len(shown) > NOTICES,
        "of_groups": list(Counter((each.icon, each.kind) for each in of_groups).items()),
        "trouble": ", ".join(f"{alarms[kind]} {kind}" for kind in Kind if alarms[kind]),
        "now_ms": now_ms,
    }


def worst(found: Sequence[Diagnosis], most: int) -> list[Diagnosis]:
    """Return the first notices, at least one of each kind: many of one kind must not hide the others."""
    firsts = list({notice.kind: notice for notice in reversed(found)}.values())
    others = [notice for notice in found if notice not in firsts]
    return sorted([*firsts, *others][:most], key=found.index)


@reads(Action.SEE, from_replica=True)
def flow(request: HttpRequest) -> HttpResponse:
    """Return the live numbers that static/js/flow.js writes: of the tiles, and of each `group` and `folder` in sight.

    A folder includes the groups that match the filter. Groups and folders without tasks are left out.
    """
    groups, prefixes = parameters.names_of(request.GET, "group"), parameters.prefixes_of(request.GET, "folder")
    if len(groups) + len(prefixes) > MOST_ASKED:
        raise InvalidInput(
            {"group": [f"must name at most {MOST_ASKED} groups and folders, not {len(groups) + len(prefixes)}"]}
        )
    searched = parameters.filter_of(request.GET)
    folders, found = dict[str, list[str]](), set[str]()
    for prefix in prefixes:
        names = names_of(Part(prefix=prefix, searched=searched), MOST_IN_TREE + 1)
        # All folders together hold at most as many groups as a tree may.
        if len(found.union(names)) <= MOST_IN_TREE:
            folders[prefix] = names
            found.update(names)
    stats, clients, lines = stats_of([*groups, *found]), seen(), lines_of_tiles()
    heard, note = workers_of(clients)
    # Some groups may have become empty since they were found.
    left = {prefix: [name for name in names if name in stats] for prefix, names in folders.items()}
    rows = rows_of(
        [
            *(group_line(name, stats) for name in groups if name in stats),
            *(folder_line(prefix, names, stats) for prefix, names in left.items() if names),
        ],
        clients,
        Task.objects.now_ms(),
    )
    return JsonResponse(
        {
            "tiles": {
                "workers": number(heard),
                "workers-note": note,
                **{f"{name}-level": points for name, points in lines.items()},
            },
            "groups": {row["name"]: _cells(row, request) for row in rows if not row["groups"]},
            "folders": {row["name"]: _cells(row, request) for row in rows if row["groups"]},
        }
    )


def _cells(row: Mapping[str, Any], request: HttpRequest) -> dict[str, Any]:
    diagnosis, oldest = row["diagnosis"], row["oldest_ready_at_ms"]
    return {
        **{name: row[name] for name in ("workers", "in", "out", "drain", "spark")},
        "status": {"kind": diagnosis.kind, "what": diagnosis.what, "icon": diagnosis.icon},
        "why": {"text": visible(diagnosis.rest), "advice": _link(diagnosis.advice, request)},
        "oldest": None if oldest is None else words.iso(oldest),
    }


def _link(link: Link | None, request: HttpRequest) -> dict[str, Any] | None:
    if link is None or (link.is_change and not may(user_of(request), Action.OPERATE)):
        return None
    return {"words": link.words, "address": links.address(link), "asks": link.is_change}
