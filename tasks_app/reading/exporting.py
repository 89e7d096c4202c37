"""Export the tasks of a search as NDJSON, in the API's form, or as CSV for spreadsheets.

Reads and sends a few tasks at a time, so a file may have any length.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import Any

from django.http import HttpRequest, StreamingHttpResponse
from django.utils.http import content_disposition_header
from msgspec.json import Encoder
from msgspec.structs import replace

from taskstore.errors import TooManyReaders
from taskstore.types.tasks import FIELDS, answer_of

from ..core.operations import EVERY_GROUP, GroupScope, TaskRecord
from ..core.room import Room
from ..models import Task, UniqueKey
from ..offload.threads import going_on, let_go, streamed
from .importing import BYTE_ORDER_MARK
from .parts import as_json, base64_parts, is_text, joined, text_parts
from .search.finding import find_all
from .search.grammar import Key, Term

ENCODER = Encoder()
END_OF_LINE = b"\r\n"

UNSAFE_IN_NAME = re.compile(r"[^\w.@+ -]")
LONGEST_NAME = 100

AT_ONCE = 250  # Tasks.
LONG_LISTS = 8  # At once.
FIRST_PIECES = 4  # A list that has no more is not long.
long_lists = Room()

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
    """Return the file. Reads its beginning at once, so that an unreachable database becomes an error answer.

    Raises TooManyReaders.
    """
    at_ms = Task.objects.now_ms()
    response = streamed_long(request, pieces_of(export, at_ms), MEDIA_TYPES[export.format])
    response["Content-Disposition"] = content_disposition_header(True, file_name(export, at_ms)) or "attachment"
    return response


def streamed_long(request: HttpRequest, pieces: Generator[bytes], content_type: str) -> StreamingHttpResponse:
    """Answer with a list that may have any length. Its beginning is read before this returns.

    Raises TooManyReaders when too many long ones are being read: each keeps a connection, perhaps an old state of the
    database, and some memory for as long as its client reads.
    """
    first = list(islice(pieces, FIRST_PIECES))
    place = None
    if len(first) < FIRST_PIECES:
        let_go(Task.objects.db)
    elif (place := long_lists.take(1, LONG_LISTS)) is None:
        pieces.close()  # The error may keep it for longer, and it has a cursor.
        raise TooManyReaders(f"{LONG_LISTS} long lists are being read: try again when one of them is finished")
    return streamed(request, going_on(first, pieces), content_type, place)


def pieces_of(export: Export, at_ms: int) -> Generator[bytes]:
    """Yield the file in pieces; none is empty. States are those at `at_ms`."""
    return joined(_parts(export, at_ms))


def _parts(export: Export, at_ms: int) -> Iterator[bytes]:
    if export.format is Format.CSV:
        yield BYTE_ORDER_MARK + csv_line([*FACTS, *(DATA if export.with_data else ())])
    for tasks in _some_at_a_time(export):
        # A key belongs to the group that the add named, which only the key's row has.
        origins = [task.origin for task in tasks if task.unique]
        groups = dict(UniqueKey.objects.filter(origin__in=origins, ended=0).values_list("origin", "group"))
        for task in Task.objects.with_data(tasks) if export.with_data else tasks:
            if export.format is Format.CSV:
                yield from as_csv(task, at_ms, with_data=export.with_data)
            else:
                group = groups.get(task.origin, task.group)
                yield from as_ndjson(task, "" if group == task.group else group, with_data=export.with_data)
        let_go(Task.objects.db)  # The client may be slow.


def as_ndjson(task: TaskRecord, unique_group: str, *, with_data: bool) -> Iterator[bytes]:
    """The task as a line in the API's form."""
    answer = replace(answer_of(task, with_data=False), unique_group=unique_group)
    if with_data:
        yield from as_json(replace(answer, data_type=task.data_type), task.whole_data)
    else:
        yield ENCODER.encode(answer)
    yield b"\n"


def as_csv(task: TaskRecord, at_ms: int, *, with_data: bool) -> Iterator[bytes]:
    """The task as a line with the columns FACTS and perhaps DATA."""
    row = [_cell(field.name, getattr(task, field.name)) for field in SHOWN]
    row.insert(STATE, Task.of(task).state(at_ms))
    line, end = csv_line(row).removesuffix(END_OF_LINE), csv_line(["", guarded(task.data_type)])
    if not with_data:
        yield line + END_OF_LINE
    elif is_text(task.whole_data):
        yield line + b',"'
        for place, text in enumerate(text_parts(task.whole_data)):
            yield (text if place else guarded(text)).replace('"', '""').encode()
        yield b'",' + end
    else:
        yield line + b",,"
        for place, part in enumerate(base64_parts(task.whole_data)):
            yield part if place else guarded(part.decode()).encode()
        yield end


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


def _some_at_a_time(export: Export) -> Iterator[list[TaskRecord]]:
    """Yield the tasks in portions, perhaps with data that is Apart."""
    for ids in find_all(export.terms, scope=export.scope):
        for start in range(0, len(ids), AT_ONCE):
            some = ids[start : start + AT_ONCE]
            found = {task.id: task for task in Task.objects.read(some, export.scope)}
            yield [found[task_id] for task_id in some if task_id in found]


def _cell(name: str, value: Any) -> object:
    if name.endswith("_ms"):
        moment = datetime.fromtimestamp(value // 1_000, tz=UTC).replace(microsecond=value % 1_000 * 1_000, tzinfo=None)
        return f"{moment.isoformat(timespec='milliseconds')}Z"
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False) if value else ""
    return guarded(value) if isinstance(value, str) else value


def csv_line(cells: Sequence[object]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer).writerow(cells)
    return buffer.getvalue().encode()


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
