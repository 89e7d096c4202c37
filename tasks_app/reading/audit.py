"""The audit log: its entries, filters, and export."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Self

import msgspec
from django.db.models import QuerySet

from taskstore.errors import InvalidInput, refuse
from taskstore.types import history
from taskstore.types.history import AUDIT_LENGTH
from taskstore.types.scalars import GROUP_LENGTH, INT64_MAX, LATEST_MS
from taskstore.types.sentences import text
from taskstore.types.tasks import Problem

from ..core.operations import EVERY_GROUP, GroupScope
from ..database.time_limits import TookTooLong, at_most
from ..managers import in_groups_of
from ..models import AuditEntry, Task
from .exporting import Format, csv_line, guarded
from .importing import BYTE_ORDER_MARK
from .pages import PAGE, Cursor, beyond
from .search.grammar import time_ms

LIMIT_S = 5.0  # A rare text is searched for in every entry.
ENTRIES_FOR_SUGGESTIONS = 1_000

NEWEST_FIRST = ("-at", "-id")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

FIELDS = ("by", "action", "group", "since", "until", "reason")
NO_TIME = "must be now-1h (with ms, s, min, h, d or w), now, or a UTC time such as 2026-01-31T12:00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A filter: entries must match every field that is not empty.

    `by` and `action` match exactly, `group` is a name or a prefix with a star, `reason` is a part of the text.
    """

    by: str = ""
    action: str = ""
    group: str = ""
    since: datetime | None = None
    until: datetime | None = None
    reason: str = ""

    @classmethod
    def read(cls, asked: Mapping[str, str]) -> Self:
        """Parse the parameters of a query. Raises InvalidInput that names every wrong field."""
        given = {name: asked.get(name, "") for name in FIELDS}
        now_ms = Task.objects.now_ms()
        times = {name: _moment(given[name], now_ms) for name in ("since", "until") if given[name].strip()}
        problems: list[Problem] = [
            problem for name in ("by", "action", "reason") for problem in text(name, given[name], AUDIT_LENGTH)
        ]
        problems += text("group", given["group"], GROUP_LENGTH + 1)
        problems += [(name, NO_TIME) for name, time in times.items() if time is None]
        refuse(problems)
        return cls(by=given["by"], action=given["action"], group=given["group"], reason=given["reason"], **times)

    def entries(self, scope: GroupScope = EVERY_GROUP) -> QuerySet[AuditEntry]:
        """Return the entries, newest first. A limited scope hides entries about several groups or none."""
        exact = {"actor": self.by, "action": self.action, "at__gte": self.since, "at__lt": self.until}
        entries = AuditEntry.objects.filter(
            in_groups_of(scope), **{name: value for name, value in exact.items() if value}
        )
        if self.group:
            entries = entries.filter(in_groups_of(GroupScope((self.group,))))
        if self.reason:
            entries = entries.filter(reason__icontains=self.reason)
        return entries.order_by(*NEWEST_FIRST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some entries in order, and the cursor of the next page; None when there is no next page."""

    entries: Sequence[AuditEntry]
    after: Cursor | None


def cursor(after: str | None) -> Cursor | None:
    """Return the cursor of a link, whose time is in microseconds; None without one. Raises InvalidInput."""
    return Cursor.read(after, least=0, most=LATEST_MS * 1_000)


def page_of(wanted: Wanted, *, after: Cursor | None = None, scope: GroupScope = EVERY_GROUP, limit: int = PAGE) -> Page:
    """Return at most `limit` entries that follow `after`. Raises InvalidInput when that takes over five seconds."""
    entries = beyond(wanted.entries(scope), NEWEST_FIRST, after, EPOCH + after.at * MICROSECOND if after else None)
    try:
        with at_most(LIMIT_S, using=entries.db):
            found = list(entries[: limit + 1])
    except TookTooLong:
        raise InvalidInput(
            {"reason": ["takes too long to search: name a person, an action, a group or a time too"]}
        ) from None
    last = found[limit - 1] if len(found) > limit else None
    return Page(entries=found[:limit], after=Cursor((last.at - EPOCH) // MICROSECOND, last.id) if last else None)


def entry_of(entry_id: int) -> AuditEntry | None:
    """Return an entry; None when it does not exist or has expired."""
    return AuditEntry.objects.filter(id=entry_id).first() if entry_id <= INT64_MAX else None


def recently() -> tuple[list[str], list[str]]:
    """Return recent actors and actions, as suggestions for a filter."""
    seen = list(AuditEntry.objects.order_by(*NEWEST_FIRST).values_list("actor", "action")[:ENTRIES_FOR_SUGGESTIONS])
    return sorted({actor for actor, _ in seen}), sorted({action for _, action in seen})


def _moment(text: str, now_ms: int) -> datetime | None:
    at_ms = time_ms(text.strip(), now_ms)
    return EPOCH + timedelta(milliseconds=at_ms) if at_ms is not None and 0 <= at_ms <= LATEST_MS else None


READ_AT_ONCE = 1_000  # Entries of one read: a slow reader must not hold an old snapshot open.
COLUMNS = history.AuditEntry.__struct_encode_fields__


def file_of(wanted: Wanted, form: Format, scope: GroupScope = EVERY_GROUP) -> Iterator[bytes]:
    """Return all matching entries as a file, in pieces; memory does not grow with their number.

    Reads the first entries before it returns, so that a failure becomes an error answer and not a broken file.
    """
    pieces = _pieces(wanted, WRITERS[form], scope)
    head = BYTE_ORDER_MARK + csv_line(COLUMNS) if form is Format.CSV else b""
    return chain([head + next(pieces)], pieces)


def _pieces(wanted: Wanted, write: Callable[[Sequence[AuditEntry]], str], scope: GroupScope) -> Iterator[bytes]:
    after = None
    while True:
        page = page_of(wanted, after=after, scope=scope, limit=READ_AT_ONCE)
        yield write(page.entries).encode()
        after = page.after
        if after is None:
            return


def _as_csv(entries: Sequence[AuditEntry]) -> str:
    written = io.StringIO()
    rows = csv.writer(written)
    for entry in entries:
        row = msgspec.to_builtins(as_answer(entry))
        row |= {"at": entry.at.isoformat(), "details": json.dumps(entry.details, ensure_ascii=False)}
        rows.writerow([guarded(value) if isinstance(value, str) else value for value in row.values()])
    return written.getvalue()


def _as_ndjson(entries: Sequence[AuditEntry]) -> str:
    return "".join(json.dumps(msgspec.to_builtins(as_answer(entry)), ensure_ascii=False) + "\n" for entry in entries)


WRITERS = {Format.CSV: _as_csv, Format.NDJSON: _as_ndjson}


def as_answer(entry: AuditEntry) -> history.AuditEntry:
    """Convert an entry to its type in the API and in files."""
    return history.AuditEntry(
        id=entry.id,
        at_ms=entry.at_ms,
        by=entry.actor,
        action=entry.action,
        group=entry.group,
        selection=entry.selection,
        reason=entry.reason,
        done=entry.done,
        skipped=entry.skipped,
        duration_ms=entry.duration_ms,
        details=entry.details,
    )
