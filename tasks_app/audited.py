"""Reading the audit: who changed what, the newest first, page by page, by key, never by offset and never counted.

The console, the API and files of entries take the same filter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from django.db.models import Q, QuerySet

from .errors import InvalidInput
from .managers import in_groups_of
from .models import AuditEntry, Task
from .operations import EVERY_GROUP, GroupScope
from .search.grammar import time_ms
from .time_limits import TookTooLong, at_most
from .validation import GROUP_LENGTH, INT64_MAX, LATEST_MS, Problem, refuse, text

PAGE = 50
LIMIT_S = 5.0  # A text that is rare is looked for in every entry.
LONGEST = 1_000
LOOKED_AT_FOR_SUGGESTIONS = 1_000

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

FIELDS = ("by", "action", "group", "since", "until", "reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
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


NO_PLACE = "a place in the list, as the links on its pages name it"
NO_TIME = "now, now-1h or 2026-01-31T12:00 (UTC); units: ms, s, min, h, d, w"


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
    after: Place | None


def page_of(wanted: Wanted, *, after: Place | None = None, scope: GroupScope = EVERY_GROUP, limit: int = PAGE) -> Page:
    """At most `limit` entries that follow `after`. Raises InvalidInput when they can't be found in five seconds."""
    entries = wanted.entries(scope)
    try:
        with at_most(LIMIT_S, using=entries.db):
            found = list((_beyond(entries, after) if after else entries)[: limit + 1])
    except TookTooLong:
        raise InvalidInput(
            {"reason": ["this takes too long: name a person, an action, a group or a time too"]}
        ) from None
    last = found[limit - 1] if len(found) > limit else None
    return Page(entries=found[:limit], after=Place(at=last.at, id=last.id) if last else None)


def entry_of(entry_id: int) -> AuditEntry | None:
    """One entry; None when there is none, or no longer one."""
    return AuditEntry.objects.filter(id=entry_id).first() if entry_id <= INT64_MAX else None


def recently() -> tuple[list[str], list[str]]:
    """Who did something of late, and what was done: for whoever types into a filter."""
    seen = list(AuditEntry.objects.order_by("-at", "-id").values_list("actor", "action")[:LOOKED_AT_FOR_SUGGESTIONS])
    return sorted({actor for actor, _ in seen}), sorted({action for _, action in seen})


def _beyond(entries: QuerySet[AuditEntry], place: Place) -> QuerySet[AuditEntry]:
    # The first condition bounds the scan of the index, which the second alone would not.
    return entries.filter(Q(at__lte=place.at), Q(at__lt=place.at) | Q(id__lt=place.id))


def _moment(text: str, now_ms: int) -> datetime | None:
    at_ms = time_ms(text.strip(), now_ms)
    return EPOCH + timedelta(milliseconds=at_ms) if at_ms is not None and 0 <= at_ms <= LATEST_MS else None


def _wrong_texts(given: Mapping[str, str]) -> Iterator[Problem]:
    for name in ("by", "action", "reason"):
        yield from text(name, given[name], LONGEST)
    yield from text("group", given["group"], GROUP_LENGTH + 1)
