"""The audit: its entries, filters, and export."""

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
from django.db.models import Q, QuerySet

from taskstore.errors import InvalidInput, refuse
from taskstore.types import audit as types
from taskstore.types.tasks import Problem

from ..core.operations import EVERY_GROUP, GroupScope
from ..core.validation import GROUP_LENGTH, INT64_MAX, LATEST_MS, text
from ..database.time_limits import TookTooLong, at_most
from ..managers import in_groups_of
from ..models import AuditEntry, Task
from .files import Format, guarded
from .search.grammar import time_ms

PAGE = 50
LIMIT_S = 5.0  # A text that is rare is looked for in every entry.
LONGEST = 1_000
LOOKED_AT_FOR_SUGGESTIONS = 1_000

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

FIELDS = ("by", "action", "group", "since", "until", "reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCursor:
    """Where a page ends: the key of its last entry. As text `<microseconds since the Epoch>.<id>`."""

    at: datetime
    id: int

    def __str__(self) -> str:
        return f"{(self.at - EPOCH) // MICROSECOND}.{self.id}"

    @classmethod
    def read(cls, text: str) -> Self:
        """The place that a link named. Raises InvalidInput about `after` when it names none."""
        numbers = text.split(".")
        if len(numbers) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 20 for part in numbers):
            raise InvalidInput({"after": [NO_PLACE]})
        at_us, entry_id = map(int, numbers)
        if at_us > LATEST_MS * 1_000 or entry_id > INT64_MAX:
            raise InvalidInput({"after": [NO_PLACE]})
        return cls(at=EPOCH + at_us * MICROSECOND, id=entry_id)


NO_PLACE = "must be a position in the list, as in the links of its pages"
NO_TIME = "must be now-1h (with ms, s, min, h, d or w), now, or a UTC time such as 2026-01-31T12:00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which entries are meant: those that meet all that is not empty.

    `by`, `action`: exactly. `group`: a name, or the beginning of names and a star. `reason`: a part of it.
    """

    by: str = ""
    action: str = ""
    group: str = ""
    since: datetime | None = None
    until: datetime | None = None
    reason: str = ""

    @classmethod
    def read(cls, asked: Mapping[str, str]) -> Self:
        """What a query asks for. Raises InvalidInput that names every wrong field."""
        given = {name: asked.get(name, "") for name in FIELDS}
        now_ms = Task.objects.now_ms()
        times = {name: _moment(given[name], now_ms) for name in ("since", "until") if given[name].strip()}
        refuse([*_wrong_texts(given), *((name, NO_TIME) for name, time in times.items() if time is None)])
        return cls(by=given["by"], action=given["action"], group=given["group"], reason=given["reason"], **times)

    def entries(self, scope: GroupScope = EVERY_GROUP) -> QuerySet[AuditEntry]:
        """The entries, the newest first. A scope that allows some groups only hides what is about several, or none."""
        exact = {"actor": self.by, "action": self.action, "at__gte": self.since, "at__lt": self.until}
        entries = AuditEntry.objects.filter(
            in_groups_of(scope), **{name: value for name, value in exact.items() if value}
        )
        if self.group:
            entries = entries.filter(in_groups_of(GroupScope((self.group,))))
        if self.reason:
            entries = entries.filter(reason__icontains=self.reason)
        return entries.order_by("-at", "-id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some entries in order, and the place where the next page begins, None when there is none."""

    entries: Sequence[AuditEntry]
    after: AuditCursor | None


def page_of(
    wanted: Wanted, *, after: AuditCursor | None = None, scope: GroupScope = EVERY_GROUP, limit: int = PAGE
) -> Page:
    """At most `limit` entries that follow `after`. Raises InvalidInput when they can't be found in five seconds."""
    entries = wanted.entries(scope)
    try:
        with at_most(LIMIT_S, using=entries.db):
            found = list((_beyond(entries, after) if after else entries)[: limit + 1])
    except TookTooLong:
        raise InvalidInput(
            {"reason": ["takes too long to search: name a person, an action, a group or a time too"]}
        ) from None
    last = found[limit - 1] if len(found) > limit else None
    return Page(entries=found[:limit], after=AuditCursor(at=last.at, id=last.id) if last else None)


def entry_of(entry_id: int) -> AuditEntry | None:
    """One entry; None when there is none, or no longer one."""
    return AuditEntry.objects.filter(id=entry_id).first() if entry_id <= INT64_MAX else None


def recently() -> tuple[list[str], list[str]]:
    """Who did something of late, and what was done: for whoever types into a filter."""
    seen = list(AuditEntry.objects.order_by("-at", "-id").values_list("actor", "action")[:LOOKED_AT_FOR_SUGGESTIONS])
    return sorted({actor for actor, _ in seen}), sorted({action for _, action in seen})


def _beyond(entries: QuerySet[AuditEntry], place: AuditCursor) -> QuerySet[AuditEntry]:
    # The first condition bounds the scan of the index, which the second alone would not.
    return entries.filter(Q(at__lte=place.at), Q(at__lt=place.at) | Q(id__lt=place.id))


def _moment(text: str, now_ms: int) -> datetime | None:
    at_ms = time_ms(text.strip(), now_ms)
    return EPOCH + timedelta(milliseconds=at_ms) if at_ms is not None and 0 <= at_ms <= LATEST_MS else None


def _wrong_texts(given: Mapping[str, str]) -> Iterator[Problem]:
    for name in ("by", "action", "reason"):
        yield from text(name, given[name], LONGEST)
    yield from text("group", given["group"], GROUP_LENGTH + 1)


READ_AT_ONCE = 1_000  # Entries that are read at once: no old snapshot is held for a slow reader.
COLUMNS = types.AuditEntry.__struct_encode_fields__


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


def as_answer(entry: AuditEntry) -> types.AuditEntry:
    """Return an entry as the API and files tell it."""
    return types.AuditEntry(
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
