"""What the server takes for a page of the console, when nothing else is asked of it."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from .. import CannotMeasure
from ..figures import Figures, percentile
from ..measuring import Entry
from ..pace import Pace
from ..places import Place
from .visitor import Visitor, visitor_of

THOUSANDTH = 1_000

# A page by what it is called in the report: its path, for the visitor of a store.
PAGES: Mapping[str, Callable[[Visitor], str]] = {
    "overview": lambda visitor: "/console/",
    "attention strip": lambda visitor: "/console/attention",
    "chart, 1 h": lambda visitor: "/console/rates?span=1h",
    "chart, 30 d": lambda visitor: "/console/rates?span=30d",
    "largest group": lambda visitor: _group(visitor),
    "its page 1000": lambda visitor: _group(visitor) + _place_of_page(THOUSANDTH, visitor),
    "its last page": lambda visitor: _group(visitor) + "&before=end",
    "its failed tasks": lambda visitor: _group(visitor) + "&state=failed",
    "its chart, 24 h": lambda visitor: f"/console/rates?span=24h&name={quote(visitor.groups[0])}",
    "failed": lambda visitor: "/console/failed",
    "workers": lambda visitor: "/console/workers",
    "task": lambda visitor: f"/console/task/{_some_id(visitor)}",
    "audit": lambda visitor: "/console/audit",
    "admin: tasks": lambda visitor: "/admin/tasks_app/task/",
    "admin: id": lambda visitor: f"/admin/tasks_app/task/?q={_some_id(visitor)}",
    "search: id": lambda visitor: _search(str(_some_id(visitor))),
    "search: group:x error:timeout": lambda visitor: _search(f'group:"{visitor.groups[1]}" error:timeout'),
    "search: data.user:42": lambda visitor: _search("data.user:42"),
    "search: data:nowhere": lambda visitor: _search("data:nowhere"),
}


def page_times(entry: Entry, place: Place, pace: Pace) -> Figures:
    """How long the page takes to its last byte, again and again."""
    visitor = visitor_of(entry, place)
    path = PAGES[entry.page](visitor)
    visitor.look_at(path)  # What a server does once is not what is asked.
    views = [visitor.look_at(path) for _ in range(pace.views)]
    took_ms = [view.seconds * 1_000 for view in views]
    return {
        "p50_ms": percentile(took_ms, 50),
        "p95_ms": percentile(took_ms, 95),
        "longest_ms": max(took_ms),
        "kb": views[-1].size / 1_000,
    }


def walk(entry: Entry, place: Place, pace: Pace) -> Figures:
    """From page to page of the largest group by its links: whether a task is missing, or shown twice."""
    visitor = visitor_of(entry, place)
    shown: list[int] = []
    took_ms, path = [], _group(visitor)
    for _ in range(pace.steps):
        view = visitor.look_at(path)
        took_ms.append(view.seconds * 1_000)
        shown += _ids_on(view.text)
        path = _next(view.text)
    expected = _first_ids(len(shown), visitor)
    return {
        "tasks": len(shown),
        "missing": len({*expected} - {*shown}),
        "twice": len(shown) - len({*shown}),
        "p50_ms": percentile(took_ms, 50),
        "p95_ms": percentile(took_ms, 95),
    }


def _group(visitor: Visitor) -> str:
    return f"/console/group?name={quote(visitor.groups[0])}"


def _search(query: str) -> str:
    return f"/console/search?q={quote(query)}"


def _some_id(visitor: Visitor) -> int:
    return _first_ids(1, visitor)[0]


def _first_ids(number: int, visitor: Visitor) -> list[int]:
    return [task["id"] for task in _first_tasks(number, visitor)]


def _first_tasks(number: int, visitor: Visitor) -> list[dict[str, Any]]:
    """Of the largest group, as the API lists them."""
    found: list[dict[str, Any]] = visitor.api.get("/group", params={"name": visitor.groups[0], "limit": number}).json()
    return found


def _ids_on(page: str) -> list[int]:
    return [int(number) for number in re.findall(r'name="id" value="(\d+)"', page)]


def _place_of_page(number: int, visitor: Visitor) -> str:
    """By what the API lists before it: to follow so many links takes minutes."""
    page = len(_ids_on(visitor.look_at(_group(visitor)).text))
    last = _first_tasks(page * (number - 1), visitor)[-1]
    return f"&after={last['timespec']}.{last['id']}"


def _next(text: str) -> str:
    """Raises CannotMeasure at the end of the list."""
    found = re.search(r'href="([^"]+)" rel="next"', text)
    if not found:
        raise CannotMeasure("the list has fewer pages than were to be read")
    return html.unescape(found[1])
