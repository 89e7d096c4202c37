"""The number of tasks in each group by state, and their flow in and out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from taskstore.types.groups import GroupStats
from taskstore.types.tasks import holds_results

from ..control.pauses import paused_groups
from ..core.operations import EVERY_GROUP, GroupScope
from ..writer import totals
from ..writer.totals import Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """A group in numbers."""

    counts: Numbers
    oldest_ready_ms: int | None  # How long the oldest ready task has been ready; None: no task is ready.
    in_per_minute: float  # Tasks that entered and left the group. Claims, renewals and edits count as neither.
    out_per_minute: float
    is_paused: bool

    def as_answer(self, group: str) -> GroupStats:
        """Convert the numbers to their type in the API."""
        return GroupStats(
            group=group,
            ready=self.counts.available,
            claimed=self.counts.claimed,
            expired=self.counts.expired,
            scheduled=0 if holds_results(group) else self.counts.later,
            failed=self.counts.errors,
            oldest_ready_ms=self.oldest_ready_ms,
            in_per_minute=round(self.in_per_minute, 1),
            out_per_minute=round(self.out_per_minute, 1),
            paused=self.is_paused,
            retrying=self.counts.retrying,
            dead=self.counts.failed,
            finished=self.counts.finished,
        )


def group_counts(scope: GroupScope = EVERY_GROUP) -> dict[str, Numbers]:
    """Return the counts of every group that has tasks, sorted by name. Reads kept totals and counts no table."""
    return {numbers.group: numbers for numbers in totals.numbers(scope)}


def counts_of(group: str) -> Numbers:
    """Return the counts of one group; zeros when it does not exist."""
    return totals.numbers_of(group) or Numbers(group)


def stats_in_pages(scope: GroupScope = EVERY_GROUP) -> Iterator[dict[str, Stats]]:
    """Yield the stats of all groups that have tasks, sorted by name, in pages: there may be very many groups."""
    for page in totals.pages(scope):
        yield _with_more({numbers.group: numbers for numbers in page})


def stats_of(groups: Sequence[str]) -> dict[str, Stats]:
    """Return the stats of these groups in their order, without empty groups. Reads no other group."""
    counts = totals.numbers_of_each(groups)
    return _with_more({group: counts[group] for group in groups if group in counts})


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


def _with_more(counts: Mapping[str, Numbers]) -> dict[str, Stats]:
    if not counts:
        return {}
    flow = totals.flow_of_each(counts)
    oldest = totals.longest_ready_ms(group for group, counted in counts.items() if counted.available)
    paused = paused_groups(min(counts), max(counts))
    stats = {}
    for group, counted in counts.items():
        in_per_minute, out_per_minute = flow.get(group, (0.0, 0.0))
        stats[group] = Stats(
            counts=counted,
            oldest_ready_ms=oldest.get(group),
            in_per_minute=in_per_minute,
            out_per_minute=out_per_minute,
            is_paused=group in paused,
        )
    return stats
