"""Compute due times from a cron expression in a time zone, or from an interval. Pure.

Times are milliseconds since the Epoch. Due times fall on whole seconds.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import count, islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from cronsim.cronsim import FIELD_NAMES, Field

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
RIGHT = (
    "must be five cron fields such as 30 3 * * MON-FRI (or six, with seconds first), a name such as @daily, "
    "or an interval such as every 30s"
)
MOST_STEPS = 50_000  # Of a search for due times, which takes about a second.
FIRST_WIDTH_MS = 60 * SECOND_MS

NO_TIME = timedelta(0)
NO_ZONES = ("localtime", "posixrules", "Factory")  # Files beside those of the zones, which differ between machines.

STEPS_OF_ONE = re.compile(r"(?<!\w)(\w+)-\1/[1-9]\d*")
NAMES_OF_DAYS = re.compile(r"(?<!\w)(SUN|MON|TUE|WED|THU|FRI|SAT)(?=L?\b)")
DAYS_TO_DAYS = re.compile(r"\b([0-7])-([0-7])\b(?!/)")
BY_MONTH = re.compile(r"L-([1-9]|[12][0-9]|30)|([1-9]|[12][0-9]|3[01])W")
SATURDAY = 5
INTERVAL = re.compile(r"every ([1-9][0-9]{0,7}) ?(s|min|h|d)")


class NotATimetable(ValueError):
    """The expression or the zone is invalid. The text says what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """The due times of an expression in a zone. Raises NotATimetable when one of them is invalid."""

    cron: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        zone_of(self.zone)
        if not interval_of(self.cron):
            self._times(0)

    def after(self, at_ms: int) -> int | None:
        """Return the first due time after this one; None when there is none within fifty years."""
        return next(self._rising(at_ms), None)

    def _rising(self, at_ms: int) -> Iterator[int]:
        """Yield the due times after this one, each later than the one before. Raises NotATimetable if there is none."""
        if interval_ms := interval_of(self.cron):
            yield from count((at_ms // interval_ms + 1) * interval_ms, interval_ms)
        times = self._times(at_ms)
        for _ in range(MOST_STEPS):
            if (due_ms := next(times, None)) is None:
                return
            if due_ms > at_ms:
                yield due_ms
                at_ms = due_ms
        raise NotATimetable(f"must have less than {MOST_STEPS} due times between two looks")

    def next(self, at_ms: int, most: int) -> list[int]:
        """Return up to `most` due times after this one."""
        return [*islice(self._rising(at_ms), most)]

    def passed(self, since_ms: int, until_ms: int, most: int) -> list[int]:
        """Return the newest due times from `since_ms` to `until_ms`, both included, at most `most`; oldest first."""
        width_ms = interval_of(self.cron) * most or FIRST_WIDTH_MS
        while True:  # Forwards from ever earlier times.
            first_ms = max(since_ms, until_ms - width_ms)
            times = takewhile(lambda due_ms: due_ms <= until_ms, self._rising(first_ms - 1))
            newest = [*deque(times, maxlen=most)]
            if len(newest) == most or first_ms == since_ms:
                return newest
            width_ms *= 2

    @property
    def in_words(self) -> str:
        """Describe the times, as in "At 03:00 every day"; return the expression when the description is too long."""
        if interval_of(self.cron):
            return self.cron
        times = Times(_expanded(self.cron), datetime.now(UTC))
        words = self.cron if times.by_month else times.explain()
        return words if len(words) <= LONGEST_WORDS else self.cron

    def _times(self, at_ms: int) -> Iterator[int]:
        """Return due times in rising order, one perhaps several times: all that come after this one, and some before.

        CronSim only finds what clocks on the wall show: where they change, it does not always come to an end.
        """
        zone, expression = zone_of(self.zone), _expanded(self.cron)
        shown, again = (_moment(at_ms).astimezone(zone).replace(fold=fold) for fold in (0, 1))
        coming_twice = (shown.utcoffset() or NO_TIME) - (again.utcoffset() or NO_TIME)
        try:
            shows = Times(expression, shown.replace(tzinfo=None) - max(coming_twice, NO_TIME))
        # CronSim raises the last three for some invalid expressions.
        except (CronSimError, AssertionError, TypeError, ValueError):
            raise NotATimetable(_missing_date(self.cron) or f"{RIGHT}{_wrong_field(self.cron)}") from None
        minutes, hours, *others = expression.split()
        is_fixed = len(others) == 3 and not minutes.startswith("*") and not hours.startswith("*")
        return _moments(shows, zone, is_fixed=is_fixed)


class Times(CronSim):
    """The times of an expression, also with 15W, the weekday nearest to the 15th, and L-3, 3 days before the last."""

    def __init__(self, expression: str, at: datetime) -> None:
        *before, day, month, weekday = expression.split()
        terms = day.split(",")
        if not all(terms):
            raise CronSimError("a term is empty")
        self.by_month = [term for term in terms if BY_MONTH.fullmatch(term)]
        plain = [term for term in terms if term not in self.by_month]
        super().__init__(" ".join([*before, ",".join(plain) or "1", month, weekday]), at)
        if not plain:
            self.days = set()

    def match_dom(self, day: date) -> bool:
        return super().match_dom(day) or any(day.day == _day_of(term, day) for term in self.by_month)


def _day_of(term: str, within: date) -> int:
    """Return the day of the month that the term stands for; 0 if this month has none."""
    first_weekday, last = monthrange(within.year, within.month)
    if term.startswith("L-"):
        return max(0, last - int(term.removeprefix("L-")))
    day = int(term.removesuffix("W"))
    weekday = (first_weekday + day - 1) % 7
    if day > last or weekday < SATURDAY:
        return day if day <= last else 0
    nearest = day - 1 if weekday == SATURDAY else day + 1
    return nearest if 1 <= nearest <= last else nearest + (3 if nearest < 1 else -3)


def _moments(shows: Iterable[datetime], zone: ZoneInfo, *, is_fixed: bool) -> Iterator[int]:
    """Yield when the clocks of a zone show these times.

    `is_fixed`: as cron has it for times of a day, those that are left out come when the clocks are changed, and those
    that come twice count once.
    """
    second_comings: deque[int] = deque()
    for shown in shows:
        first_ms, second_ms = (round(shown.replace(tzinfo=zone, fold=fold).timestamp()) * SECOND_MS for fold in (0, 1))
        if first_ms > second_ms:  # It is left out, and Python takes it by the clock before the change, or after it.
            if not is_fixed:
                continue
            first_ms = _change_between(second_ms, first_ms, zone)
        while second_comings and second_comings[0] < first_ms:
            yield second_comings.popleft()
        yield first_ms
        if second_ms > first_ms and not is_fixed:
            second_comings.append(second_ms)
    yield from second_comings


def _change_between(since_ms: int, until_ms: int, zone: ZoneInfo) -> int:
    """Return when the clocks of a zone change: the first second after it."""
    before = _moment(since_ms).astimezone(zone).utcoffset()
    while until_ms - since_ms > SECOND_MS:
        middle_ms = (since_ms + until_ms) // 2
        is_before = _moment(middle_ms).astimezone(zone).utcoffset() == before
        since_ms, until_ms = (middle_ms, until_ms) if is_before else (since_ms, middle_ms)
    return until_ms // SECOND_MS * SECOND_MS


def problems_of(cron: str, zone: str) -> Iterator[Problem]:
    """Yield the errors of an expression and a zone, also for an expression that is never due."""
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
    """Return the milliseconds of `every 30s`; 0 for other expressions. Intervals count from the Epoch in every zone."""
    if not (found := INTERVAL.fullmatch(cron)):
        return 0
    seconds = int(found[1]) * UNITS_S[found[2]]
    return seconds * SECOND_MS if seconds <= LONGEST_INTERVAL_S else 0


@cache
def zone_of(name: str) -> ZoneInfo:
    """Return the zone. Raises NotATimetable for a name that neither the system nor the package tzdata has."""
    try:
        if name in NO_ZONES or name.startswith(("posix/", "right/")):
            raise KeyError(name)
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: the name of a folder.
        raise NotATimetable("must be the name of a time zone such as Europe/Berlin or UTC") from None


def _expanded(cron: str) -> str:
    if len(cron) > LONGEST:
        raise NotATimetable(sentences.at_most(LONGEST, "characters", len(cron)))
    cron = ALIASES.get(cron, STEPS_OF_ONE.sub(r"\1", cron))  # CronSim goes on to the end of the field.
    fields = cron.upper().split()
    if len(fields) not in (5, 6):
        return cron
    *before, day, month, weekday = fields
    weekday = NAMES_OF_DAYS.sub(lambda name: str(Field.DOW.int(name[0])), weekday)
    weekday = DAYS_TO_DAYS.sub(lambda days: _days(int(days[1]), int(days[2])), weekday)
    return " ".join([*before, day.replace("?", "*"), month, weekday.replace("?", "*")])


def _days(first: int, last: int) -> str:
    """Return a range of weekdays, which may go beyond Saturday, as MON-SUN and FRI-MON do."""
    if first <= last:
        return f"{first}-{last}"
    return f"{first}-7" if last == 0 else f"{first}-6,0-{last}"


def _wrong_field(cron: str) -> str:
    """Return which field of an expression is wrong, to be put behind a sentence; empty if it is none alone."""
    fields = _expanded(cron).split()
    if len(fields) not in (5, 6):
        return f"; it has {len(fields)} fields" if len(fields) > 1 else ""
    for field, text, given in zip(list(Field)[-len(fields) :], fields, cron.split(), strict=True):
        plain = [term for term in text.split(",") if not (field is Field.DAY and BY_MONTH.fullmatch(term))]
        try:
            for term in plain:
                field.parse(term)
        except (CronSimError, AssertionError, TypeError, ValueError):
            return f"; the {FIELD_NAMES[field].replace('-', ' ')} {given} is wrong"
    return ""


def _missing_date(cron: str) -> str:
    """Return the error of an invalid expression whose only mistake is a date that no year has; otherwise empty."""
    parts = _expanded(cron).split()
    if len(parts) not in (5, 6):
        return ""
    *_, day, month, _ = cron.split()
    parts[-2] = "1"  # January has all days that any month has.
    with suppress(CronSimError, AssertionError, TypeError, ValueError):
        Field.MONTH.parse(month.upper())
        CronSim(" ".join(parts), datetime.now(UTC))
        return f"must match a date that exists: there is no day {day} in month {month}"
    return ""


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms // SECOND_MS, tz=UTC)
