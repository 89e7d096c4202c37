"""Notices for operators: stalled groups, lost workers, error spikes, long pauses, and running operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from django.db.models import Max, QuerySet, Sum

from taskstore.types.groups import LOST_MS
from taskstore.types.scalars import LATEST_MS
from taskstore.types.schedules import SCHEDULES

from .. import schedules
from ..models import BulkOperation, PausedGroup, Rate, Task
from ..reading.clients import Seen, holdings
from ..reading.counts import stats_of
from ..writer.totals import most_ready, numbers_of_each

MINUTE_MS = 60_000
STILL_MINUTES = 10  # A group is stalled when its tasks are ready for so long without a claim.
DAY_MINUTES = 1_440
SPIKE_MINUTES = 10
FEW_FAILURES = 10
LONG_PAUSE_MS = 60 * MINUTE_MS
MOST_GROUPS = 500  # Groups to check: those with the most ready tasks, and as many that live workers have named.


class Kind(StrEnum):
    STALLED = "stalled"
    LOST = "lost"
    FAILING = "failing"
    BROKEN = "broken"
    PAUSED = "paused"
    RUNNING = "running"  # A bulk operation; not a problem.


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One notice."""

    kind: Kind
    name: str  # The group, worker or schedule; of a running operation, its description.
    tasks: int  # Stalled, paused: tasks to do; lost: held tasks; failing: failures within ten minutes;
    # running: handled tasks.
    at_ms: int | None = None  # The last claim, the last heartbeat, or the pause; None: never, or not applicable.
    operation: int = 0  # The number of the running operation.
    expected: int = 0  # The number of its tasks.


def notices(clients: Sequence[Seen]) -> list[Notice]:
    """Return the notices by kind, then by the number of tasks; empty when all is well.

    `clients`: all with a heartbeat within a day.
    """
    now_ms = Task.objects.now_ms()
    of_groups = [*_stalled(clients, now_ms), *_failing(now_ms), *_paused(now_ms)]
    return sorted(
        [*of_groups, *_lost(clients), *_broken(), *_running()],
        key=lambda notice: (list(Kind).index(notice.kind), -notice.tasks, notice.name),
    )


def _stalled(clients: Iterable[Seen], now_ms: int) -> Iterator[Notice]:
    """Find groups with tasks that have been ready for long although workers claim there.

    Other groups hold configuration or outputs, which nobody claims.
    """
    minute = now_ms // MINUTE_MS
    attended = {group for client in clients if client.age_ms < LOST_MS for group in client.groups}
    # Not all groups: with 300 000, each view of the page would take seconds.
    stats = stats_of(list(dict.fromkeys([*most_ready(MOST_GROUPS), *sorted(attended)[:MOST_GROUPS]])))
    most = [
        group
        for group, numbers in stats.items()
        if not numbers.is_paused and (numbers.oldest_ready_ms or 0) > STILL_MINUTES * MINUTE_MS
    ]
    claims = Rate.objects.filter(group__in=most, claimed__gt=0, minute__gte=minute - DAY_MINUTES)
    last_claims = dict(claims.values_list("group").annotate(Max("minute")).order_by())
    for group in most:
        last = last_claims.get(group)
        if last is None and group in attended:
            yield Notice(kind=Kind.STALLED, name=group, tasks=stats[group].counts.to_do)
        elif last is not None and last < minute - STILL_MINUTES:
            yield Notice(kind=Kind.STALLED, name=group, tasks=stats[group].counts.to_do, at_ms=last * MINUTE_MS)


def _lost(clients: Iterable[Seen]) -> Iterator[Notice]:
    """Find workers that hold tasks without a heartbeat."""
    silent = [client for client in clients if client.age_ms >= LOST_MS]
    held = holdings() if silent else {}
    for each in silent:
        if each.client.id in held:
            yield Notice(
                kind=Kind.LOST, name=str(each.client), tasks=held[each.client.id].tasks, at_ms=each.client.seen_at_ms
            )


def _failing(now_ms: int) -> Iterator[Notice]:
    """Find groups with far more failures than in the day before."""
    minute = now_ms // MINUTE_MS
    recent = _failures(Rate.objects.filter(minutes=1, minute__gte=minute - SPIKE_MINUTES))
    many = {group: count for group, count in recent.items() if count > FEW_FAILURES}
    of_a_day = _failures(Rate.objects.filter(group__in=many, minute__gte=minute - DAY_MINUTES))
    for group, count in many.items():
        usual = (of_a_day[group] - count) * SPIKE_MINUTES / (DAY_MINUTES - SPIKE_MINUTES)
        if count > FEW_FAILURES + 3 * usual:
            yield Notice(kind=Kind.FAILING, name=group, tasks=count)


def _failures(rates: QuerySet[Rate]) -> dict[str, int]:
    return dict(rates.filter(failures__gt=0).values_list("group").annotate(Sum("failures")).order_by())


def _paused(now_ms: int) -> Iterator[Notice]:
    long_ago = [paused for paused in PausedGroup.objects.all() if now_ms - paused.at_ms > LONG_PAUSE_MS]
    counts = numbers_of_each([paused.group for paused in long_ago]) if long_ago else {}
    for paused in long_ago:
        waiting = counts[paused.group].to_do if paused.group in counts else 0
        yield Notice(kind=Kind.PAUSED, name=paused.group, tasks=waiting, at_ms=paused.at_ms)


def _broken() -> Iterator[Notice]:
    """Find broken schedules, which add nothing until somebody repairs them."""
    set_aside = Task.objects.get_queryset().in_group(SCHEDULES).with_error().filter(available_at_ms=LATEST_MS)
    for task in set_aside.defer("data")[:MOST_GROUPS]:
        yield Notice(kind=Kind.BROKEN, name=task.labels.get(schedules.NAME_LABEL) or f"task {task.id}", tasks=0)


def _running() -> Iterator[Notice]:
    for operation in BulkOperation.objects.filter(state=BulkOperation.State.RUNNING):
        yield Notice(
            kind=Kind.RUNNING,
            name=f"{operation.verb} of {operation.in_words}",
            tasks=operation.done + operation.skipped + operation.failed,
            operation=operation.pk,
            expected=operation.expected,
        )
