"""Search over REST, and the parameters of lists."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from urllib.parse import parse_qsl, unquote_to_bytes

from django.core.handlers.asgi import ASGIRequest
from rest_framework.request import Request
from rest_framework.response import Response

from taskstore.errors import InvalidInput
from taskstore.types.search import SearchPage

from ..access.policy import Action
from ..core.validation import INT64_MAX, INT64_MIN
from ..models import Task
from ..reading.listing import PAGE, Cursor
from ..reading.search import grammar
from ..reading.search.finding import find
from ..reading.search.grammar import Label
from ..wire.tasks import answer_of
from .base import View
from .schema import endpoint, query

INTEGER = re.compile(r"-?[0-9]{1,19}")
SWITCH = {"0": False, "no": False, "false": False, "1": True, "yes": True, "true": True}


def integer(field: str, text: str) -> int:
    """Only ASCII digits: Python would take `1_000` and Arabic digits too."""
    if INTEGER.fullmatch(text) and INT64_MIN <= int(text) <= INT64_MAX:
        return int(text)
    raise InvalidInput({field: ["an integer of 64 bits"]})


def integers(field: str, text: str) -> list[int]:
    """Integers with commas between them."""
    return [integer(f"{field}[{place}]", part) for place, part in enumerate(text.split(","))]


def switch(field: str, text: str) -> bool:
    try:
        return SWITCH[text.lower()]
    except KeyError:
        raise InvalidInput({field: [f"one of {', '.join(SWITCH)}"]}) from None


def limit_in(query: Mapping[str, str]) -> int | None:
    """How many at most; None for as many as there are, which is asked for by 0 or not at all."""
    limit = integer("limit", query.get("limit", "0"))
    if limit < 0:
        raise InvalidInput({"limit": ["0 for no limit, or how many tasks at most"]})
    return limit or None


def page_size_in(query: Mapping[str, str], most: int) -> int:
    """How many a page has at most."""
    size = integer("limit", query.get("limit", str(PAGE)))
    if not 1 <= size <= most:
        raise InvalidInput({"limit": [f"a whole number from 1 to {most}"]})
    return size


def refuse_broken_path(request: Request) -> None:
    """Servers replace what is no UTF-8 in a path, and one would read another group than the one that was meant."""
    path = raw.scope.get("raw_path", b"") if isinstance(raw := request._request, ASGIRequest) else b""
    try:
        unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        raise InvalidInput({"name": ["percent-encoded UTF-8"]}) from None


def labels_in(request: Request) -> list[Label]:
    """Those that the parameter `label` names, which may come several times."""
    return [grammar.label(text, "label") for text in request.query_params.getlist("label")]


def query_of(request: Request, *known: str, repeated: Container[str] = ()) -> Mapping[str, str]:
    """The parameters of the query. Raises InvalidInput when one is unknown, no UTF-8, or there twice and may not be."""
    try:
        pairs = parse_qsl(request.META["QUERY_STRING"], keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise InvalidInput({"query": ["percent-encoded UTF-8"]}) from None
    query = dict(pairs)
    problems = {name: ["no such parameter" + _known(known)] for name in query.keys() - set(known)}
    if problems:
        raise InvalidInput(problems)
    once = [name for name, _ in pairs if name not in repeated]
    if len(set(once)) < len(once):
        raise InvalidInput({"query": ["each parameter once"]})
    return query


def _known(names: tuple[str, ...]) -> str:
    return f"; there are {', '.join(names)}" if names else ""


MOST = 200

ASKED = [
    query("q", {"type": "string", "maxLength": grammar.LONGEST}, "Terms; a task is found when it meets every one."),
    query("after", {"type": "string"}, "Where the page before ended."),
    query("limit", {"type": "integer", "minimum": 1, "maximum": MOST, "default": PAGE}, "How many at most."),
]


class Search(View):
    """Tasks by what they are: `group:mail state:failed error:"timed out" -owner:17 data.user:42 age:>1h`.

    Within one group the longest available come first, else the newest. After a second the answer is what was found
    by then: `complete` is false, and `after` goes on from there.
    """

    needs = Action.SEE_PAYLOADS

    @endpoint("search", answer=SearchPage, parameters=ASKED)
    def get(self, request: Request) -> Response:
        asked = query_of(request, "q", "after", "limit")
        terms, scope = grammar.parse(asked.get("q", "")), self.scope()
        after = Cursor.read(asked["after"], "after") if "after" in asked else None
        found = find(terms, scope=scope, after=after, limit=page_size_in(asked, MOST))
        tasks = [task for task in Task.objects.find(found.ids, scope) if task is not None]
        return Response(
            SearchPage(
                tasks=tuple(map(answer_of, tasks)),
                after=str(found.after) if found.after else None,
                complete=not found.is_cut_short,
                looked_at=found.looked_at,
                at_ms=found.at_ms,
            )
        )
