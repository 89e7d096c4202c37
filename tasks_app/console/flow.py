"""How tasks flow through the store, and through the groups and folders in sight, for static/js/flow.js."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from taskstore.errors import InvalidInput

from ..access.policy import Action
from ..models import Task
from ..reading.clients import seen
from ..reading.counts import stats_of
from ..writer.totals import Part, names_of
from . import parameters as reading
from . import words
from .group_table import Line, drained, folder_line, group_line, oldest_at_ms, sparks_of
from .overview import MOST_IN_TREE, lines_of_tiles, workers_of
from .pages import page
from .replica import from_replica

MOST = 200  # Groups and folders that are asked for at once.


@require_safe
@page(Action.SEE)
@from_replica
def flow(request: HttpRequest) -> HttpResponse:
    """What changes in the tiles; the cells of each `group`, and of each `folder` with what the filter finds in it.

    What holds no task any more is left out.
    """
    groups, prefixes = reading.names_of(request.GET, "group"), reading.prefixes_of(request.GET, "folder")
    if len(groups) + len(prefixes) > MOST:
        raise InvalidInput(
            {"group": [f"must name at most {MOST} groups and folders, not {len(groups) + len(prefixes)}"]}
        )
    folders = _folders(prefixes, reading.filter_of(request.GET))
    stats = stats_of([*groups, *{name for names in folders.values() for name in names}])
    # Some may have been emptied since they were found.
    folders = {prefix: [name for name in names if name in stats] for prefix, names in folders.items()}
    return JsonResponse(
        {
            "tiles": _tiles(),
            "groups": _cells([group_line(name, stats) for name in groups if name in stats]),
            "folders": _cells([folder_line(prefix, names, stats) for prefix, names in folders.items() if names]),
        }
    )


def _folders(prefixes: Sequence[str], searched: str) -> dict[str, list[str]]:
    """The names of the groups in each folder that contain what was searched for.

    As many groups together as the table shows as a tree; folders that hold more are left out.
    """
    folders, found = dict[str, list[str]](), set[str]()
    for prefix in prefixes:
        names = names_of(Part(prefix=prefix, searched=searched), MOST_IN_TREE + 1)
        if len(found.union(names)) <= MOST_IN_TREE:
            folders[prefix] = names
            found.update(names)
    return folders


def _tiles() -> dict[str, str]:
    lines = lines_of_tiles()
    workers = workers_of(seen(), lines)
    texts = {"workers": words.number(workers.heard), "workers-note": workers.note}
    return {**texts, **{f"{name}-level": points for name, points in lines.items()}}


def _cells(lines: Sequence[Line]) -> dict[str, dict[str, Any]]:
    now_ms = Task.objects.now_ms()
    return {line.name: _cells_of(line, spark, now_ms) for line, spark in zip(lines, sparks_of(lines), strict=True)}


def _cells_of(line: Line, spark: str, now_ms: int) -> dict[str, Any]:
    oldest = oldest_at_ms(line.stats, now_ms)
    return {
        "oldest": None if oldest is None else words.iso(oldest),
        "in": words.rate(line.stats.in_per_minute),
        "out": words.rate(line.stats.out_per_minute),
        "drain": drained(line.stats),
        "spark": spark,
    }
