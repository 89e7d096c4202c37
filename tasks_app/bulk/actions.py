"""The bulk actions: their options, their effect on a task, and their undo."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple, Self

from taskstore.errors import InvalidInput
from taskstore.types import bulk
from taskstore.types.bulk import COUNTS_AS_DONE, BulkAction, ClosedBatch, Option
from taskstore.types.cancelling import cancelled, error_of, kept_in
from taskstore.types.job_record import group_to_wait_in
from taskstore.types.scalars import LATEST_MS, MOST_PRIORITY, Limits
from taskstore.types.sentences import group_name, text
from taskstore.types.tasks import (
    ATTEMPTS,
    FAILED_FROM,
    PLAIN,
    Change,
    Ending,
    NewTask,
    Origin,
    Problem,
    State,
    holds_results,
)

from ..core.operations import TaskRecord
from ..models import BulkItem, BulkOperation, Task

MOST_SPREAD_MINUTES = 30 * 24 * 60
MINUTE_MS = 60_000

CLAIMED_BY_A_WORKER = "claimed by a worker"
READY_ALREADY = "already ready"
NOT_LEASED = "not leased"
RETRIED_ELSEWHERE = "a command that has ended: retry it in its project"
IN_THAT_GROUP = "already in that group"
THERE_ALREADY = "already there"
CHANGED_SINCE = "changed since"
KEY_TAKEN = "another task holds its key"
ENDED_SINCE = "ended since"
ENDED_ALREADY = "ended already"
HAD_BEGUN = "a worker had begun it"


class Skip(NamedTuple):
    """The reason to skip a task."""

    why: str


class Turn(NamedTuple):
    """The position of a task in its operation."""

    before: int  # The number of tasks before it.
    of: int  # The number of all tasks.
    began_at_ms: int
    by: str  # Who began it, and why.
    reason: str


@dataclass(frozen=True, kw_only=True)
class Action(ABC):
    """An action on many tasks. Its fields are its options, by name."""

    words: ClassVar[BulkAction]
    ending: ClassVar[Ending] = Ending.CHANGED  # For the history.
    makes_available: ClassVar[bool] = False  # Skips ready tasks; a preview shows the target groups of the others.
    ends_tasks: ClassVar[bool] = False  # An undo must add them again.
    only_deletes: ClassVar[bool] = False  # Nothing goes on in another group.

    takes_claimed: bool = False  # Includes tasks that workers hold, and ends their leases.
    counts_as_done: bool = False  # Their batches go on as if the tasks had succeeded.

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> Self:
        """Return the action that `as_json` described."""
        return cls(**{field.name: kept[field.name] for field in fields(cls) if field.name in kept})

    @property
    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def to_group(self) -> str:
        """Return the only group that all tasks go to; empty when they stay or go to several."""
        return ""

    def options_for(self, dead_letters: int, closes: Sequence[ClosedBatch]) -> list[Option]:
        """Return the options to offer for a selection with so many dead letters, which closes these batches."""
        needs = {"here": dead_letters, COUNTS_AS_DONE.name: closes}
        return [option for option in self.words.options if needs.get(option.name, True)]

    def problems(self, group: str) -> Iterator[Problem]:
        """Yield the errors of the options for tasks of the group (empty: of several)."""
        yield from ()

    def to_do(self, task: TaskRecord, now_ms: int, turn: Turn) -> Change | int | Skip:
        """Return what to do with a task: a change, its id to delete it, or the reason to skip it."""
        state = task.state(now_ms)
        if state is State.CLAIMED and not (self.takes_claimed or self.words.of_leases):
            return Skip(CLAIMED_BY_A_WORKER)
        return self.step(task, state, turn)

    @abstractmethod
    def step(self, task: TaskRecord, state: State, turn: Turn) -> Change | int | Skip:
        """Return the same for a task that is not claimed, or whose lease may end."""

    def step_back(self, item: BulkItem, now: Task | None, now_ms: int) -> Change | NewTask | Skip:
        """Return the change that undoes the action. `item` is the task as it was, `now` as it is; None: it ended."""
        if now is None:
            return Skip(ENDED_SINCE)
        if now.made_by_commit != item.commit:
            return Skip(CHANGED_SINCE)
        return Change(
            id=now.id,
            timespec_ms=_time_before(item, now_ms),
            failed_from=item.labels.get(FAILED_FROM, ""),
            release=True,
            **{name: getattr(item, name) for name in ("group", "error", "labels", *PLAIN)},
        )


@dataclass(frozen=True, kw_only=True)
class Requeue(Action):
    """Make tasks available again and clear their errors."""

    words = bulk.REQUEUE
    ending = Ending.REQUEUED
    makes_available = True

    at: int = 0  # The available time in ms; 0: now.
    spread_minutes: int = 0  # Spreads the available times evenly over so long; 0: all at once.
    here: bool = False  # Dead letters stay in their group.

    def problems(self, group: str) -> Iterator[Problem]:
        if not 0 <= self.at <= LATEST_MS:
            yield "at", f"must be milliseconds since the Epoch, between 0 (now) and {LATEST_MS}"
        if not 0 <= self.spread_minutes <= MOST_SPREAD_MINUTES:
            yield "spread_minutes", f"must be a whole number between 0 (all at once) and {MOST_SPREAD_MINUTES}"

    def step(self, task: TaskRecord, state: State, turn: Turn) -> Change | Skip:
        if not (self.at or self.spread_minutes):
            return Skip(READY_ALREADY) if state is State.READY else requeued(task, here=self.here)
        spread_ms = self.spread_minutes * MINUTE_MS * turn.before // max(turn.of, 1)
        return requeued(task, here=self.here, at_ms=min((self.at or turn.began_at_ms) + spread_ms, LATEST_MS))


@dataclass(frozen=True, kw_only=True)
class GiveBack(Action):
    """End leases. It has no undo: what a worker held may be with another one."""

    words = bulk.GIVE_BACK
    ending = Ending.GIVEN_BACK

    def step(self, task: TaskRecord, state: State, turn: Turn) -> Change | Skip:
        return Change(id=task.id, release=True) if task.leased else Skip(NOT_LEASED)


@dataclass(frozen=True, kw_only=True)
class Move(Action):
    """Move tasks to another group."""

    words = bulk.MOVE
    ending = Ending.MOVED

    to: str = ""
    create: bool = False  # The group may be new.

    @property
    def to_group(self) -> str:
        return self.to

    def problems(self, group: str) -> Iterator[Problem]:
        if wrong := list(group_name("to", self.to)):
            yield from wrong
        elif self.to == group:
            yield "to", "must be a group other than the one that the tasks are in"
        elif not self.create and not Task.objects.get_queryset().in_group(self.to).exists():
            remedy = "name another group, or use the option to create it"
            yield "to", f"must be an existing group, and {self.to} does not exist: {remedy}"

    def step(self, task: TaskRecord, state: State, turn: Turn) -> Change | Skip:
        return Skip(IN_THAT_GROUP) if task.group == self.to else changed(task, state, group=self.to)


@dataclass(frozen=True, kw_only=True)
class Edit(Action):
    """Change the error text or the priority of tasks."""

    words = bulk.EDIT

    error: str | None = None  # Empty clears it, None keeps it.
    priority: int | None = None  # None keeps it.

    def problems(self, group: str) -> Iterator[Problem]:
        if self.error is None and self.priority is None:
            yield "error", "must be given unless a priority is: there is nothing to change"
        yield from text("error", self.error or "", Limits().error_length)
        if not -MOST_PRIORITY <= (self.priority or 0) <= MOST_PRIORITY:
            yield "priority", f"must be a whole number between {-MOST_PRIORITY} and {MOST_PRIORITY}"

    def step(self, task: TaskRecord, state: State, turn: Turn) -> Change:
        return changed(task, state, priority=self.priority, error=self.error)


@dataclass(frozen=True, kw_only=True)
class Purge(Action):
    """Delete tasks. The undo adds each again, with a new id in its chain."""

    words = bulk.PURGE
    ending = Ending.PURGED
    ends_tasks = only_deletes = True

    batch: int = 0  # It is the end of this batch, which its undo opens again.

    def step(self, task: TaskRecord, state: State, turn: Turn) -> Change | int | Skip:
        return task.id

    def step_back(self, item: BulkItem, now: Task | None, now_ms: int) -> Change | NewTask | Skip:
        if now is not None:
            return Skip(THERE_ALREADY)
        return NewTask.successor_of(
            item,
            id=0,
            data=bytes(item.data),
            timespec_ms=_time_before(item, now_ms),
            failed_from=item.labels.get(FAILED_FROM, ""),
            unique=item.unique or None,
            unique_group=item.unique_group,
            batch=0 if self.counts_as_done else item.batch,
            origin=Origin(id=item.origin, claims=item.claims, created_at_ms=item.created_at_ms),
        )


@dataclass(frozen=True, kw_only=True)
class Cancel(Purge):
    """End tasks: jobs and commands stay as cancelled ones, others are deleted."""

    words = bulk.CANCEL
    ending = Ending.CANCELLED
    only_deletes = False

    def step(self, task: TaskRecord, state: State, turn: Turn) -> Change | int | Skip:
        if holds_results(task.group):
            return Skip(ENDED_ALREADY)
        return cancelled(task.id, task.group, error_of(turn.by, turn.reason))

    def step_back(self, item: BulkItem, now: Task | None, now_ms: int) -> Change | NewTask | Skip:
        if item.leased_since_ms:
            return Skip(HAD_BEGUN)
        if kept_in(item.group) is None:
            return super().step_back(item, now, now_ms)
        return Action.step_back(self, item, now, now_ms)


ACTIONS: Mapping[str, type[Action]] = {
    action.words.name: action for action in (Requeue, GiveBack, Move, Edit, Cancel, Purge)
}


def action_of(operation: BulkOperation) -> Action:
    """Return the action of an operation that is not an undo."""
    return ACTIONS[operation.verb].read(operation.parameters)


def action_named(name: str) -> type[Action]:
    """Return the action. Raises InvalidInput about `verb`."""
    if name not in ACTIONS:
        raise InvalidInput({"verb": [f"must be one of {', '.join(ACTIONS)}"]})
    return ACTIONS[name]


def target_of(group: str, failed_from: str = "", *, here: bool = False) -> str | None:
    """Return the group that a requeue puts a task of this group into: a dead letter returns to where it failed.

    With `here`, it stays. Returns None for an ended command, which only the verbs of its project submit again.
    """
    # Failed jobs are in a group from which no worker claims.
    if queue := group_to_wait_in(group):
        return queue
    if holds_results(group):
        return None
    return failed_from if failed_from and not here else group


def requeued(task: TaskRecord, *, here: bool = False, at_ms: int = 0) -> Change | Skip:
    """Return the change that requeues the task, or the reason to skip it."""
    group = target_of(task.group, task.failed_from, here=here)
    if group is None:
        return Skip(RETRIED_ELSEWHERE)
    labels = {name: value for name, value in task.labels.items() if name != ATTEMPTS} if task.failed_from else None
    return Change(id=task.id, group=group, timespec_ms=at_ms, error="", labels=labels, failed_from="", release=True)


def changed(task: TaskRecord, state: State, **changes: Any) -> Change:
    """Return a change of the named fields. It ends a lease, so a claimed task becomes available at once."""
    at_ms = 0 if state is State.CLAIMED else max(task.available_at_ms, 1)
    return Change(id=task.id, timespec_ms=at_ms, release=True, **changes)


def _time_before(item: BulkItem, now_ms: int) -> int:
    """Return the available time without the lease: at once, or since the time when the lease would have ended."""
    return 0 if item.leased_since_ms and item.available_at_ms > now_ms else max(item.available_at_ms, 1)
