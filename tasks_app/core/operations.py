"""Operations of the store and their results: frozen values, no Django.

The words are those of contract.md section 1. Times are milliseconds since the
Epoch (UTC), durations are milliseconds, ids are positive 64-bit integers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct

from taskstore.types.batches import NO_PLAN, NewBatch, Plan
from taskstore.types.scalars import is_in_group, prepare
from taskstore.types.schedules import reached_by
from taskstore.types.tasks import (
    COMMAND_GROUPS,
    FAILED_FROM,
    NOBODY,
    Change,
    Ending,
    NewTask,
    Order,
    Refusal,
    Standing,
    State,
    Task,
    answer_of,
)


@dataclass(frozen=True, slots=True)
class GroupScope:
    """The groups that somebody may touch: exact names, or prefixes written with a star.

    `pay` allows only `pay`; `pay/*` allows every name that begins with `pay/`. None: every group. Groups with shell
    commands among them may be changed only when `no_commands_because` is empty; it says what is missing.

    `holder`: who has these rights, as schedules and batches remember it; see access/rights.py. Empty: the program.
    """

    patterns: tuple[str, ...] | None = None
    no_commands_because: str = ""
    owners: tuple[int, ...] | None = None  # For whom changes may be made; None: for everybody.
    holder: str = ""

    @classmethod
    def of_holder(cls, holder: str, groups: str, *, may_command: bool) -> GroupScope:
        """Return rights as they are stored: `groups` is a list of patterns in JSON, or null. Empty: the program's."""
        if not holder:
            return EVERY_GROUP
        patterns = json.loads(groups)
        because = "" if may_command else f"{holder} may not add commands"
        return cls(None if patterns is None else tuple(patterns), because, holder=holder)

    @property
    def is_everything(self) -> bool:
        return self.patterns is None or "*" in self.patterns

    def allows(self, group: str) -> bool:
        if self.patterns is None:
            return True
        return any(is_in_group(pattern, group) for pattern in self.patterns)

    def narrowed(self, to: Sequence[str]) -> GroupScope:
        """Return the scope of those groups that these names or prefixes stand for, too; of all without any."""
        if not to:
            return self
        allowed = ("*",) if self.patterns is None else self.patterns
        both = [pair for one in allowed for other in to for pair in ((one, other), (other, one))]
        return replace(self, patterns=tuple(narrow for wide, narrow in both if _covers(wide, narrow)))

    @property
    def is_restricted(self) -> bool:
        """Return whether it excludes some groups from adds."""
        return self.patterns is not None or bool(self.no_commands_because)

    def why_forbidden(self, group: str) -> str:
        """Why tasks of the group may be seen but not changed, as a sentence; empty: they may."""
        if self.no_commands_because and group.startswith(COMMAND_GROUPS):
            return f'Tasks of the group "{group}" can\'t be changed: {self.no_commands_because}.'
        return ""

    def why_out_of_reach(self, group: str) -> str:
        """Why nothing may be put into the group, as a sentence; empty: it may."""
        if not self.allows(group):
            return f'This token has no access to the group "{group}".'
        return self.why_forbidden(group)


def _covers(wide: str, narrow: str) -> bool:
    """Whether all groups of the one pattern are among those of the other."""
    return wide == narrow or (wide.endswith("*") and narrow.removesuffix("*").startswith(wide[:-1]))


EVERY_GROUP = GroupScope()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A person, or a program in a person's place, who may override owners. The trail keeps it."""

    name: str
    overrides: bool = True  # False: those who hold a lease have a say as ever.
    ending: Ending = Ending.CHANGED  # What the trail says became of the tasks.
    reason: str = ""
    counts_as_done: bool = False  # The batches of the tasks that it ends go on as if these had succeeded.
    bulk: int = 0  # The bulk operation that this is a part of: what it replaces is kept for the undo. 0: none.


class ResendKey(Struct, frozen=True):
    """An idempotency key: an operation sent again with the same key gets the same answer."""

    key: str  # With its holder's name in front: another holder's same key is another one.
    digest: str  # Of the request: the same key with another request makes no sense.


class Step(Enum):
    RELEASE = "release"
    DELETE = "delete"  # Take no more tasks, and add nothing at the end.
    REOPEN = "reopen"
    COMPLETE = "complete"  # From now on members that have failed or gone count as succeeded.
    LOOK = "look"  # Close if there is nothing to wait for any more.
    ADD_LATER = "add later"  # Add tasks when it has closed; now if it has.


@dataclass(frozen=True, slots=True)
class BatchStep:
    """What to do with a batch beside its members."""

    id: int
    step: Step
    plan: Plan = NO_PLAN  # For ADD_LATER, whose `then` is a single level.
    takes_over: tuple[int, ...] = ()  # The rows of its plans that have the rights of this commit from now on.
    also: tuple[int, ...] = ()  # Batches within it with which the same is done.


class Commit(Struct, frozen=True, kw_only=True):
    """One all-or-nothing change, on the condition that all `depends` exist."""

    owner: int
    adds: tuple[NewTask, ...] = ()
    updates: tuple[Change, ...] = ()
    deletes: tuple[int, ...] = ()
    depends: tuple[int, ...] = ()
    scope: GroupScope = EVERY_GROUP  # A task of another group is treated as not there.
    operator: Operator | None = None  # Set: owners are overridden.
    key: ResendKey | None = None
    is_told: bool = False  # Whether an answer has all the new tasks, with their data, and so takes room.
    batch: NewBatch | BatchStep | None = None  # New: its new tasks are the first members.

    @property
    def changed_ids(self) -> tuple[int, ...]:
        """The ids that it updates or deletes."""
        return (*[change.id for change in self.updates], *self.deletes)

    @property
    def weight(self) -> int:
        """How many tasks it may be about."""
        return len(self.adds) + len(self.updates) + len(self.deletes) + len(self.depends)

    @property
    def data_bytes(self) -> int:
        if not (self.adds or self.updates or self.batch):
            return 0  # Most commits only delete, and each is asked twice.
        planned = self.batch.plan.size if self.batch else 0
        return (
            planned
            + sum([len(add.data) for add in self.adds])
            + sum([len(change.data or b"") for change in self.updates])
        )


class Claim(Struct, frozen=True, kw_only=True):
    """Take up to `limit` available tasks of these groups: successors, leased to `owner` for `duration_ms`."""

    groups: tuple[str, ...]  # Higher priority first; within a priority the groups in turn.
    owner: int
    duration_ms: int = 60_000  # Below 0: 0.
    limit: int = 1
    order: Order = Order.RANDOM
    depends: tuple[int, ...] = ()
    scope: GroupScope = EVERY_GROUP
    wait_ms: int = 0  # How long to wait until there is something.
    is_list: bool = False  # Whether the request has a list of groups, for the path of a wrong name.
    key: ResendKey | None = None
    is_told: bool = False  # As of a commit.

    @property
    def weight(self) -> int:
        """How many tasks it may be about."""
        return self.limit + len(self.depends)

    @property
    def data_bytes(self) -> int:
        return 0

    @property
    def reachable(self) -> tuple[str, ...]:
        """The groups that the client may touch. The others are empty to it."""
        return tuple(group for group in self.groups if self.scope.allows(group))


class Update(Commit, frozen=True, kw_only=True):
    """A commit in MassTasker's words: it may do nothing, and groups may have no name (contract.md section 6).

    An add that takes the place of a task goes on with its priority, and with its lease when its time is in the future:
    there is no other way to renew one.
    """

    owner: int = NOBODY
    matched: frozenset[int] = frozenset()  # Deletes that were described, not named: only their owners are overridden.


class Query(Claim, frozen=True, kw_only=True):
    """A claim in MassTasker's words: the longest available task of a group, whatever its priority.

    The group may be the one without a name, and nothing but the client ends the wait.
    """

    owner: int = NOBODY
    duration_ms: int = 0  # 0 or below: the task is only read, and stays as it is.
    at_ms: int = 0  # The moment of the question and of the lease, by the client's clock; 0: now, by the store's.

    @property
    def only_reads(self) -> bool:
        return self.duration_ms <= 0


Operation = Commit | Claim


class OtherKey(Refusal, frozen=True, kw_only=True):
    """A refusal because a successor was to get another key."""

    wrong: tuple[tuple[str, str], ...]  # The paths of the fields, with what is right.

    def __bool__(self) -> bool:
        return True


class Prohibited(Refusal, frozen=True, kw_only=True):
    """A refusal because of who asks. Other reasons are not told."""

    forbidden: tuple[str, ...]  # Why groups with shell commands may not be changed by this client.

    def __bool__(self) -> bool:
        return True


prepare(Prohibited)


@dataclass(frozen=True, slots=True)
class Apart:
    """Data that was left where it is kept, in a payload. `size`: how many bytes it takes in JSON."""

    payload: int
    size: int


class TaskRecord(NamedTuple):
    """A task as the database keeps it, in the order of its columns.

    A draft, not yet inserted, has id 0, commit 0, and origin 0 if it is the first of its chain.
    A named tuple, because the writer makes some hundred thousand a second out of rows.
    """

    id: int
    group: str
    available_at_ms: int
    owner: int
    data: bytes | Apart
    data_type: str
    error: str
    labels: Mapping[str, str]
    priority: int
    origin: int
    claims: int
    leased_since_ms: int  # When the lease began, however often it was renewed since; 0: not leased.
    created_at_ms: int  # When the first task of the chain was added.
    made_at_ms: int  # When this id was made.
    made_by_commit: int  # The number of the commit that made it.
    payload: int = 0  # Under which number the data is kept, where successors share it; see rows.py.
    unique: str = ""  # The key that the chain holds; empty: none. Its group is only in HeldKey.
    standing: int = 0  # What it is by its content, as in Standing.
    batch: int = 0  # The batch that the chain belongs to; 0: none.

    def state(self, now_ms: int) -> State:
        """The state at that moment."""
        return state_at(now_ms, self.available_at_ms, self.leased_since_ms, self.standing)

    @property
    def leased(self) -> bool:
        return self.leased_since_ms > 0

    @property
    def whole_data(self) -> bytes:
        """The data, once it was read."""
        if isinstance(self.data, Apart):
            raise TypeError(f"the data of task {self.id} was not read")
        return self.data

    @property
    def failed_from(self) -> str:
        """The group that a dead letter failed in; empty: it is none."""
        return self.labels.get(FAILED_FROM, "")


# Of what is not leased, whatever the time is.
STANDING_STATES: Mapping[int, State] = {
    Standing.FINISHED: State.FINISHED,
    Standing.RETRYING: State.RETRYING,
    Standing.FAILED: State.FAILED,
}


def state_at(now_ms: int, available_at_ms: int, leased_since_ms: int, standing: int) -> State:
    """The state at a moment of a task with these values."""
    is_available = available_at_ms <= now_ms
    if leased_since_ms > 0:
        return State.EXPIRED if is_available else State.CLAIMED
    return STANDING_STATES.get(standing) or (State.READY if is_available else State.SCHEDULED)


# Not `_replace` or `_make`, which take three times as long; three records are made for each claim.
record_made_of: Callable[[Sequence[Any]], TaskRecord] = partial(tuple.__new__, TaskRecord)


class Duplicate(TaskRecord):
    """The task that holds the key of an add, in its place. Ended, or not to be seen (id 0): only its id is known."""

    ending: str = ""  # How it has ended; empty: it has not.
    is_told: bool = False  # Whether the same answer has its data already.

    @classmethod
    def of(cls, task: TaskRecord) -> Duplicate:
        return cls._make(task)

    @classmethod
    def without_task(cls, task_id: int = 0, ending: str = "", origin: int = 0) -> Duplicate:
        duplicate = cls(task_id, "", 0, 0, b"", "", "", {}, 0, origin, 0, 0, 0, 0, 0)
        duplicate.ending = ending
        return duplicate


def as_seen(task: TaskRecord, scope: GroupScope) -> TaskRecord:
    """The task without the name of the group in which it failed, if the scope does not allow that one."""
    if not task.labels or scope.allows(source := task.failed_from) or not source:
        return task
    return task._replace(labels={name: value for name, value in task.labels.items() if name != FAILED_FROM})


def told_task(task: TaskRecord, *, with_data: bool = True) -> Task:
    """The task as it is answered with, whether it is new or the holder of a key."""
    return answer_of(task, with_data=with_data, ending=task.ending if isinstance(task, Duplicate) else None)


Key = tuple[str, str]  # The group that the add named, and the key.


class HeldKey(NamedTuple):
    """A key that a chain holds, or that is kept from others for a time after its end."""

    group: str
    key: str
    origin: int  # Of the chain; 0: of the task that is just added.
    until_ms: int  # Until when it is kept, even if the chain ends.
    ended: int = 0  # The last id of the chain; 0: it lives.
    ending: str = ""
    ended_in: str = ""  # The group in which it ended.


class Removal(NamedTuple):
    """A task that an operation takes away, and why."""

    task: TaskRecord
    ending: Ending
    successor: int | None = None  # The place of its successor among the drafts of the same effect.


class Effect(NamedTuple):
    """The effect of an accepted operation. Drafts: adds first, then updates, in the order given."""

    removals: tuple[Removal, ...] = ()
    drafts: tuple[TaskRecord, ...] = ()
    owner: int = 0
    operator: Operator | None = None
    taken: tuple[tuple[int, HeldKey], ...] = ()  # The keys that drafts take, with the places of these drafts.
    # Where an add was a duplicate: for each task of the answer its place among the drafts, or the holder of the key.
    # A holder may be a draft itself: then it is minus its place, minus 1.
    places: tuple[int | Duplicate, ...] | None = None
    is_truncated: bool = False  # There was more to claim than an answer has room for.
    place: Any = None  # In the room for answers, if it is a large one; see room.py.
    made: int = 0  # How many drafts batches have added. They come last, and are not answered.

    def answer(self, tasks: list[TaskRecord]) -> list[TaskRecord]:
        """The tasks to answer with; `tasks`: what has become of the drafts."""
        if self.made:
            tasks = tasks[: -self.made]
        return tasks if self.places is None else in_places(tasks, self.places)


def in_places(tasks: Sequence[TaskRecord], places: Iterable[int | Duplicate]) -> list[TaskRecord]:
    """The tasks of an answer in their order; see Effect.places."""
    return [
        place if isinstance(place, Duplicate) else tasks[place] if place >= 0 else Duplicate.of(tasks[-place - 1])
        for place in places
    ]


class PutOff(Enum):
    """Why an operation can't be decided together with those before it in its batch. The next batch knows more."""

    KEY = "an earlier operation changes the holder of its key"
    ROOM = "too many large answers are under way"


SOON_MS = 1_000  # Waiting claims look for later tasks themselves, once a second.


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """What there is to take."""

    available: Mapping[str, int] = field(default_factory=dict)  # By group; how many, or at least that many.
    next_in_ms: Mapping[str, int] = field(default_factory=dict)  # By group: until the next lease or schedule ends.
    gone: frozenset[int] = frozenset()  # Ids that waiting claims depend on and that are not there any more.
    late: frozenset[int] = frozenset()  # Clients with waiting claims whose heartbeats have stopped coming.
    # Batches whose members ended beside others that were not seen: somebody has to look whether these were all.
    shared_batches: frozenset[int] = frozenset()

    @property
    def soon(self) -> set[str]:
        """Return the groups with something now or soon. For the rest, waiting claims look themselves."""
        return {*self.available, *[group for group, in_ms in self.next_in_ms.items() if in_ms < SOON_MS]}


# ---- What an add may do


def why_may_not_add(group: str, data: bytes | Apart, scope: GroupScope) -> str:
    """Say why these rights do not allow a task with this data in the group; empty: they do.

    Every way to add a task asks this: commits, moves, imports, requeues and undos, plans of batches and of schedules,
    and then again the batch that closes and the schedule that is due.
    """
    if not scope.is_restricted:
        return ""
    # Data that was left where it is, because there is too much of it, may say anything.
    reached = reached_by(group, None if isinstance(data, Apart) else data)
    return scope.why_out_of_reach(group) or why_out_of_reach(scope, reached)


def why_out_of_reach(scope: GroupScope, groups: Iterable[str]) -> str:
    """Say why these rights do not allow to add to one of the groups; empty: they do."""
    return next(filter(None, map(scope.why_out_of_reach, sorted(groups))), "")
