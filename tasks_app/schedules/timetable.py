"""When something is due: an expression of cron in a time zone, or an interval. Pure.

Times are milliseconds since the Epoch. Due times fall on whole seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count, dropwhile, islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from taskstore.types import sentences
from taskstore.types.tasks import Problem

SECOND_MS = 1_000
LONGEST = 200  # Characters of an expression.
LONGEST_WORDS = 80
UNITS_S = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
LONGEST_INTERVAL_S = 366 * 86_400
ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
RIGHT = "must be five cron fields such as 30 3 * * MON-FRI (or six, seconds first), @daily or the like, or every 30s"
# When clocks are put back an hour of the day comes twice, and the wall's time alone does not say which one is meant.
TWICE = timedelta(hours=3)

INTERVAL = re.compile(r"every ([1-9][0-9]{0,7}) ?(s|min|h|d)")


class NotATimetable(ValueError):
    """An expression or a zone makes no sense. The text says what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """Due times, of which there may be no end. Raises NotATimetable when it is made of what makes no sense."""

    cron: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        zone_of(self.zone)
        self._times(datetime.now(UTC), backwards=False)

    def after(self, at_ms: int) -> int | None:
        """The first due time after this one; None: there is none within fifty years."""
        if interval_ms := interval_of(self.cron):
            return (at_ms // interval_ms + 1) * interval_ms
        start = _moment(at_ms)
        return next((due_ms for due_ms in self._times(start, backwards=False) if due_ms > at_ms), None)

    def next(self, at_ms: int, most: int) -> list[int]:
        """So many due times after this one, fewer where there are no more."""
        times: list[int] = []
        while len(times) < most and (due_ms := self.after(at_ms)) is not None:
            times.append(at_ms := due_ms)
        return times

    def passed(self, since_ms: int, until_ms: int, most: int) -> list[int]:
        """The newest due times from `since_ms` to `until_ms`, both included, at most so many; the oldest first."""
        passed = takewhile(lambda due_ms: due_ms >= since_ms, self._until(until_ms))
        return [*islice(passed, most)][::-1]

    @property
    def in_words(self) -> str:
        """At 03:00 every day; the expression itself, where words would be longer than that helps."""
        if interval_of(self.cron):
            return self.cron
        words = CronSim(_expanded(self.cron), datetime.now(UTC)).explain()
        return words if len(words) <= LONGEST_WORDS else self.cron

    def _until(self, until_ms: int) -> Iterator[int]:
        """The due times, the newest first."""
        if interval_ms := interval_of(self.cron):
            return count(until_ms // interval_ms * interval_ms, -interval_ms)
        times = self._times(_moment(until_ms) + TWICE, backwards=True)
        return dropwhile(lambda due_ms: due_ms > until_ms, times)

    def _times(self, start: datetime, *, backwards: bool) -> Iterator[int]:
        if interval_of(self.cron):
            return iter(())
        try:
            times = CronSim(_expanded(self.cron), start.astimezone(zone_of(self.zone)), reverse=backwards)
        # The last three are what it raises on some nonsense.
        except (CronSimError, AssertionError, TypeError, ValueError) as problem:
            raise NotATimetable(f"{RIGHT}: {problem}" if isinstance(problem, CronSimError) else RIGHT) from None
        return (round(time.timestamp()) * SECOND_MS for time in times)


def problems_of(cron: str, zone: str) -> Iterator[Problem]:
    """What is wrong with an expression and a zone, also that nothing ever comes due."""
    try:
        zone_of(zone)
    except NotATimetable as problem:
        yield "zone", str(problem)
        zone = "UTC"
    try:
        if Timetable(cron=cron, zone=zone).after(0) is None:
            yield "cron", "must have a due time within the next fifty years"
    except NotATimetable as problem:
        yield "cron", str(problem)


def interval_of(cron: str) -> int:
    """The milliseconds of `every 30s`; 0 for what is no interval. It counts from the Epoch on, in every zone."""
    if not (found := INTERVAL.fullmatch(cron)):
        return 0
    seconds = int(found[1]) * UNITS_S[found[2]]
    return seconds * SECOND_MS if seconds <= LONGEST_INTERVAL_S else 0


@cache
def zone_of(name: str) -> ZoneInfo:
    """Raises NotATimetable for a name that the system and the package tzdata do not have."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # An OSError: the name of a folder.
        raise NotATimetable("must be the name of a time zone such as Europe/Berlin or UTC") from None


def _expanded(cron: str) -> str:
    if len(cron) > LONGEST:
        raise NotATimetable(sentences.at_most(LONGEST, "characters", len(cron)))
    return ALIASES.get(cron, cron)


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms // SECOND_MS, tz=UTC)
