"""What an operator should look at: stalled groups, lost workers, errors that pile up, long pauses, what is going on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from django.db.models import Max, QuerySet, Sum

from .. import schedules
from ..core.heartbeats import LOST_MS
from ..core.validation import LATEST_MS
from ..models import BulkOperation, PausedGroup, Rate, Task
from ..reading.clients import Seen, holdings
from ..reading.counts import Stats, counts_of_each, stats_of
from ..writer.totals import most_ready

MINUTE_MS = 60_000
STILL_MINUTES = 10  # Without a claim, while tasks are ready for that long.
DAY_MINUTES = 1_440
SPIKE_MINUTES = 10
FEW_FAILURES = 10
LONG_PAUSE_MS = 60 * MINUTE_MS
MOST_GROUPS = 500  # That may stand still: those with the most ready tasks, and as many that live workers have named.


class Kind(StrEnum):
    STALLED = "stalled"
    LOST = "lost"
    FAILING = "failing"
    BROKEN = "broken"
    PAUSED = "paused"
    RUNNING = "running"  # No trouble: something is being done to many tasks.


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing to look at."""

    kind: Kind
    name: str  # Of the group, the worker, or the schedule; running: what is being done, in words.
    tasks: int  # Stalled, paused: that are ready; lost: that it holds; failing: that failed within ten minutes;
    # running: to which it was done so far.
    at_ms: int | None = None  # Last claimed, last heard, paused; None: never, or of no matter.
    operation: int = 0  # The number of the one that is running.
    expected: int = 0  # To how many tasks it will be done.


def notices(clients: Sequence[Seen]) -> list[Notice]:
    """What there is to look at now, by kind, then by the number of tasks; empty when all is well.

    `clients`: all that were heard within a day.
    """
    now_ms = Task.objects.now_ms()
    of_groups = [*_stalled(clients, now_ms), *_failing(now_ms), *_paused(now_ms)]
    return sorted(
        [*of_groups, *_lost(clients), *_broken(), *_running()],
        key=lambda notice: (list(Kind).index(notice.kind), -notice.tasks, notice.name),
    )


def _stalled(clients: Iterable[Seen], now_ms: int) -> Iterator[Notice]:
    """Groups whose tasks are ready for long, and that somebody works on: config tasks and outputs are no alarm."""
    minute = now_ms // MINUTE_MS
    attended = {group for client in clients if client.age_ms < LOST_MS for group in client.groups}
    # Not all groups: of 300 000 each look at this page would take seconds.
    stats = stats_of(list(dict.fromkeys([*most_ready(MOST_GROUPS), *sorted(attended)[:MOST_GROUPS]])))
    most = [group for group, numbers in stats.items() if _waits_for_long(numbers)]
    claims = Rate.objects.filter(group__in=most, claimed__gt=0, minute__gte=minute - DAY_MINUTES)
    last_claims = dict(claims.values_list("group").annotate(Max("minute")).order_by())
    for group in most:
        last = last_claims.get(group)
        if last is None and group in attended:
            yield Notice(kind=Kind.STALLED, name=group, tasks=stats[group].counts.ready)
        elif last is not None and last < minute - STILL_MINUTES:
            yield Notice(kind=Kind.STALLED, name=group, tasks=stats[group].counts.ready, at_ms=last * MINUTE_MS)


def _waits_for_long(numbers: Stats) -> bool:
    return not numbers.is_paused and (numbers.oldest_ready_ms or 0) > STILL_MINUTES * MINUTE_MS


def _lost(clients: Iterable[Seen]) -> Iterator[Notice]:
    """Workers that fell silent while they hold tasks; one that had finished is no loss."""
    silent = [client for client in clients if client.age_ms >= LOST_MS]
    held = holdings() if silent else {}
    for each in silent:
        if each.client.id in held:
            yield Notice(
                kind=Kind.LOST, name=str(each.client), tasks=held[each.client.id].tasks, at_ms=each.client.seen_at_ms
            )


def _failing(now_ms: int) -> Iterator[Notice]:
    """Groups in which far more fails than within the day before."""
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
    counts = counts_of_each([paused.group for paused in long_ago]) if long_ago else {}
    for paused in long_ago:
        ready = counts[paused.group].ready if paused.group in counts else 0
        yield Notice(kind=Kind.PAUSED, name=paused.group, tasks=ready, at_ms=paused.at_ms)


def _broken() -> Iterator[Notice]:
    """Schedules that were due and made no sense: nothing comes of them until somebody sees to it."""
    set_aside = Task.objects.get_queryset().in_group(schedules.GROUP).failed().filter(available_at_ms=LATEST_MS)
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
