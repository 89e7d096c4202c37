"""The audit as a file, and the words in which the API and files tell an entry."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from .audited import Wanted, page_of
from .files import Format, guarded
from .models import AuditEntry
from .operations import EVERY_GROUP, GroupScope

PAGE = 1_000  # Entries that are read at once: no old snapshot is held for a slow reader.
COLUMNS = ("id", "at", "by", "action", "group", "selection", "reason", "done", "skipped", "duration", "details")


def file_of(wanted: Wanted, form: Format, scope: GroupScope = EVERY_GROUP) -> Iterator[bytes]:
    """All entries that are meant, in pieces; memory does not grow with their number.

    The first ones are read before this returns, so that what goes wrong is an error answer and not a broken file.
    """
    pieces = _pieces(wanted, WRITERS[form], scope)
    head = ",".join(COLUMNS).encode() + b"\r\n" if form is Format.CSV else b""
    return chain([head + next(pieces)], pieces)


def _pieces(wanted: Wanted, write: Callable[[Sequence[AuditEntry]], str], scope: GroupScope) -> Iterator[bytes]:
    after = None
    while True:
        page = page_of(wanted, after=after, scope=scope, limit=PAGE)
        yield write(page.entries).encode()
        after = page.after
        if after is None:
            return


def _as_csv(entries: Sequence[AuditEntry]) -> str:
    written = io.StringIO()
    rows = csv.writer(written)
    for entry in entries:
        told = words_of(entry) | {"at": entry.at.isoformat(), "details": json.dumps(entry.details, ensure_ascii=False)}
        rows.writerow([guarded(value) if isinstance(value, str) else value for value in told.values()])
    return written.getvalue()


def _as_ndjson(entries: Sequence[AuditEntry]) -> str:
    return "".join(json.dumps(words_of(entry), ensure_ascii=False) + "\n" for entry in entries)


WRITERS = {Format.CSV: _as_csv, Format.NDJSON: _as_ndjson}


def words_of(entry: AuditEntry) -> dict[str, Any]:
    """An entry as the API and files tell it; times in milliseconds, `at` since the Epoch."""
    return {
        "id": entry.id,
        "at": entry.at_ms,
        "by": entry.actor,
        "action": entry.action,
        "group": entry.group,
        "selection": entry.selection,
        "reason": entry.reason,
        "done": entry.done,
        "skipped": entry.skipped,
        "duration": entry.duration_ms,
        "details": entry.details,
    }
