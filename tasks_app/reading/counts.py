"""The number of tasks in each group by state, and their flow in and out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from django.db.models import F, QuerySet, Sum
from msgspec import Struct

from taskstore.types.groups import GroupStats
from taskstore.types.limits import GroupLimit
from taskstore.types.tasks import holds_results

from ..control.limits import uses_of
from ..control.pauses import paused_groups
from ..core.operations import EVERY_GROUP, GroupScope
from ..core.tally import counter_in, least_of
from ..models import Level, Rate, Task
from ..writer import totals
from ..writer.totals import Counted, Numbers


class Stats(Struct, frozen=True, kw_only=True, gc=False):  # Of very many groups: the collector would pass them all.
    """A group in numbers."""

    counts: Numbers
    oldest_ready_ms: int | None  # How long the oldest ready task has been ready; None: no task is ready.
    in_per_minute: float  # Tasks that entered and left the group. Claims, renewals and edits count as neither.
    out_per_minute: float
    is_paused: bool
    limit: GroupLimit | None = None

    def as_answer(self, group: str) -> GroupStats:
        """Convert the numbers to their type in the API."""
        # Read once, because there may be very many groups.
        _, tasks, leases, errors, finished, retrying, failed, claimed, later, _ = self.counts
        is_waited_in = not holds_results(group)
        return GroupStats(
            group=group,
            ready=tasks - leases - finished - later if is_waited_in else 0,
            claimed=claimed,
            expired=leases - claimed,
            scheduled=later if is_waited_in else 0,
            failed=errors,
            oldest_ready_ms=self.oldest_ready_ms,
            in_per_minute=round(self.in_per_minute, 1) if self.in_per_minute else 0.0,
            out_per_minute=round(self.out_per_minute, 1) if self.out_per_minute else 0.0,
            paused=self.is_paused,
            retrying=retrying,
            dead=failed,
            finished=finished,
            limit=self.limit,
        )


def group_counts(scope: GroupScope = EVERY_GROUP) -> dict[str, Numbers]:
    """Return the counts of every group that has tasks, sorted by name. Reads kept totals and counts no table."""
    return {numbers.group: numbers for numbers in totals.numbers(scope)}


def counts_of(group: str) -> Numbers:
    """Return the counts of one group; zeros when it does not exist."""
    return totals.numbers_of(group) or Numbers(group)


def stats_in_pages(scope: GroupScope = EVERY_GROUP) -> Iterator[dict[str, Stats]]:
    """Yield the stats of all groups that have tasks, sorted by name, in pages: there may be very many groups."""
    yield from map(_with_more, totals.pages(scope))


def stats_of(groups: Sequence[str]) -> dict[str, Stats]:
    """Return the stats of these groups in their order, without empty groups. Reads no other group."""
    found = totals.counted(groups)
    return _with_more([found[group] for group in groups if group in found])


def sum_of(groups: Sequence[Stats]) -> Stats:
    """Add up many groups: the oldest ready task is that of all, and the sum is paused when every group is."""
    return Stats(
        counts=Numbers.sum_of(group.counts for group in groups),
        oldest_ready_ms=max(
            (group.oldest_ready_ms for group in groups if group.oldest_ready_ms is not None), default=None
        ),
        in_per_minute=sum(group.in_per_minute for group in groups),
        out_per_minute=sum(group.out_per_minute for group in groups),
        is_paused=bool(groups) and all(group.is_paused for group in groups),
    )


def _with_more(counted: Sequence[Counted]) -> dict[str, Stats]:
    if not counted:
        return {}
    names = [numbers.group for numbers, *_ in counted]
    paused, limits = paused_groups(min(names), max(names)), uses_of(names)
    return {
        group: Stats(
            counts=numbers,
            oldest_ready_ms=longest_ready_ms,
            in_per_minute=entered,
            out_per_minute=left,
            is_paused=group in paused,
            limit=limits.get(group),
        )
        for group, (numbers, longest_ready_ms, entered, left) in zip(names, counted, strict=True)
    }


MINUTE_MS = 60_000
EVENTS = ("entered", "left", "failures")
LEVELS = (*totals.LEVELS, "workers")
PERCENTILES = (50, 95, 99)


class Span(StrEnum):
    """The time span of a chart."""

    HOUR = "1h"
    SIX_HOURS = "6h"
    DAY = "24h"
    WEEK = "7d"
    MONTH = "30d"


# Minutes of the whole span, and of each step. Rates within a span are never kept in longer intervals than its steps.
MINUTES = {
    Span.HOUR: (60, 1),
    Span.SIX_HOURS: (360, 5),
    Span.DAY: (1_440, 15),
    Span.WEEK: (10_080, 60),
    Span.MONTH: (43_200, 360),
}

T = TypeVar("T")
Percentiles = Sequence[int] | None  # Milliseconds, in the order of PERCENTILES; None: nothing happened.


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The numbers of each step of a span, the oldest first, without the current minute."""

    starts_ms: list[int]
    per_minute: dict[str, list[float]]  # By the names of EVENTS.
    backlog: list[int | None]  # Tasks at the end of the step; None: unknown.
    waits: list[Percentiles]  # How long claimed tasks had been available.
    runs: list[Percentiles]  # How long finished tasks had been leased.


def series_of_all(span: Span) -> Series:
    """Return the series of all groups together: the events alone."""
    window = _Window.of(span)
    step = F("minute") - F("minute") % window.step_minutes
    rows = window.rates().annotate(step=step).values_list("step").annotate(*map(Sum, EVENTS)).order_by()
    sums = {step: of_events for step, *of_events in rows}
    events = {name: {step: each[place] for step, each in sums.items()} for place, name in enumerate(EVENTS)}
    return Series(starts_ms=window.starts_ms, per_minute=window.per_minute(events), backlog=[], waits=[], runs=[])


def series_of(group: str, span: Span) -> Series:
    """Return the series of one group, with its backlog and times."""
    window = _Window.of(span)
    rows = list(window.rates().filter(group=group).order_by("minute"))
    events = {name: Counter[int]() for name in EVENTS}
    times = {name: dict[int, Counter[int]]() for name in ("waits", "runs")}
    tasks: dict[int, int] = {}
    for row in rows:
        step = row.minute - row.minute % window.step_minutes
        tasks[step] = row.tasks
        for name, counts in events.items():
            counts[step] += getattr(row, name)
        for name, histograms in times.items():
            histograms.setdefault(step, Counter()).update(counter_in(getattr(row, name)))
    return Series(
        starts_ms=window.starts_ms,
        per_minute=window.per_minute(events),
        backlog=_carried_on(window.steps, tasks, window.tasks_before(group)),
        waits=[percentiles(times["waits"].get(step, {})) for step in window.steps],
        runs=[percentiles(times["runs"].get(step, {})) for step in window.steps],
    )


def backlogs(sets: Sequence[tuple[Sequence[str], int]], minutes: int) -> list[list[int]]:
    """Return the tasks of each set of groups at the end of each of the last minutes.

    A set comes with its present number of tasks, from which the changes are subtracted. Its result is empty when
    nothing changed.
    """
    end = Task.objects.now_ms() // MINUTE_MS
    steps = range(end - minutes, end)
    changes = totals.changes_of([groups for groups, _ in sets], steps.start)
    found = []
    for changed, (_, tasks) in zip(changes, sets, strict=True):
        numbers: list[int] = []
        if any(minute in steps for minute in changed):
            since = sum(more for minute, more in changed.items() if minute >= steps.stop)
            for step in reversed(steps):
                # The present number was read a moment before the changes.
                numbers.append(max(0, tasks - since))
                since += changed.get(step, 0)
        found.append(numbers[::-1])
    return found


def levels(minutes: int) -> dict[str, list[int]]:
    """Return the LEVELS over all groups at the end of each of the last minutes; empty before two are known.

    A missing minute repeats the one before; minutes before the first one repeat it.
    """
    end = Task.objects.now_ms() // MINUTE_MS
    steps = range(end - minutes, end)
    kept = list(Level.objects.filter(minute__lt=end).order_by("-minute")[: minutes + 1])
    earlier = [level for level in kept if level.minute < steps.start]
    if len(kept) - len(earlier) < 2:
        return {}
    before = earlier[0] if earlier else kept[-1]
    known = {name: {level.minute: getattr(level, name) for level in kept} for name in LEVELS}
    return {name: _carried_on(steps, known[name], getattr(before, name)) for name in LEVELS}


def percentiles(histogram: Mapping[int, int]) -> Percentiles:
    """Return the times that so many percent did not exceed, as the ends of their buckets; None without any time."""
    total = sum(histogram.values())
    if not total:
        return None
    found, below, buckets = [], 0, sorted(histogram)
    place = 0
    for percent in PERCENTILES:
        while below + histogram[buckets[place]] < total * percent / 100:
            below += histogram[buckets[place]]
            place += 1
        found.append(least_of(buckets[place] + 1))
    return found


def _carried_on(steps: Sequence[int], known: Mapping[int, T], before: T) -> list[T]:
    """Repeat the last known number in steps without one."""
    numbers, latest = list[T](), before
    for step in steps:
        latest = known.get(step, latest)
        numbers.append(latest)
    return numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """A span up to the current minute, in minutes since the Epoch."""

    start: int  # The first minute of a step.
    end: int
    step_minutes: int

    @classmethod
    def of(cls, span: Span) -> _Window:
        minutes, step_minutes = MINUTES[span]
        end = Task.objects.now_ms() // MINUTE_MS
        start = end - minutes
        return cls(start=start - start % step_minutes, end=end, step_minutes=step_minutes)

    @property
    def steps(self) -> range:
        return range(self.start, self.end, self.step_minutes)

    @property
    def starts_ms(self) -> list[int]:
        return [step * MINUTE_MS for step in self.steps]

    def rates(self) -> QuerySet[Rate]:
        return Rate.objects.filter(minute__gte=self.start, minute__lt=self.end)

    def tasks_before(self, group: str) -> int | None:
        last = Rate.objects.filter(group=group, minute__lt=self.start).order_by("-minute").first()
        return last.tasks if last else None

    def per_minute(self, events: Mapping[str, Mapping[int, int]]) -> dict[str, list[float]]:
        # The last step may be incomplete.
        minutes = {step: min(self.step_minutes, self.end - step) for step in self.steps}
        return {
            name: [round(counts.get(step, 0) / minutes[step], 2) for step in self.steps]
            for name, counts in events.items()
        }
