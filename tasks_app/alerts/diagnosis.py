"""Diagnose groups, workers and tasks: what is wrong, since when, why, and what to do. The sentences are made here.

The table of groups, the pages of a group, a worker, a task and a job, and the notices show them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from django.conf import settings
from django.db.models import Count, QuerySet, Sum

from taskstore.types.job_record import LEFT_LABEL, JobRecord, NotAJob, queue_of
from taskstore.types.scalars import LATEST_MS, whole
from taskstore.types.schedules import SCHEDULES
from taskstore.types.tasks import ATTEMPTS, State
from taskstore.units import about, ago, counted, number

from .. import schedules
from ..database import dialect_of
from ..models import BulkOperation, PausedGroup, Rate, Task
from ..reading.clients import NOTHING, Holding, Seen, by_group, holdings
from ..reading.counts import Stats, stats_of
from ..reading.search.grammar import quoted
from ..writer.totals import last_claims, most_ready

MINUTE_MS = 60_000
STILL_MS = 10 * MINUTE_MS  # A group is stalled when its tasks wait for so long without a claim.
DAY_MINUTES = 1_440
SPIKE_MINUTES = 10
FEW_FAILURES = 10
LONG_PAUSE_MS = 60 * MINUTE_MS
LONG_TRANSACTION_MS = 10 * MINUTE_MS
FEW_WORKERS = 2  # More lost workers than these share one notice.
FUNCTION_MINUTES = 60  # Without a worker that has the function of a job.
FEW_GROUPS = 3  # Named in the sentence about a folder.
MOST_GROUPS = 500  # Groups to check: those with the most ready tasks, and as many that workers have named.


def missing_function_ms() -> int:
    return MINUTE_MS * int(getattr(settings, "TASKSTORE_MISSING_FUNCTION_MINUTES", FUNCTION_MINUTES))


class Kind(StrEnum):
    """Diagnoses, the worst first. The last four are no trouble."""

    STALLED = "stalled"  # Tasks wait, and no worker claims them.
    LOST = "lost"  # A worker that holds tasks no longer reports.
    FAILING = "failing"
    BROKEN = "broken"  # A schedule.
    PAUSED = "paused"
    GROWING = "growing"  # More tasks enter than leave.
    RUNNING = "running"  # A bulk operation.
    LIMITED = "limited"  # As many tasks are claimed as may be.
    WORKING = "working"
    WAITING = "waiting"
    IDLE = "idle"


KINDS = list(Kind)
CALM = {Kind.LIMITED, Kind.WORKING, Kind.WAITING, Kind.IDLE}
# The icons of the console.
ICONS = {
    Kind.STALLED: "expired",
    Kind.LOST: "lost",
    Kind.FAILING: "failed",
    Kind.BROKEN: "failed",
    Kind.PAUSED: "paused",
    Kind.GROWING: "arrow-up",
    Kind.RUNNING: "claimed",
    Kind.LIMITED: "scheduled",
    Kind.WORKING: "claimed",
    Kind.WAITING: "scheduled",
    Kind.IDLE: "done",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link to a page of the console: what its name for URLs takes, and its query."""

    words: str
    page: str
    args: tuple[object, ...] = ()
    query: Mapping[str, object] = field(default_factory=dict)
    is_change: bool = False  # It asks first, in a dialog; only an operator may.


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A sentence in parts: what, since when, why; and what to do."""

    kind: Kind
    of: Link  # The group, worker, schedule, operation or task.
    word: str = ""  # In place of that of the kind.
    since: str = ""  # "for 17 min", "by admin 3 h ago".
    why: str = ""  # "240 ready, its only worker thumbnailer-1 is lost."
    next_ms: int | None = None  # When it goes on by itself.
    advice: Link | None = None
    count: int = 1  # How many it is about.
    tasks: int = 0  # How many are concerned: of two of a kind, the one with more is worse.
    is_alarm: bool = False

    @property
    def icon(self) -> str:
        return ICONS[self.kind]

    @property
    def what(self) -> str:
        return self.word or self.kind.capitalize()

    @property
    def rest(self) -> str:
        """Return what follows `what`; empty when there is nothing to say."""
        return f"{self.since}: {self.why}".removeprefix(": ") if self.why else f"{self.since}." if self.since else ""

    @property
    def text(self) -> str:
        """Return the sentence; empty when there is nothing to say."""
        if not self.rest:
            return ""
        return f"{self.what}{' ' if self.since else ': '}{self.rest}"

    @property
    def rank(self) -> tuple[int, int, str]:
        """Return a key that sorts the worst first."""
        return KINDS.index(self.kind), -self.tasks, self.of.words


# ---- Groups


def of_groups(stats: Mapping[str, Stats], clients: Sequence[Seen]) -> dict[str, Diagnosis]:
    """Diagnose each of these groups.

    `clients`: all with a heartbeat within a day.
    """
    if not stats:
        return {}
    evidence = _Evidence(stats, clients)
    return {name: evidence.diagnosis(name) for name in stats}


def of_worst(clients: Sequence[Seen]) -> dict[str, Diagnosis]:
    """Diagnose the groups that may be in trouble, and return them with the worst first.

    Checking all groups would take seconds for each view of the page when there are 300 000.
    """
    lost_first = sorted(clients, key=lambda client: not client.is_lost)
    attended = dict.fromkeys(group for client in lost_first for group in client.groups)
    paused = PausedGroup.objects.order_by("at").values_list("group", flat=True)[:MOST_GROUPS]
    lately = Rate.objects.filter(minutes=1, minute__gte=Task.objects.now_ms() // MINUTE_MS - SPIKE_MINUTES)
    failing = [group for group, failures in _failures(lately).items() if failures > FEW_FAILURES]
    looked_at = dict.fromkeys([*most_ready(MOST_GROUPS), *list(attended)[:MOST_GROUPS], *paused, *failing])
    found = of_groups(stats_of(list(looked_at)), clients)
    return {each.of.words: each for each in sorted(found.values(), key=lambda each: each.rank)}


def troubled(found: Mapping[str, Diagnosis]) -> dict[str, Diagnosis]:
    """Return the groups that are in trouble."""
    return {name: each for name, each in found.items() if each.kind not in CALM}


def of_folder(prefix: str, names: Sequence[str], troubled: Mapping[str, Diagnosis]) -> Diagnosis:
    """Return the worst diagnosis in a folder, with the names of its groups that have it."""
    found = sorted((troubled[name] for name in names if name in troubled), key=lambda each: each.rank)
    worst = [each for each in found if each.kind is found[0].kind]
    named = ", ".join(each.of.words for each in worst[:FEW_GROUPS])
    more = f" and {number(len(worst) - FEW_GROUPS)} more" if len(worst) > FEW_GROUPS else ""
    return Diagnosis(
        kind=worst[0].kind if worst else Kind.IDLE,
        of=Link(words=prefix, page="overview"),
        word=worst[0].word if worst else "",
        why=f"{number(len(worst))} of {counted(len(names), 'group')}: {named}{more}." if worst else "",
    )


class _Evidence:
    """The facts about some groups that diagnoses need."""

    def __init__(self, stats: Mapping[str, Stats], clients: Sequence[Seen]) -> None:
        self._stats = stats
        self._now_ms = Task.objects.now_ms()
        self._minute = self._now_ms // MINUTE_MS
        paused = [name for name, each in stats.items() if each.is_paused]
        self._pauses = {each.group: each for each in PausedGroup.objects.filter(group__in=paused)}
        self._workers = by_group(clients, stats)
        self._last_claims = self._claims()
        self._spikes = dict(self._unusual_failures())
        self._held = _held_by_lost(clients, list(stats), self._now_ms)

    def diagnosis(self, name: str) -> Diagnosis:
        """Return the worst diagnosis that applies to a group."""
        stats, counts = self._stats[name], self._stats[name].counts
        if pause := self._pauses.get(name):
            return of_pause(pause, counts.to_do, self._now_ms)
        since_ms = self._stalled_for_ms(name)
        if since_ms is not None:
            waiting = _listed([(counts.ready, "ready"), (counts.retrying, "retrying"), (counts.expired, "expired")])
            why, advice = self._why_stalled(name)
            return Diagnosis(
                kind=Kind.STALLED,
                of=_group(name),
                since=f"for {about(since_ms)}",
                why=f"{waiting}, {why}.",
                advice=advice,
                tasks=counts.to_do,
                is_alarm=True,
            )
        held = self._held.get(name, [])
        if held and sum(tasks for _, tasks in held) >= counts.claimed:  # Otherwise other workers go on.
            return _with_lost_worker(name, held)
        if counts.to_do and queue_of(name) and (lacking := self._without_function(name)):
            return lacking
        if name in self._spikes:
            failures, usual = self._spikes[name]
            failed = State.FAILED if counts.failed > counts.retrying else State.RETRYING
            return Diagnosis(
                kind=Kind.FAILING,
                of=_group(name),
                why=f"{number(failures)} errors in {SPIKE_MINUTES} min, usually {number(usual) if usual else 'none'}.",
                advice=Link(words="See the errors", page="group", query={"name": name, "state": failed}),
                tasks=failures,
                is_alarm=True,
            )
        # Groups without claims, such as those of outputs, are meant to grow.
        if (
            name in self._last_claims
            and stats.in_per_minute - stats.out_per_minute >= 1
            and (stats.oldest_ready_ms or 0) >= MINUTE_MS
        ):
            return Diagnosis(
                kind=Kind.GROWING,
                of=_group(name),
                why=f"{number(round(stats.in_per_minute))} in, {number(round(stats.out_per_minute))} out per minute"
                f"{self._with_workers(name)}.",
                tasks=counts.to_do,
            )
        if stats.limit and stats.limit.why and counts.to_do:
            return Diagnosis(
                kind=Kind.LIMITED,
                of=_group(name),
                word="At its limit",
                why=f"{stats.limit.why}.",
                advice=_limit(name),
                tasks=counts.to_do,
            )
        if counts.claimed or stats.out_per_minute:
            return Diagnosis(kind=Kind.WORKING, of=_group(name))
        waits = counts.scheduled or counts.retrying or (counts.ready and name in self._last_claims)
        return Diagnosis(kind=Kind.WAITING if waits else Kind.IDLE, of=_group(name))

    def _without_function(self, name: str) -> Diagnosis | None:
        """Diagnose a queue with jobs whose function no worker has had for a while."""
        waiting = Task.objects.get_queryset().in_group(name).bearing(LEFT_LABEL)
        # The lowest id changed longest ago: the pauses grow.
        if (first := waiting.order_by("id").first()) is None or (left := _left(bytes(first.data))) is None:
            return None
        function, since_ms = left
        if self._now_ms - since_ms < missing_function_ms():
            return None
        count = waiting.bearing(LEFT_LABEL, function).count()
        return Diagnosis(
            kind=Kind.STALLED,
            of=_group(name),
            word="Function missing",
            since=f"for {about(self._now_ms - since_ms)}",
            why=f"no worker has {function}, {number(count)} waiting.",
            advice=Link(words="See the jobs", page="search", query={"q": f"group:{quoted(name)} label:{LEFT_LABEL}"}),
            tasks=count,
            is_alarm=True,
        )

    def _claims(self) -> dict[str, int]:
        """Return the minute of the last claim within a day, of each group in which something waits."""
        waiting = [name for name, each in self._stats.items() if each.counts.to_do and not each.is_paused]
        return last_claims(waiting, self._minute - DAY_MINUTES)

    def _stalled_for_ms(self, name: str) -> int | None:
        """Return for how long tasks have been waiting without a claim though workers claim there; None: they don't.

        Other groups hold configuration or outputs, which no worker claims.
        """
        waits_ms = self._stats[name].oldest_ready_ms or 0
        if name in self._last_claims:
            waits_ms = min(waits_ms, self._now_ms - (self._last_claims[name] + 1) * MINUTE_MS)
        elif not self._live(name):
            return None
        return waits_ms if waits_ms > STILL_MS else None

    def _live(self, name: str) -> list[Seen]:
        return [each for each in self._workers.get(name, ()) if not each.is_lost]

    def _why_stalled(self, name: str) -> tuple[str, Link | None]:
        if (limit := self._stats[name].limit) and limit.why:
            return f"held back by its limit: {limit.why}", _limit(name)
        live, all_of_it = self._live(name), self._workers.get(name, [])
        see = Link(words="See the workers", page="workers")
        if live:
            held = sum(self._holdings.get(each.client.id, NOTHING).tasks for each in live)
            who = f"only live worker {live[0].client}" if len(live) == 1 else f"{len(live)} live workers"
            verb = ("holds", "claims") if len(live) == 1 else ("hold", "claim")
            return f"its {who} {verb[0]} {counted(held, 'task')}" if held else f"its {who} {verb[1]} nothing", see
        if not all_of_it:
            return "no worker reports for it: start one", None
        why = f"its only worker {all_of_it[0].client} is lost"
        if len(all_of_it) > 1:
            why = f"all its {len(all_of_it)} workers are lost"
        of_lost = self._held.get(name)
        return why, _give_back(of_lost, name) if of_lost else see

    @cached_property
    def _holdings(self) -> Mapping[int, Holding]:
        return holdings()

    def _with_workers(self, name: str) -> str:
        live = len(self._live(name))
        return f", {counted(live, 'worker')}" if live else ""

    def _unusual_failures(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield the groups with far more failures than in the day before: how many, and what is usual in that time."""
        lately = _failures(Rate.objects.filter(minutes=1, minute__gte=self._minute - SPIKE_MINUTES))
        many = {name: count for name, count in lately.items() if count > FEW_FAILURES and name in self._stats}
        of_a_day = _failures(Rate.objects.filter(group__in=[*many], minute__gte=self._minute - DAY_MINUTES))
        for group, count in many.items():
            usual = (of_a_day[group] - count) * SPIKE_MINUTES / (DAY_MINUTES - SPIKE_MINUTES)
            if count > FEW_FAILURES + 3 * usual:
                yield group, (count, round(usual))


def _limit(name: str) -> Link:
    return Link(words="See the limit", page="group_limit", query={"name": name})


def _group(name: str) -> Link:
    return Link(words=name, page="group", query={"name": name})


def _listed(parts: Iterable[tuple[int, str]]) -> str:
    return ", ".join(f"{number(count)} {word}" for count, word in parts if count)


def _failures(rates: QuerySet[Rate]) -> dict[str, int]:
    return dict(rates.filter(failures__gt=0).values_list("group").annotate(Sum("failures")).order_by())


def of_pause(pause: PausedGroup, waiting: int, now_ms: int) -> Diagnosis:
    """Diagnose a paused group: paused by whom, when and why."""
    reason, when = pause.reason.rstrip("."), ago(min(pause.at_ms, now_ms), now_ms).replace("now", "just now")
    return Diagnosis(
        kind=Kind.PAUSED,
        of=_group(pause.group),
        since=f"by {pause.by} {when}" if pause.by else when,
        why=" ".join(f"{part}." for part in (reason, f"{number(waiting)} waiting" if waiting else "") if part),
        tasks=waiting,
        is_alarm=now_ms - pause.at_ms > LONG_PAUSE_MS,
    )


# ---- Workers


Held = Sequence[tuple[Seen, int]]  # Lost workers with the number of tasks that they hold.


def of_workers(clients: Iterable[Seen]) -> list[Diagnosis]:
    """Diagnose the lost workers that hold tasks."""
    silent = [client for client in clients if client.is_lost]
    held = holdings() if silent else {}
    return [of_worker(each, held[each.client.id]) for each in silent if each.client.id in held]


def together(lost: Sequence[Diagnosis]) -> Diagnosis:
    """Return one sentence about many lost workers."""
    tasks = sum(each.tasks for each in lost)
    return Diagnosis(
        kind=Kind.LOST,
        of=Link(words=counted(len(lost), "worker"), page="workers"),
        why=f"they hold {counted(tasks, 'task')} until the leases end.",
        count=len(lost),
        tasks=tasks,
        is_alarm=True,
    )


def of_worker(lost: Seen, held: Holding) -> Diagnosis:
    """Diagnose a lost worker that holds tasks."""
    return Diagnosis(
        kind=Kind.LOST,
        of=Link(words=str(lost.client), page="workers"),
        since=f"for {about(lost.age_ms)}",
        why=f"it holds {counted(held.tasks, 'task')} until the leases end.",
        advice=_give_back([(lost, held.tasks)]),
        tasks=held.tasks,
        is_alarm=True,
    )


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


def _with_lost_worker(group: str, held: Held) -> Diagnosis:
    (worst, _), others, tasks = held[0], len(held) - 1, sum(tasks for _, tasks in held)
    who = f"{worst.client} and {counted(others, 'other')} hold" if others else f"{worst.client} holds"
    return Diagnosis(
        kind=Kind.LOST,
        of=_group(group),
        word="Worker lost",
        since=f"for {about(worst.age_ms)}",
        why=f"{who} {counted(tasks, 'task')} until the leases end.",
        advice=_give_back(held, group),
        tasks=tasks,
        is_alarm=True,
    )


def _give_back(held: Held, group: str = "") -> Link:
    """Return the link that ends the leases of a lost worker, in one group or in all; that to the workers for many."""
    if len(held) > 1 or group.endswith("*"):
        return Link(words="See the workers", page="workers")
    [(worker, tasks)] = held
    which = f"group:{quoted(group)} " if group else ""
    return Link(
        words=f"Give back {counted(tasks, 'lease')}",
        page="confirm",
        is_change=True,
        query={"verb": "requeue", "q": f"{which}owner:{worker.client.id} state:claimed", "all": 1, "take_claimed": 1},
    )


# ---- Tasks


def of_task(task: Task, now_ms: int, clients: Sequence[Seen], data: bytes) -> Diagnosis | None:
    """Say why a task waits, or that the worker that holds it is lost. Returns None when there is nothing to say.

    `data`: that of the task, or its beginning.
    """
    state, of = task.state(now_ms), Link(words=str(task.id), page="task", args=(task.id,))
    if state is State.CLAIMED:
        lost = next((each for each in clients if each.client.id == task.owner and each.is_lost), None)
        if lost is None:
            return None
        return Diagnosis(
            kind=Kind.LOST,
            of=of,
            word="Worker lost",
            since=f"for {about(lost.age_ms)}",
            why=f"{lost.client} holds the task. The lease ends",
            next_ms=task.available_at_ms,
            advice=Link(words="Give it back", page="give_back", args=(task.id,), is_change=True),
        )
    if state in (State.READY, State.EXPIRED, State.RETRYING):
        group = of_groups(stats_of([task.group]), clients).get(task.group)
        is_due = task.available_at_ms <= now_ms
        if is_due and group is not None and group.kind in (Kind.STALLED, Kind.PAUSED):
            return group
    if LEFT_LABEL in task.labels and (left := _left(data)):
        return Diagnosis(
            kind=Kind.WAITING,
            of=of,
            word="Function missing",
            since=f"for {about(now_ms - left[1])}",
            why=f"no worker that has claimed it has {left[0]}. It is offered again",
            next_ms=task.available_at_ms,
        )
    if state is State.RETRYING:
        return Diagnosis(
            kind=Kind.WAITING,
            of=of,
            word="Retrying",
            why=f"{_next_attempt(task, data)}, {'due' if is_due else ''}".rstrip(),
            next_ms=task.available_at_ms,
        )
    return None


def _left(data: bytes) -> tuple[str, int] | None:
    """Return the function of a job that workers leave to others, and since when; None for others."""
    with suppress(NotAJob):
        record = JobRecord.decode(data)
        if left := record.lacks_function:
            return record.function, left.started
    return None


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


# ---- Notices


def elsewhere(clients: Sequence[Seen]) -> list[Diagnosis]:
    """Return the diagnoses that no row of a group shows: of workers, schedules, operations, the database and so on."""
    lost = of_workers(clients)
    lost = [together(lost)] if len(lost) > FEW_WORKERS else lost
    found = [*lost, *_broken(), *_running(), *_empty_and_paused(), *_long_transaction()]
    return sorted(found, key=lambda each: each.rank)


def _empty_and_paused() -> Iterator[Diagnosis]:
    now_ms = Task.objects.now_ms()
    long_ago = {each.group: each for each in PausedGroup.objects.all() if now_ms - each.at_ms > LONG_PAUSE_MS}
    for group in long_ago.keys() - stats_of([*long_ago]).keys() if long_ago else ():
        yield of_pause(long_ago[group], 0, now_ms)


def _broken() -> Iterator[Diagnosis]:
    """Find broken schedules, which add nothing until they are repaired."""
    set_aside = Task.objects.get_queryset().in_group(SCHEDULES).with_error().filter(available_at_ms=LATEST_MS)
    for task in set_aside.defer("data")[:MOST_GROUPS]:
        yield Diagnosis(
            kind=Kind.BROKEN,
            of=Link(words=task.labels.get(schedules.NAME_LABEL) or f"task {task.id}", page="schedules"),
            why="it adds nothing until it is repaired.",
            is_alarm=True,
        )


def _long_transaction() -> Iterator[Diagnosis]:
    """Find a transaction that somebody has left open: rows that are deleted meanwhile stay, and slow all down."""
    open_ms, whose = dialect_of(Task.objects.db).oldest_transaction()
    if open_ms > LONG_TRANSACTION_MS:
        yield Diagnosis(
            kind=Kind.BROKEN,
            of=Link(words="Database", page="limits"),
            word="Transaction open",
            since=f"for {about(open_ms)}",
            why=f"{whose}. Until it ends, deleted tasks take up room and claims become slower.",
            is_alarm=True,
        )


def _running() -> Iterator[Diagnosis]:
    for operation in BulkOperation.objects.filter(state=BulkOperation.State.RUNNING):
        words = f"{operation.verb.capitalize()} of {operation.in_words}"
        handled = operation.done + operation.skipped + operation.failed
        yield Diagnosis(
            kind=Kind.RUNNING,
            of=Link(words=words, page="operation", args=(operation.pk,)),
            why=f"{number(handled)} of {counted(operation.expected, 'task')} done.",
            tasks=handled,
        )
