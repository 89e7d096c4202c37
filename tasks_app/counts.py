"""How many tasks each group holds in each state, and how they come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

from . import totals
from .models import CountDelta, GroupTotal
from .operations import EVERY_GROUP, GroupScope
from .pauses import paused_groups
from .totals import Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers of tasks. Failed ones are counted beside their state, not instead of it."""

    ready: int = 0
    claimed: int = 0
    expired: int = 0
    scheduled: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        return self.ready + self.claimed + self.expired + self.scheduled


COUNTED = tuple(field.name for field in fields(Counts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """A group in numbers."""

    counts: Counts
    oldest_ready_ms: int | None  # For how long its oldest ready task has been ready; None: it has none.
    in_per_minute: float  # Tasks that entered and left the group: claims, renewals and edits count as neither.
    out_per_minute: float
    is_paused: bool


def group_counts(scope: GroupScope = EVERY_GROUP) -> dict[str, Counts]:
    """The counts of every group that holds a task, by its name, sorted. Counts no table."""
    return {numbers.group: _counts(numbers) for numbers in totals.numbers(scope)}


def counts_of(group: str) -> Counts:
    """The counts of one group; zeros when it does not exist."""
    numbers = totals.numbers_of(group)
    return _counts(numbers) if numbers else Counts()


def failed_tasks() -> int:
    """How many tasks failed, over all groups."""
    # As one statement: a delta that is folded between two would be counted twice, or not at all.
    folded, added = (
        kind.objects.exclude(failed=0).values_list("failed", flat=True) for kind in (GroupTotal, CountDelta)
    )
    return sum(folded.union(added, all=True))


def flow_of(group: str) -> tuple[float, float]:
    """How many tasks entered and left the group within the last minute."""
    return totals.flow(GroupScope((group,))).get(group, (0.0, 0.0))


def group_stats(scope: GroupScope = EVERY_GROUP) -> dict[str, Stats]:
    """Every group that holds a task in numbers, by its name, sorted."""
    counts, flow = group_counts(scope), totals.flow(scope)
    oldest = totals.longest_ready_ms(group for group, counted in counts.items() if counted.ready)
    paused = paused_groups()
    return {
        group: _stats(counted, oldest.get(group), flow.get(group, (0.0, 0.0)), group in paused)
        for group, counted in counts.items()
    }


def sum_of(groups: Sequence[Stats]) -> Stats:
    """Many groups as one: with the oldest task of all, and paused when each of them is."""
    counts = [group.counts for group in groups]
    return Stats(
        counts=Counts(**{state: sum(map(attrgetter(state), counts)) for state in COUNTED}),
        oldest_ready_ms=max(
            (group.oldest_ready_ms for group in groups if group.oldest_ready_ms is not None), default=None
        ),
        in_per_minute=sum(group.in_per_minute for group in groups),
        out_per_minute=sum(group.out_per_minute for group in groups),
        is_paused=bool(groups) and all(group.is_paused for group in groups),
    )


def _stats(counts: Counts, oldest_ready_ms: int | None, flow: tuple[float, float], is_paused: bool) -> Stats:
    in_per_minute, out_per_minute = flow
    return Stats(
        counts=counts,
        oldest_ready_ms=oldest_ready_ms,
        in_per_minute=in_per_minute,
        out_per_minute=out_per_minute,
        is_paused=is_paused,
    )


def _counts(numbers: Numbers) -> Counts:
    return Counts(
        ready=numbers.ready,
        claimed=numbers.claimed,
        expired=numbers.expired,
        scheduled=numbers.scheduled,
        failed=numbers.failed,
    )
