"""How many tasks each group holds in each state, and how they come and go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from taskstore.types.groups import GroupStats
from taskstore.types.tasks import holds_results

from ..control.pauses import paused_groups
from ..core.operations import EVERY_GROUP, GroupScope
from ..writer import totals
from ..writer.totals import Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers of tasks. Failed ones are counted beside their state, not instead of it.

    What jobs and commands have ended as waits for nobody: it is finished, and not ready.
    """

    ready: int = 0
    claimed: int = 0
    expired: int = 0
    scheduled: int = 0
    failed: int = 0
    finished: int = 0

    @property
    def total(self) -> int:
        return self.ready + self.claimed + self.expired + self.scheduled + self.finished


COUNTED = ("ready", "claimed", "expired", "scheduled", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """A group in numbers."""

    counts: Counts
    oldest_ready_ms: int | None  # For how long its oldest ready task has been ready; None: it has none.
    in_per_minute: float  # Tasks that entered and left the group: claims, renewals and edits count as neither.
    out_per_minute: float
    is_paused: bool

    def as_answer(self, group: str) -> GroupStats:
        """Return the numbers under the group's name, as the API tells them."""
        return GroupStats(
            group=group,
            ready=self.counts.ready,
            claimed=self.counts.claimed,
            expired=self.counts.expired,
            scheduled=self.counts.scheduled,
            failed=self.counts.failed,
            oldest_ready_ms=self.oldest_ready_ms,
            in_per_minute=round(self.in_per_minute, 1),
            out_per_minute=round(self.out_per_minute, 1),
            paused=self.is_paused,
            finished=self.counts.finished,
        )


def group_counts(scope: GroupScope = EVERY_GROUP) -> dict[str, Counts]:
    """The counts of every group that holds a task, by its name, sorted. Counts no table."""
    return {numbers.group: _counts(numbers) for numbers in totals.numbers(scope)}


def counts_of(group: str) -> Counts:
    """The counts of one group; zeros when it does not exist."""
    numbers = totals.numbers_of(group)
    return _counts(numbers) if numbers else Counts()


def flow_of(group: str) -> tuple[float, float]:
    """How many tasks entered and left the group within the last minute."""
    return totals.flow_of_each([group]).get(group, (0.0, 0.0))


def stats_in_pages(scope: GroupScope = EVERY_GROUP) -> Iterator[dict[str, Stats]]:
    """Every group that holds a task in numbers, by its name, sorted, in pages: there may be very many groups."""
    for page in totals.pages(scope):
        yield _with_more({numbers.group: _counts(numbers) for numbers in page})


def stats_of(groups: Sequence[str]) -> dict[str, Stats]:
    """These groups in numbers, by name, in their order, without those that hold no task. Reads no other group."""
    counts = counts_of_each(groups)
    return _with_more({group: counts[group] for group in groups if group in counts})


def counts_of_each(groups: Sequence[str]) -> dict[str, Counts]:
    """The counts of these groups by name, without those that hold no task. Reads no other group."""
    return {group: _counts(numbers) for group, numbers in totals.numbers_of_each(groups).items()}


def sum_of(groups: Sequence[Stats]) -> Stats:
    """Many groups as one: with the oldest task of all, and paused when each of them is."""
    counts = [group.counts for group in groups]
    return Stats(
        counts=Counts(**{state: sum(map(attrgetter(state), counts)) for state in (*COUNTED, "finished")}),
        oldest_ready_ms=max(
            (group.oldest_ready_ms for group in groups if group.oldest_ready_ms is not None), default=None
        ),
        in_per_minute=sum(group.in_per_minute for group in groups),
        out_per_minute=sum(group.out_per_minute for group in groups),
        is_paused=bool(groups) and all(group.is_paused for group in groups),
    )


def _with_more(counts: Mapping[str, Counts]) -> dict[str, Stats]:
    if not counts:
        return {}
    flow = totals.flow_of_each(counts)
    oldest = totals.longest_ready_ms(group for group, counted in counts.items() if counted.ready)
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


def _counts(numbers: Numbers) -> Counts:
    is_finished = holds_results(numbers.group)
    return Counts(
        ready=0 if is_finished else numbers.ready,
        finished=numbers.ready if is_finished else 0,
        claimed=numbers.claimed,
        expired=numbers.expired,
        scheduled=numbers.scheduled,
        failed=numbers.failed,
    )
