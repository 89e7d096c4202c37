"""Export the tasks of a search as NDJSON, in the API's form, or as CSV for spreadsheets.

Reads and sends a few tasks at a time, so a file may have any length.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import chain
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.http import content_disposition_header
from msgspec.json import Encoder
from msgspec.structs import replace

from taskstore.types.tasks import FIELDS, answer_of, as_text

from ..core.operations import EVERY_GROUP, GroupScope
from ..managers import READ_AT_ONCE
from ..models import Task, UniqueKey
from .search.finding import find_all
from .search.grammar import Key, Term

ENCODER = Encoder()

UNSAFE_IN_NAME = re.compile(r"[^\w.@+ -]")
LONGEST_NAME = 100

AT_ONCE = 250  # Tasks without large data.

DATA = ("data", "data_base64", "data_type")
SHOWN = [field for field in FIELDS if field.wire and field.name not in DATA]
TITLES = [field.title or field.wire for field in SHOWN]
STATE = TITLES.index("available")  # The column of the state comes before the available time.
FACTS = (*TITLES[:STATE], "state", *TITLES[STATE:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """The tasks that match every term; without data for people who may not see it."""

    terms: Sequence[Term]
    format: Format
    with_data: bool
    scope: GroupScope = EVERY_GROUP


def download(request: HttpRequest, export: Export) -> StreamingHttpResponse:
    """Return the file. Reads its beginning at once, so that an unreachable database becomes an error answer."""
    at_ms = Task.objects.now_ms()
    pieces = pieces_of(export, at_ms)
    response = streamed(request, chain(filter(None, [next(pieces, b"")]), pieces), MEDIA_TYPES[export.format])
    response["Content-Disposition"] = content_disposition_header(True, file_name(export, at_ms)) or "attachment"
    return response


def pieces_of(export: Export, at_ms: int) -> Iterator[bytes]:
    """Yield the file, some tasks at a time; no piece is empty. States are those at `at_ms`."""
    write = {Format.CSV: as_csv, Format.NDJSON: as_ndjson}[export.format]
    beginning = _csv([[*FACTS, *(DATA if export.with_data else ())]]) if export.format is Format.CSV else b""
    for tasks in _some_at_a_time(export):
        yield beginning + write(tasks, at_ms, with_data=export.with_data)
        beginning = b""
    if beginning:
        yield beginning


def as_ndjson(tasks: Sequence[Task], at_ms: int, *, with_data: bool) -> bytes:
    """Write a line for each task, in the API's form."""
    lines = [answer_of(task, with_data=with_data) for task in tasks]
    if origins := [task.origin for task in tasks if task.unique]:
        # A key belongs to the group that the add named, which only the key's row has.
        groups = dict(UniqueKey.objects.filter(origin__in=origins, ended=0).values_list("origin", "group"))
        lines = [
            replace(line, unique_group=group) if (group := groups.get(line.origin, line.group)) != line.group else line
            for line in lines
        ]
    return ENCODER.encode_lines(lines)


def as_csv(tasks: Sequence[Task], at_ms: int, *, with_data: bool) -> bytes:
    """Write a row for each task, with the columns FACTS and perhaps DATA."""
    rows = []
    for task in tasks:
        row = [_cell(field.name, getattr(task, field.name)) for field in SHOWN]
        row.insert(STATE, task.state(at_ms))
        if with_data:
            text, in_base64 = as_text(bytes(task.data))
            row += [guarded(text or ""), guarded(in_base64 or ""), guarded(task.data_type)]
        rows.append(row)
    return _csv(rows)


def file_name(export: Export, at_ms: int) -> str:
    """Return a name with the group, its state and the time: `mail-failed-20261121T140211Z.csv`.

    A search for anything else is called `search`.
    """
    made = datetime.fromtimestamp(at_ms // 1_000, tz=UTC)
    subject = "search" if export.terms else "tasks"
    keys = [term.key for term in export.terms if not term.is_excluded]
    if len(keys) == len(export.terms) and keys in ([Key.GROUP], [Key.GROUP, Key.STATE]):
        subject = "-".join(str(term.value) for term in export.terms)
    subject = UNSAFE_IN_NAME.sub("_", subject)[:LONGEST_NAME]
    return f"{subject}-{made:%Y%m%dT%H%M%SZ}.{export.format}"


def _some_at_a_time(export: Export) -> Iterator[list[Task]]:
    """Yield the tasks in portions, smaller ones where tasks have much data."""
    for ids in find_all(export.terms, scope=export.scope):
        for some in _parts(ids, AT_ONCE):
            tasks = _tasks(Task.objects.filter(payload=0) if export.with_data else Task.objects.defer("data"), some)
            if len(tasks) == len(some) or not export.with_data:
                yield from filter(None, [tasks])
            else:  # Some tasks no longer exist, or are large.
                for few in _parts(some, READ_AT_ONCE):
                    yield from filter(None, [_tasks(Task.objects.get_queryset(), few)])


def _tasks(tasks: QuerySet[Task], ids: Sequence[int]) -> list[Task]:
    found = tasks.in_bulk(ids)
    return [found[task_id] for task_id in ids if task_id in found]


def _parts(ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))


def _cell(name: str, value: Any) -> object:
    if name.endswith("_ms"):
        moment = datetime.fromtimestamp(value // 1_000, tz=UTC).replace(microsecond=value % 1_000 * 1_000, tzinfo=None)
        return f"{moment.isoformat(timespec='milliseconds')}Z"
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False) if value else ""
    return guarded(value) if isinstance(value, str) else value


def _csv(lines: Sequence[Sequence[object]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer).writerows(lines)
    return buffer.getvalue().encode()


def streamed(request: HttpRequest, pieces: Iterator[bytes], content_type: str) -> StreamingHttpResponse:
    """Answer with the pieces, each made on demand. When one fails, the connection breaks."""
    request.body  # noqa: B018 - reading it closes its file, which Django leaves open when an answer fails.
    # The server's event loop must not wait for a piece; Django's test client has no loop.
    is_asynchronous = isinstance(request, ASGIRequest)
    return StreamingHttpResponse(asynchronous(pieces) if is_asynchronous else pieces, content_type=content_type)


async def asynchronous(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces in an event loop; each is made on demand in the thread of the request."""
    next_piece = sync_to_async(lambda: next(pieces, None))
    try:
        while (piece := await next_piece()) is not None:
            yield piece
    except Exception:
        # Django closes the thread's connections only after a complete answer.
        await sync_to_async(connections.close_all)()
        raise


# Characters that start a formula in a spreadsheet, also after ones that it ignores. The last four are = + - @ in full
# width, which some programs treat alike.
FORMULA = re.compile(r"[\s\0-\x1f\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r]")


class Format(StrEnum):
    CSV = "csv"
    NDJSON = "ndjson"


MEDIA_TYPES = {Format.CSV: "text/csv; charset=utf-8", Format.NDJSON: "application/x-ndjson"}


def guarded(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would run as a formula."""
    return f"'{text}" if FORMULA.match(text) else text
