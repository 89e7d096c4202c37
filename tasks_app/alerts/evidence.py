"""What diagnoses ask of the database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from django.conf import settings
from django.db.models import Case, Count, F, Min, OuterRef, Q, QuerySet, Subquery, Sum, TextField, Value, When

from taskstore.types.batches import Batch as BatchAnswer
from taskstore.types.command_record import CommandStatus, place_of
from taskstore.types.job_record import LEFT_LABEL, JobRecord, NotAJob, queue_of
from taskstore.types.scalars import whole
from taskstore.types.tasks import ATTEMPTS, Standing, State
from taskstore.units import number

from ..models import Batch, PausedGroup, Rate, Task
from ..reading.clients import NOTHING, Seen, by_group, holdings
from ..reading.counts import Stats, stats_of
from ..writer.totals import Numbers, last_claims
from .causes import FEW_FAILURES, FLOW_MINUTES, MINUTE_MS, SPIKE_MINUTES, STILL_MS, BatchFacts, Facts, TaskFacts
from .links import Held

DAY_MINUTES = 1_440
FUNCTION_MINUTES = 60  # Without a worker that has the function of a job.
ENDED_STANDINGS = (Standing.FAILED, Standing.FINISHED)
MOST_BATCHES = 1_000  # Open ones that are looked at, the oldest first.


def missing_function_ms() -> int:
    return MINUTE_MS * int(getattr(settings, "TASKSTORE_MISSING_FUNCTION_MINUTES", FUNCTION_MINUTES))


def facts_of(stats: Mapping[str, Stats], clients: Sequence[Seen]) -> dict[str, Facts]:
    """Return the facts about these groups. The number of queries does not depend on how many there are.

    `clients`: all with a heartbeat within a day.
    """
    if not stats:
        return {}
    now_ms = Task.objects.now_ms()
    workers = by_group(clients, stats)
    paused = [name for name, each in stats.items() if each.is_paused]
    pauses = {each.group: each for each in PausedGroup.objects.filter(group__in=paused)} if paused else {}
    to_do = [name for name, each in stats.items() if each.counts.to_do and not each.is_paused]
    claimed = {name: now_ms - (minute + 1) * MINUTE_MS for name, minute in _last_claims(to_do, now_ms).items()}
    waits = {name: stats[name].oldest_ready_ms or 0 for name in to_do}
    unclaimed = [name for name in to_do if name not in claimed and waits[name] > STILL_MS]
    for_workers = _for_workers(unclaimed)
    flows = _flows([name for name in claimed if waits[name] >= MINUTE_MS], now_ms)
    failures = dict(unusual_failures(now_ms, list(stats)))
    held = _held_by_lost(clients, list(stats), now_ms)
    lacking = _lacking([name for name in stats if queue_of(name)], now_ms)
    found = {}
    for name, each in stats.items():
        of_group = workers.get(name, [])
        found[name] = Facts(
            counts=each.counts,
            now_ms=now_ms,
            waits_ms=waits.get(name, 0),
            claimed_ms=claimed.get(name),
            is_for_workers=name in for_workers,
            out_per_minute=each.out_per_minute,
            flow=flows.get(name, ()),
            failures=failures.get(name),
            pause=pauses.get(name),
            limit=each.limit,
            live=[worker for worker in of_group if not worker.is_lost],
            lost=[worker for worker in of_group if worker.is_lost],
            held=held.get(name, ()),
            lacking=lacking.get(name),
        )
    return _with_what_live_ones_hold(found)


def _with_what_live_ones_hold(facts: dict[str, Facts]) -> dict[str, Facts]:
    """Add what is asked only where tasks wait for long beside live workers."""
    asked = [name for name, each in facts.items() if each.live and each.waits_ms > STILL_MS]
    leases = holdings() if asked else {}
    for name in asked:
        held = sum(leases.get(worker.client.id, NOTHING).tasks for worker in facts[name].live)
        facts[name] = replace(facts[name], held_by_live=held)
    return facts


def _last_claims(groups: Sequence[str], now_ms: int) -> Mapping[str, int]:
    """Return the minute of the last claim within a day, of each group with one."""
    return last_claims(groups, now_ms // MINUTE_MS - DAY_MINUTES) if groups else {}


def _for_workers(groups: Sequence[str]) -> set[str]:
    """Return those whose tasks wait for a worker by what they are."""
    found = {name for name in groups if queue_of(name) or (place_of(name) or ("", ""))[1] == CommandStatus.OPEN}
    if others := [name for name in groups if name not in found]:
        open_ones = list(Batch.objects.still_open().order_by("pk").values_list("pk", flat=True)[:MOST_BATCHES])
        found.update(set(others) & set(first_open_groups(open_ones).values() if open_ones else ()))
    return found


def _flows(groups: Sequence[str], now_ms: int) -> Mapping[str, Sequence[tuple[int, int]]]:
    """Return what entered and left each group, in the halves of the last FLOW_MINUTES full minutes."""
    if not groups:
        return {}
    end, half = now_ms // MINUTE_MS, FLOW_MINUTES // 2
    rates = Rate.objects.filter(group__in=groups, minutes=1, minute__gte=end - FLOW_MINUTES, minute__lt=end)
    is_late = Case(When(minute__gte=end - half, then=1), default=0)
    sums = rates.annotate(late=is_late).values_list("group", "late").annotate(Sum("entered"), Sum(F("left")))
    flows: dict[str, list[tuple[int, int]]] = {name: [(0, 0), (0, 0)] for name in groups}
    for group, late, entered, left in sums.order_by():
        flows[group][late] = (entered, left)
    return flows


# ---- Failures


def unusual_failures(now_ms: int, groups: Sequence[str] | None = None) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the groups with far more failures than in the day before: how many, and what is usual in that time.

    `groups`: to look at; None: all. What has failed may be gone from the group since.
    """
    minute = now_ms // MINUTE_MS
    rates = Rate.objects.filter(minutes=1, minute__gte=minute - SPIKE_MINUTES)
    lately = _failures(rates if groups is None else rates.filter(group__in=groups))
    many = {name: count for name, count in lately.items() if count > FEW_FAILURES}
    if not many:
        return
    of_a_day = _failures(Rate.objects.filter(group__in=[*many], minute__gte=minute - DAY_MINUTES))
    for group, count in many.items():
        usual = (of_a_day[group] - count) * SPIKE_MINUTES / (DAY_MINUTES - SPIKE_MINUTES)
        if count > FEW_FAILURES + 3 * usual:
            yield group, (count, round(usual))


def _failures(rates: QuerySet[Rate]) -> dict[str, int]:
    return dict(rates.filter(failures__gt=0).values_list("group").annotate(Sum("failures")).order_by())


def facts_of_empty(names: Sequence[str]) -> Iterator[Facts]:
    """Yield what is known of groups that have no task."""
    now_ms = Task.objects.now_ms()
    failures = dict(unusual_failures(now_ms, names))
    pauses = {each.group: each for each in PausedGroup.objects.filter(group__in=names)}
    for name in names:
        yield Facts(counts=Numbers(name), now_ms=now_ms, failures=failures.get(name), pause=pauses.get(name))


# ---- Tasks


MOST_AHEAD = 10_000  # Counted before a task in its group.


def facts_of_task(task: Task, now_ms: int, clients: Sequence[Seen], data: bytes) -> TaskFacts:
    """Return the facts about a living task. `data`: that of the task, or its beginning."""
    state = task.state(now_ms)
    waits = state in (State.READY, State.EXPIRED, State.RETRYING)
    return TaskFacts(
        task=task,
        state=state,
        now_ms=now_ms,
        group=facts_of(stats_of([task.group]), clients).get(task.group) if waits else None,
        holder=next((each for each in clients if each.client.id == task.owner), None) if task.leased else None,
        left=left_function(data) if LEFT_LABEL in task.labels else None,
        attempt=_next_attempt(task, data) if state is State.RETRYING else "",
        ahead=_ahead_of(task, now_ms) if state in (State.READY, State.EXPIRED) else 0,
        most_ahead=MOST_AHEAD,
    )


def _ahead_of(task: Task, now_ms: int) -> int:
    as_urgent = Q(priority=task.priority, available_at_ms__lte=task.available_at_ms)
    sooner = Q(available_at_ms__lt=task.available_at_ms) | Q(id__lt=task.id)
    before = Q(priority__gt=task.priority) | (as_urgent & sooner)
    return int(Task.objects.get_queryset().in_group(task.group).available(now_ms).filter(before)[:MOST_AHEAD].count())


def _next_attempt(task: Task, data: bytes) -> str:
    if queue_of(task.group):
        try:
            record = JobRecord.decode(data)
        except NotAJob:  # Or only its beginning.
            return "the next attempt"
        most = record.options.max_attempts
        return f"attempt {number(record.next_attempt)}{f' of {number(most)}' if most else ''}"
    noted = whole(task.labels.get(ATTEMPTS, ""))
    return "the next attempt" if noted is None else f"attempt {number(noted + 1)}"


# ---- Batches


MOST_MEMBERS = 50_000  # That are counted by group and state.
MOST_GROUPS = 20  # Of a batch, whose troubles are looked for.


def facts_of_batch(batch: BatchAnswer, clients: Sequence[Seen]) -> BatchFacts:
    """Return the facts about a batch, with those of its groups."""
    members = members_of(batch.id)
    facts = BatchFacts(batch=batch, members=members, groups={})
    open_in = {group: sum(facts.to_do(group).values()) for group in members}
    most = sorted((group for group in members if open_in[group]), key=lambda group: -open_in[group])[:MOST_GROUPS]
    return replace(facts, groups=facts_of(stats_of(most), clients))


def members_of(batch_id: int) -> dict[str, dict[State, int]]:
    """Return how many living members a batch and those within it have, by group and state."""
    now_ms = Task.objects.now_ms()
    within = Batch.objects.tree(batch_id).values("pk")
    some = Task.objects.filter(batch__in=within, batch__gt=0).order_by("batch", "id").values("pk")[:MOST_MEMBERS]
    is_leased, is_later = Q(leased_since_ms__gt=0), Q(available_at_ms__gt=now_ms)
    state = Case(
        When(is_leased & is_later, then=Value(State.CLAIMED)),
        When(is_leased, then=Value(State.EXPIRED)),
        *(When(standing=Standing[each.name], then=Value(each)) for each in State if each.name in Standing.__members__),
        When(is_later, then=Value(State.SCHEDULED)),
        default=Value(State.READY),
        output_field=TextField(),
    )
    rows = Task.objects.filter(pk__in=some).annotate(now=state).values_list("group", "now").annotate(Count("id"))
    found: dict[str, dict[State, int]] = {}
    for group, each, count in rows.order_by("group"):
        found.setdefault(group, {})[State(each)] = count
    return found


def first_open_groups(batch_ids: Sequence[int]) -> dict[int, str]:
    """Return the group of the first member of each batch that is still to be done, without batches that have none."""
    waiting = Task.objects.filter(batch=OuterRef("pk"), batch__gt=0).exclude(standing__in=ENDED_STANDINGS)
    group = Subquery(waiting.order_by("id").values("group")[:1])
    rows = Batch.objects.filter(pk__in=batch_ids).annotate(first=group).values_list("pk", "first")
    return {pk: first for pk, first in rows if first is not None}


# ---- What lost workers hold, and what no worker can do


def _held_by_lost(clients: Iterable[Seen], groups: Sequence[str], now_ms: int) -> Mapping[str, Held]:
    """Return which lost workers hold how many tasks of each group."""
    lost = {each.client.id: each for each in clients if each.is_lost}
    if not lost:
        return {}
    claimed = Task.objects.get_queryset().claimed(now_ms).filter(group__in=groups, owner__in=[*lost])
    by_owner = claimed.values_list("group", "owner").annotate(tasks=Count("id")).order_by("-tasks")
    found: dict[str, list[tuple[Seen, int]]] = {}
    for group, owner, tasks in by_owner:
        found.setdefault(group, []).append((lost[owner], tasks))
    return found


def _lacking(queues: Sequence[str], now_ms: int) -> Mapping[str, tuple[str, int, int]]:
    """Return the function that no worker of a queue has had for a while, since when, and how many jobs wait for one."""
    if not queues:
        return {}
    waiting = Task.objects.get_queryset().bearing(LEFT_LABEL).filter(group__in=queues)
    # The lowest id changed longest ago: the pauses grow.
    firsts = dict(waiting.values_list("group").annotate(Min("id")).order_by())
    found = {}
    for task in Task.objects.filter(pk__in=firsts.values()) if firsts else ():
        left = left_function(bytes(task.data))
        if left and now_ms - left[1] >= missing_function_ms():
            jobs = waiting.in_group(task.group).bearing(LEFT_LABEL, left[0]).count()
            found[task.group] = (*left, jobs)
    return found


def left_function(data: bytes) -> tuple[str, int] | None:
    """Return the function of a job that workers leave to others, and since when; None for others."""
    with suppress(NotAJob):
        record = JobRecord.decode(data)
        if left := record.lacks_function:
            return record.function, left.started
    return None
