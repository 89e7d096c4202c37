"""What a search finds as a file: NDJSON, as the API has tasks, or CSV for spreadsheets.

It is read and sent a few tasks at a time, so it may be of any length.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.http import content_disposition_header
from msgspec.json import Encoder

from taskstore.types.tasks import FIELDS, as_text

from ..core.operations import EVERY_GROUP, GroupScope
from ..managers import READ_AT_ONCE
from ..models import Task
from ..wire.tasks import answer_of
from .files import MEDIA_TYPES, Format, guarded, streamed
from .search.finding import find_all
from .search.grammar import Key, Term

ENCODER = Encoder()

IN_NO_NAME = re.compile(r"[^\w.@+ -]")  # Signs that a file's name had better not have.
LONGEST_NAME = 100

AT_ONCE = 250  # Tasks without large data.

DATA = ("data", "data_base64", "data_type")
SHOWN = [field for field in FIELDS if field.wire and field.name not in DATA]
TITLES = [field.title or field.wire for field in SHOWN]
STATE = TITLES.index("available")  # Before it comes what the task is now.
FACTS = (*TITLES[:STATE], "state", *TITLES[STATE:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """All tasks that meet every term. Without data, where somebody may not see it."""

    terms: Sequence[Term]
    format: Format
    with_data: bool
    scope: GroupScope = EVERY_GROUP


def download(request: HttpRequest, export: Export) -> StreamingHttpResponse:
    """The file. Its beginning is read at once, so that a database which can't be reached is an error answer."""
    at_ms = Task.objects.now_ms()
    pieces = pieces_of(export, at_ms)
    response = streamed(request, chain(filter(None, [next(pieces, b"")]), pieces), MEDIA_TYPES[export.format])
    response["Content-Disposition"] = content_disposition_header(True, file_name(export, at_ms)) or "attachment"
    return response


def pieces_of(export: Export, at_ms: int) -> Iterator[bytes]:
    """The file, some tasks at a time; none of the pieces is empty. States are those at `at_ms`."""
    write = {Format.CSV: as_csv, Format.NDJSON: as_ndjson}[export.format]
    beginning = _csv([[*FACTS, *(DATA if export.with_data else ())]]) if export.format is Format.CSV else b""
    for tasks in _some_at_a_time(export):
        yield beginning + write(tasks, at_ms, with_data=export.with_data)
        beginning = b""
    if beginning:
        yield beginning


def as_ndjson(tasks: Sequence[Task], at_ms: int, *, with_data: bool) -> bytes:
    """A line for each task, as the API has them."""
    return ENCODER.encode_lines([answer_of(task, with_data=with_data) for task in tasks])


def as_csv(tasks: Sequence[Task], at_ms: int, *, with_data: bool) -> bytes:
    return _csv([[*_facts(task, at_ms), *(_data(task) if with_data else ())] for task in tasks])


def file_name(export: Export, at_ms: int) -> str:
    """What it holds, and when it was made: `mail-failed-20261121T140211Z.csv`."""
    made = datetime.fromtimestamp(at_ms // 1_000, tz=UTC)
    subject = IN_NO_NAME.sub("_", _subject(export.terms))[:LONGEST_NAME]
    return f"{subject}-{made:%Y%m%dT%H%M%SZ}.{export.format}"


def _some_at_a_time(export: Export) -> Iterator[list[Task]]:
    """The tasks that there are; of those with much data only a few at once."""
    for ids in find_all(export.terms, scope=export.scope):
        for some in _parts(ids, AT_ONCE):
            tasks = _tasks(Task.objects.filter(payload=0) if export.with_data else Task.objects.defer("data"), some)
            if len(tasks) == len(some) or not export.with_data:
                yield from filter(None, [tasks])
            else:  # Some are gone, or large.
                for few in _parts(some, READ_AT_ONCE):
                    yield from filter(None, [_tasks(Task.objects.get_queryset(), few)])


def _tasks(tasks: QuerySet[Task], ids: Sequence[int]) -> list[Task]:
    found = tasks.in_bulk(ids)
    return [found[task_id] for task_id in ids if task_id in found]


def _parts(ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))


def _facts(task: Task, at_ms: int) -> list[object]:
    facts = [_cell(field.name, getattr(task, field.name)) for field in SHOWN]
    return [*facts[:STATE], task.state(at_ms), *facts[STATE:]]


def _cell(name: str, value: Any) -> object:
    if name.endswith("_ms"):
        return _moment(value)
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False) if value else ""
    return guarded(value) if isinstance(value, str) else value


def _data(task: Task) -> list[str]:
    text, in_base64 = as_text(bytes(task.data))
    return [guarded(text or ""), guarded(in_base64 or ""), guarded(task.data_type)]


def _moment(at_ms: int) -> str:
    moment = datetime.fromtimestamp(at_ms // 1_000, tz=UTC).replace(microsecond=at_ms % 1_000 * 1_000, tzinfo=None)
    return f"{moment.isoformat(timespec='milliseconds')}Z"


def _csv(lines: Sequence[Sequence[object]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer).writerows(lines)
    return buffer.getvalue().encode()


def _subject(terms: Sequence[Term]) -> str:
    """The group and its state, where nothing else was asked for."""
    keys = [term.key for term in terms if not term.is_excluded]
    if len(keys) == len(terms) and keys in ([Key.GROUP], [Key.GROUP, Key.STATE]):
        return "-".join(str(term.value) for term in terms)
    return "search" if terms else "tasks"
