"""Search over REST, and the parameters of lists."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from django.core.handlers.asgi import ASGIRequest
from django.http.response import HttpResponseBase
from msgspec import UNSET
from rest_framework.request import Request

from taskstore import endpoints
from taskstore.endpoints import Endpoint
from taskstore.errors import InvalidInput
from taskstore.types import sentences
from taskstore.types.scalars import INT64_MAX, INT64_MIN
from taskstore.types.search import SearchPage

from ..core.room import answer_size, fitting
from ..database.room import most_bytes
from ..models import Task
from ..reading.pages import Cursor
from ..reading.search import grammar
from ..reading.search.finding import find
from ..reading.search.grammar import Label
from .answers import pieces_of, response_of
from .base import View, serves
from .errors import ENCODER

INTEGER = re.compile(r"-?[0-9]{1,19}")
SWITCH = {"0": False, "no": False, "false": False, "1": True, "yes": True, "true": True}


def integer(field: str, text: str) -> int:
    """Only ASCII digits: Python would take `1_000` and Arabic digits too."""
    if INTEGER.fullmatch(text) and INT64_MIN <= int(text) <= INT64_MAX:
        return int(text)
    raise InvalidInput({field: [sentences.INT64 + sentences.but_not_text(text)]})


def integers(field: str, text: str) -> list[int]:
    """Integers with commas between them."""
    return [integer(f"{field}[{place}]", part) for place, part in enumerate(text.split(","))]


def switch(field: str, text: str) -> bool:
    try:
        return SWITCH[text.lower()]
    except KeyError:
        raise InvalidInput({field: [sentences.one_of(SWITCH, text)]}) from None


def limit_in(query: Mapping[str, str]) -> int | None:
    """How many at most; None for as many as there are, which is asked for by 0 or not at all."""
    limit = integer("limit", query.get("limit", "0"))
    if limit < 0:
        raise InvalidInput({"limit": [f"must be at least 0, not {limit}; 0 means no limit"]})
    return limit or None


def choice_in(query: Mapping[str, str], name: str, endpoint: Endpoint[Any]) -> str | None:
    """A parameter for which the endpoint lists the values; None when it is absent."""
    choices = endpoint.parameter(name).schema["enum"]
    if name in query and query[name] not in choices:
        raise InvalidInput({name: [sentences.one_of(choices, query[name])]})
    return query.get(name)


def page_size_in(query: Mapping[str, str], endpoint: Endpoint[Any]) -> int:
    """How many a page has at most."""
    limit = endpoint.parameter("limit").schema
    most = limit["maximum"]
    size = integer("limit", query.get("limit", str(limit["default"])))
    if not 1 <= size <= most:
        raise InvalidInput({"limit": [sentences.between(1, most, size)]})
    return size


def refuse_broken_path(request: Request) -> None:
    """Servers replace what is no UTF-8 in a path, and one would read another group than the one that was meant."""
    path = raw.scope.get("raw_path", b"") if isinstance(raw := request._request, ASGIRequest) else b""
    try:
        unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        raise InvalidInput({"name": [sentences.PERCENT_ENCODED]}) from None


def labels_in(request: Request) -> list[Label]:
    """Those that the parameter `label` names, which may come several times."""
    return [grammar.label(text, "label") for text in request.query_params.getlist("label")]


def query_of(request: Request, endpoint: Endpoint[Any]) -> Mapping[str, str]:
    """The parameters of the query. Raises InvalidInput when one is unknown, no UTF-8, or there twice and may not be."""
    known = {each.name: each for each in endpoint.query_parameters}
    try:
        pairs = parse_qsl(request.META["QUERY_STRING"], keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise InvalidInput({"query": [sentences.PERCENT_ENCODED]}) from None
    query = dict(pairs)
    if problems := {name: [sentences.unknown("parameter", known)] for name in query.keys() - known.keys()}:
        raise InvalidInput(problems)
    counted = Counter(name for name, _ in pairs if not known[name].may_repeat)
    if repeated := [name for name, times in counted.items() if times > 1]:
        raise InvalidInput({"query": [f"must give each parameter only once: {', '.join(repeated)}"]})
    return query


class Search(View):
    @serves(endpoints.SEARCH)
    def get(self, request: Request) -> HttpResponseBase:
        asked = query_of(request, endpoints.SEARCH)
        terms, scope = grammar.parse(asked.get("q", "")), self.scope()
        after, limit = Cursor.read(asked.get("after")), page_size_in(asked, endpoints.SEARCH)
        found = find(terms, scope=scope, after=after, limit=limit)
        by_id = {task.id: task for task in Task.objects.read(found.ids, scope)}
        tasks = [by_id[task_id] for task_id in found.ids if task_id in by_id]
        number = fitting(tasks, most_bytes())
        is_truncated = number < len(tasks)
        last = tasks[number - 1] if is_truncated else None
        end = Cursor.of(last) if last else found.after
        rest = SearchPage(
            tasks=(),
            after=str(end) if end else None,
            complete=not found.is_cut_short,
            looked_at=found.looked_at,
            at_ms=found.at_ms,
            truncated=is_truncated or UNSET,
        )
        start, _, after_end = ENCODER.encode(rest).partition(b"[]")
        pieces = pieces_of(start + b"[", tasks[:number], b"]" + after_end)
        return response_of(request, pieces, answer_size(tasks[:number]))
