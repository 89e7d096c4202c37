"""Why a group does what it does, and why a task or a batch waits: pure tables. The first cause that applies is told.

A cause that explains another comes before it: a lost worker before the limit that it fills, and before slow ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from taskstore.types.batches import Batch
from taskstore.types.limits import GroupLimit
from taskstore.types.tasks import State
from taskstore.units import about, ago, counted, number

from ..models import PausedGroup, Task
from ..reading.clients import Seen
from ..writer.totals import Numbers
from . import links
from .kinds import CALM, Diagnosis, Kind, Link
from .links import Held

MINUTE_MS = 60_000
STILL_MS = 10 * MINUTE_MS  # A group is stalled when its tasks wait for so long without a claim.
LONG_PAUSE_MS = 60 * MINUTE_MS
SPIKE_MINUTES = 10
FEW_FAILURES = 10
FLOW_MINUTES = 10
LEAST_GROWTH = 5  # Tasks in half of that time.


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a group; see evidence.py."""

    counts: Numbers
    now_ms: int = 0
    waits_ms: int = 0  # How long the oldest ready task has been ready.
    claimed_ms: int | None = None  # How long ago something was claimed; None: not within a day.
    is_for_workers: bool = False  # Jobs, commands and members of open batches wait for workers, whoever has claimed.
    out_per_minute: float = 0.0
    flow: Sequence[tuple[int, int]] = ()  # What entered and left, in the halves of the last FLOW_MINUTES.
    failures: tuple[int, int] | None = None  # In the last SPIKE_MINUTES, and what is usual; None: nothing unusual.
    pause: PausedGroup | None = None
    limit: GroupLimit | None = None
    live: Sequence[Seen] = ()  # The workers that have named the group.
    lost: Sequence[Seen] = ()
    held_by_live: int = 0  # What these hold, in all groups.
    held: Held = ()  # The lost workers that hold tasks of the group.
    lacking: tuple[str, int, int] | None = None  # A function that no worker has, since when, and how many jobs wait.

    @property
    def name(self) -> str:
        return self.counts.group

    @property
    def of(self) -> Link:
        return links.group(self.name)

    @property
    def waiting(self) -> str:
        counts = self.counts
        parts = [(counts.ready, "ready"), (counts.retrying, "retrying"), (counts.expired, "expired")]
        return ", ".join(f"{number(count)} {word}" for count, word in parts if count)

    @property
    def full(self) -> str:
        """Return in words how the limit holds the group back; empty if it doesn't."""
        return self.limit.why if self.limit and self.counts.to_do else ""

    @property
    def fills_limit(self) -> bool:
        """Whether leases fill the limit, so that the end of one lets another begin."""
        most = self.limit.running if self.full and self.limit else None
        return self.limit is not None and most is not None and any(use.leased >= most for use in self.limit.use)

    @property
    def lost_tasks(self) -> int:
        return sum(tasks for _, tasks in self.held)

    @property
    def is_all_lost(self) -> bool:
        """Whether lost workers hold all that is claimed, so that nobody goes on."""
        return bool(self.held) and self.lost_tasks >= self.counts.claimed

    @property
    def lost_holders(self) -> str:
        (worst, _), others = self.held[0], len(self.held) - 1
        return f"{worst.client} and {counted(others, 'other')}" if others else str(worst.client)

    @property
    def grows(self) -> bool:
        """Whether it grew by more than chance would in both halves of the time."""
        return bool(self.flow) and all(
            entered - left > max(LEAST_GROWTH, 2 * sqrt(entered + left)) for entered, left in self.flow
        )


Cause = Callable[[Facts], Diagnosis | None]


def diagnosis_of(facts: Facts) -> Diagnosis:
    """Return the first diagnosis that applies."""
    return next(found for cause in CAUSES if (found := cause(facts)))


# ---- Since when nothing is claimed, and why


def stalled_for_ms(facts: Facts) -> int | None:
    """Return for how long tasks have been waiting without a claim though workers should claim there; None: they don't.

    Other groups hold configuration or outputs, which no worker claims.
    """
    waits_ms = facts.waits_ms
    if facts.claimed_ms is not None:
        waits_ms = min(waits_ms, facts.claimed_ms)
    elif not (facts.live or facts.is_for_workers):
        return None
    return waits_ms if waits_ms > STILL_MS else None


Reason = tuple[str, Link | None]


def lost_hold_all(facts: Facts) -> Reason | None:
    if not (facts.held and (facts.fills_limit or facts.is_all_lost)):
        return None
    held = "all" if facts.is_all_lost else number(facts.lost_tasks)
    verb = "are" if len(facts.held) > 1 else "is"
    who = f"{facts.lost_holders}, which {verb} lost"
    why = f"{facts.full}, {held} of them by {who}"
    if not facts.fills_limit:
        tasks = counted(facts.lost_tasks, "task")
        why = f"{facts.lost_holders} {verb} lost and {'hold' if len(facts.held) > 1 else 'holds'} {tasks}"
    return why, links.give_back(facts.held, facts.name)


def limit_is_full(facts: Facts) -> Reason | None:
    return (f"held back by its limit: {facts.full}", links.limit(facts.name)) if facts.full else None


def live_are_busy(facts: Facts) -> Reason | None:
    if not facts.live:
        return None
    one = len(facts.live) == 1
    who = f"only live worker {facts.live[0].client}" if one else f"{len(facts.live)} live workers"
    if not facts.held_by_live:
        return f"its {who} {'claims' if one else 'claim'} nothing", links.WORKERS
    return f"its {who} {'holds' if one else 'hold'} {counted(facts.held_by_live, 'task')}", links.WORKERS


def all_are_lost(facts: Facts) -> Reason | None:
    if not facts.lost:
        return None
    if len(facts.lost) == 1:
        return f"its only worker {facts.lost[0].client} is lost", links.WORKERS
    return f"all its {len(facts.lost)} workers are lost", links.WORKERS


def no_worker(facts: Facts) -> Reason:
    return "no worker claims there: start one", None


REASONS: Sequence[Callable[[Facts], Reason | None]] = (
    lost_hold_all,
    limit_is_full,
    live_are_busy,
    all_are_lost,
    no_worker,
)


# ---- The causes


ALARMS = {Kind.STALLED, Kind.LOST, Kind.FAILING, Kind.BROKEN}


def _told(
    facts: Facts | TaskFacts | BatchFacts,
    kind: Kind,
    why: str = "",
    *,
    word: str = "",
    since_ms: int | None = None,
    next_ms: int | None = None,
    advice: Link | None = None,
    tasks: int | None = None,
) -> Diagnosis:
    return Diagnosis(
        kind=kind,
        of=facts.of,
        word=word,
        since="" if since_ms is None else f"for {about(since_ms)}",
        why=why,
        next_ms=next_ms,
        advice=advice,
        tasks=facts.counts.to_do if tasks is None and isinstance(facts, Facts) else tasks or 0,
        is_alarm=kind in ALARMS,
    )


def paused(facts: Facts) -> Diagnosis | None:
    """Say by whom it was paused, when and why."""
    pause, now_ms, to_do = facts.pause, facts.now_ms, facts.counts.to_do
    if pause is None:
        return None
    reason, when = pause.reason.rstrip("."), ago(min(pause.at_ms, now_ms), now_ms).replace("now", "just now")
    why = " ".join(f"{part}." for part in (reason, f"{number(to_do)} waiting" if to_do else "") if part)
    found, since = _told(facts, Kind.PAUSED, why), f"by {pause.by} {when}" if pause.by else when
    return replace(found, since=since, is_alarm=now_ms - pause.at_ms > LONG_PAUSE_MS)


def stalled(facts: Facts) -> Diagnosis | None:
    since_ms = stalled_for_ms(facts)
    if since_ms is None:
        return None
    why, advice = next(found for reason in REASONS if (found := reason(facts)))
    return _told(facts, Kind.STALLED, f"{facts.waiting}, {why}.", since_ms=since_ms, advice=advice)


def held_by_lost(facts: Facts) -> Diagnosis | None:
    if not (facts.is_all_lost or (facts.held and facts.fills_limit)):  # Otherwise other workers go on.
        return None
    verb = "hold" if len(facts.held) > 1 else "holds"
    full = f", {facts.full}" if facts.fills_limit else ""
    why = f"{facts.lost_holders} {verb} {counted(facts.lost_tasks, 'task')} until the leases end{full}."
    since_ms, advice = facts.held[0][0].age_ms, links.give_back(facts.held, facts.name)
    return _told(facts, Kind.LOST, why, word="Worker lost", since_ms=since_ms, advice=advice, tasks=facts.lost_tasks)


def without_function(facts: Facts) -> Diagnosis | None:
    if not facts.lacking:
        return None
    function, since_ms, jobs = facts.lacking
    why, advice = f"no worker has {function}, {number(jobs)} waiting.", links.without_function(facts.name)
    since_ms = facts.now_ms - since_ms
    return _told(facts, Kind.STALLED, why, word="Function missing", since_ms=since_ms, advice=advice, tasks=jobs)


def failing(facts: Facts) -> Diagnosis | None:
    if not facts.failures:
        return None
    failures, usual = facts.failures
    why = f"{number(failures)} errors in {SPIKE_MINUTES} min, usually {number(usual) if usual else 'none'}."
    return _told(facts, Kind.FAILING, why, advice=links.errors(facts.counts), tasks=failures)


def growing(facts: Facts) -> Diagnosis | None:
    # Groups without claims, such as those of outputs, are meant to grow.
    if facts.claimed_ms is None or facts.waits_ms < MINUTE_MS or not facts.grows:
        return None
    entered, left = (round(sum(numbers) / FLOW_MINUTES) for numbers in zip(*facts.flow, strict=True))
    workers = f", {counted(len(facts.live), 'worker')}" if facts.live else ""
    full = f", at its limit: {facts.full}" if facts.full else ""
    why = f"{number(entered)} in, {number(left)} out per minute{workers}{full}."
    advice = links.limit(facts.name) if facts.full else None
    return _told(facts, Kind.GROWING, why, since_ms=FLOW_MINUTES * MINUTE_MS, advice=advice)


def limited(facts: Facts) -> Diagnosis | None:
    if not facts.full:
        return None
    return _told(facts, Kind.LIMITED, f"{facts.full}.", word="At its limit", advice=links.limit(facts.name))


def working(facts: Facts) -> Diagnosis | None:
    return _told(facts, Kind.WORKING) if facts.counts.claimed or facts.out_per_minute else None


def unclaimed(facts: Facts) -> Diagnosis | None:
    """Configuration and outputs are meant to stay: that nobody claims is told, and no alarm."""
    if facts.claimed_ms is not None or facts.waits_ms <= STILL_MS:
        return None
    why = f"{facts.waiting}, no worker claims there."
    return _told(facts, Kind.WAITING, why, word="Unclaimed", since_ms=facts.waits_ms)


def waiting(facts: Facts) -> Diagnosis | None:
    counts = facts.counts
    waits = counts.scheduled or counts.retrying or (counts.ready and facts.claimed_ms is not None)
    return _told(facts, Kind.WAITING) if waits else None


def has_failed(facts: Facts) -> Diagnosis | None:
    failed = facts.counts.failed
    if not failed:
        return None
    why = f"{counted(failed, 'task')} failed for good."
    return _told(facts, Kind.FAILED, why, advice=links.errors(facts.counts), tasks=failed)


def idle(facts: Facts) -> Diagnosis:
    return _told(facts, Kind.IDLE)


CAUSES: Sequence[Cause] = (
    paused,
    stalled,
    held_by_lost,
    without_function,
    failing,
    growing,
    limited,
    working,
    unclaimed,
    waiting,
    has_failed,
    idle,
)


# ---- Tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """What is known of a living task."""

    task: Task
    state: State
    now_ms: int
    group: Facts | None = None  # None: it need not be asked.
    holder: Seen | None = None  # The worker that holds it, if it has said something within a day.
    left: tuple[str, int] | None = None  # The function of a job that workers leave to others, and since when.
    attempt: str = ""  # The next one, of one that has failed.
    ahead: int = 0  # How many are claimed before it.
    most_ahead: int = 0  # So many are counted.

    @property
    def of(self) -> Link:
        return Link(words=str(self.task.id), page="task", args=(self.task.id,))

    @property
    def is_due(self) -> bool:
        return self.task.available_at_ms <= self.now_ms


TaskCause = Callable[[TaskFacts], Diagnosis | None]


def holder_is_lost(facts: TaskFacts) -> Diagnosis | None:
    lost = facts.holder
    if facts.state is not State.CLAIMED or lost is None or not lost.is_lost:
        return None
    why, ends_ms = f"{lost.client} holds the task. The lease ends", facts.task.available_at_ms
    advice = Link(words="Give it back", page="give_back", args=(facts.task.id,), is_change=True)
    return _told(facts, Kind.LOST, why, word="Worker lost", since_ms=lost.age_ms, next_ms=ends_ms, advice=advice)


def group_holds_it_back(facts: TaskFacts) -> Diagnosis | None:
    found = diagnosis_of(facts.group) if facts.group and facts.is_due else None
    return found if found and found.kind in (Kind.STALLED, Kind.LOST, Kind.PAUSED) else None


def nobody_has_its_function(facts: TaskFacts) -> Diagnosis | None:
    if not facts.left:
        return None
    function, since_ms = facts.left
    why, next_ms = f"no worker that has claimed it has {function}. It is offered again", facts.task.available_at_ms
    since_ms = facts.now_ms - since_ms
    return _told(facts, Kind.WAITING, why, word="Function missing", since_ms=since_ms, next_ms=next_ms)


def is_tried_again(facts: TaskFacts) -> Diagnosis | None:
    if facts.state is not State.RETRYING:
        return None
    why = f"{facts.attempt}, {'due' if facts.is_due else ''}".rstrip()
    return _told(facts, Kind.WAITING, why, word="Retrying", next_ms=facts.task.available_at_ms)


def is_in_line(facts: TaskFacts) -> Diagnosis | None:
    group = facts.group
    if group is None or facts.state not in (State.READY, State.EXPIRED):
        return None
    more = "at least " if facts.ahead >= facts.most_ahead else ""
    ahead = f"behind {more}{counted(facts.ahead, 'other')}" if facts.ahead else "next in line"
    if group.full:
        goes_on = group.full
    elif group.live or group.counts.claimed:
        workers = f"{counted(len(group.live), 'worker')}, " if group.live else ""
        goes_on = f"{workers}{number(group.counts.claimed)} claimed"
    else:
        goes_on = "no worker claims there"
    since_ms, advice = facts.now_ms - facts.task.available_at_ms, links.limit(group.name) if group.full else None
    return _told(group, Kind.WAITING, f"{ahead}; {goes_on}.", since_ms=since_ms, advice=advice, tasks=0)


TASK_CAUSES: Sequence[TaskCause] = (
    holder_is_lost,
    group_holds_it_back,
    nobody_has_its_function,
    is_tried_again,
    is_in_line,
)


def diagnosis_of_task(facts: TaskFacts) -> Diagnosis | None:
    """Return the first diagnosis that applies; None when there is nothing to say."""
    return next((found for cause in TASK_CAUSES if (found := cause(facts))), None)


# ---- Batches


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """What is known of a batch: itself, its members with those of the batches within it, and their groups."""

    batch: Batch
    members: Mapping[str, Mapping[State, int]]  # By group.
    groups: Mapping[str, Facts]  # Those in which members are to be done.

    def to_do(self, group: str) -> Mapping[State, int]:
        """Return the members of the group that have not ended, by state."""
        return {state: count for state, count in self.members[group].items() if state not in ENDED}

    @property
    def of(self) -> Link:
        return Link(words=self.batch.name or f"batch {self.batch.id}", page="batch", args=(self.batch.id,))

    @property
    def culprit(self) -> Diagnosis | None:
        """Return the diagnosis of the group that it waits for: the one in the worst trouble, with the most members."""
        found = [diagnosis_of(facts) for facts in self.groups.values()]
        return min(found, key=lambda each: (each.rank[0], -sum(self.to_do(each.of.words).values())), default=None)


ENDED = (State.FAILED, State.FINISHED)
BatchCause = Callable[[BatchFacts], Diagnosis | None]


def _of_batch(facts: BatchFacts, kind: Kind, why: str) -> Diagnosis:
    return _told(facts, kind, why, word=facts.batch.state.capitalize())


def was_deleted(facts: BatchFacts) -> Diagnosis | None:
    return _of_batch(facts, Kind.IDLE, "It was deleted, and adds nothing.") if facts.batch.deleted else None


def has_succeeded(facts: BatchFacts) -> Diagnosis | None:
    if facts.batch.state != "succeeded":
        return None
    count_as_that = ", or count as that" if facts.batch.failed else ""
    return _of_batch(facts, Kind.IDLE, f"All its tasks have succeeded{count_as_that}.")


def batch_has_failed(facts: BatchFacts) -> Diagnosis | None:
    batch = facts.batch
    if batch.state != "failed":
        return None
    what = "A batch within it has failed"
    if batch.gone:
        were = "was" if batch.gone == 1 else "were"
        what = f"{number(batch.gone)} of its tasks {were} cancelled, purged or removed"
    return _of_batch(facts, Kind.FAILED, f"{what}: what was to follow is not added.")


def lacks_rights(facts: BatchFacts) -> Diagnosis | None:
    why = "It adds nothing until an operator takes it over, or the rights are back."
    return _of_batch(facts, Kind.BROKEN, why) if facts.batch.lost_rights else None


def can_not_add(facts: BatchFacts) -> Diagnosis | None:
    why = "It could not add what it plans, and stays open."
    return _of_batch(facts, Kind.BROKEN, why) if facts.batch.problem else None


def only_failed_are_left(facts: BatchFacts) -> Diagnosis | None:
    batch = facts.batch
    if not batch.is_stuck or batch.children:
        return None
    return _of_batch(facts, Kind.FAILING, f"{number(batch.failed)} failed: requeue them, or complete it without them.")


def is_held(facts: BatchFacts) -> Diagnosis | None:
    why = "It stays open until it is released."
    return _of_batch(facts, Kind.WAITING, why) if facts.batch.state == "held" else None


def waits_for_members(facts: BatchFacts) -> Diagnosis | None:
    batch, culprit = facts.batch, facts.culprit
    if not batch.open or culprit is None:
        return None
    group = culprit.of.words
    states = facts.to_do(group)
    of_group = sum(states.values())
    parts = ", ".join(f"{number(count)} {state}" for state, count in states.items())
    here = f"{number(of_group)} in {group}" if len(facts.groups) > 1 else group
    is_trouble = culprit.kind not in CALM or culprit.rest
    why = f"{culprit.what.lower()} {culprit.rest}" if is_trouble and culprit.since else culprit.rest or f"{parts}."
    failed = f" {number(batch.failed)} failed." if batch.failed and not batch.failed_ends else ""
    why = f"Waits for {number(batch.open)} of {number(batch.total)}: {here}, {why}{failed}"
    return replace(_told(facts, culprit.kind, why, word="Open", advice=culprit.advice), is_alarm=culprit.is_alarm)


def waits_for_batches(facts: BatchFacts) -> Diagnosis | None:
    batch = facts.batch
    within = "batch" if batch.children == 1 else f"{number(batch.children)} batches"
    return _of_batch(facts, Kind.WAITING, f"It waits for the {within} within it.") if batch.children else None


def is_empty(facts: BatchFacts) -> Diagnosis:
    batch = facts.batch
    return _of_batch(facts, Kind.WAITING, f"{number(batch.open)} to go." if batch.open else "It has no tasks.")


BATCH_CAUSES: Sequence[BatchCause] = (
    was_deleted,
    has_succeeded,
    batch_has_failed,
    lacks_rights,
    can_not_add,
    only_failed_are_left,
    is_held,
    waits_for_members,
    waits_for_batches,
    is_empty,
)


def diagnosis_of_batch(facts: BatchFacts) -> Diagnosis:
    """Return the first diagnosis that applies."""
    return next(found for cause in BATCH_CAUSES if (found := cause(facts)))
