"""Batches: tasks that end together, and what is added when they have.

Times are milliseconds since the Epoch. Source: contract.md section 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from .requests import Add, Asked, AskedOperation
from .scalars import CLIENT_TEXT_LENGTH, PLAIN, After, At, Int64, Limits, NextAfterId, PageSize
from .schedules import SCHEDULES, reached_by
from .tasks import NewTask, Problem, Task

MOST_DEPTH, MOST_PLANNED = 100, 1_000  # Of plans within plans, and of the tasks of one.
PLANS = ("then", "on_failure")
THEN, ON_FAILURE = LETTERS = "t", "f"  # In the paths of levels: "tf" is what `then` adds on failure.
AFTER_BATCH = "after_batch"  # The label of a task that a batch has added, with the id of the batch.

BatchName = Annotated[str, Meta(max_length=CLIENT_TEXT_LENGTH, pattern=PLAIN, description="For people; may be empty.")]


# Each way of the product to call a task later.
TASKS_TO_ADD = "a task to add: NewTask(...), a job such as resize.s(1), or planned(task, 1) for one of Django's"


@dataclass(frozen=True)
class Plan:
    """The tasks to add when a batch has closed, or failed.

    With `then` or `on_failure` they are a batch of their own, which adds those tasks when it closes or fails. What is
    computed from a plan is computed once, by whoever asks first: a plan may hold a hundred thousand tasks.
    """

    adds: tuple[NewTask, ...]
    then: Plan | None = None
    on_failure: Plan | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "adds", adds_of(self.adds, "adds"))

    @property
    def is_batch(self) -> bool:
        return bool(self.then or self.on_failure)

    @property
    def parts(self) -> list[tuple[str, Plan]]:
        """Return the plans within this one, with their names."""
        return [(name, plan) for name in PLANS if (plan := getattr(self, name))]

    @property
    def number(self) -> int:
        """Return how many tasks this level has."""
        return len(self.adds)

    @cached_property
    def text(self) -> str:
        """Return the tasks of this level as the store keeps them."""
        adds = [{name: value for name in FIELDS if (value := getattr(add, name))} for add in self.adds]
        return msgspec.json.encode(adds).decode()

    @cached_property
    def own_groups(self) -> frozenset[str]:
        """Return the groups that this level names."""
        return frozenset(add.group for add in self.adds)

    @cached_property
    def own_reach(self) -> frozenset[str]:
        """Return these groups, and those that the schedules among its tasks feed."""
        schedules = [add for add in self.adds if add.group == SCHEDULES]
        return self.own_groups.union(*(reached_by(add.group, add.data) for add in schedules))

    @property
    def in_words(self) -> str:
        return words_of(self.number, self.own_groups)

    @cached_property
    def levels(self) -> Sequence[tuple[str, Plan]]:
        """Return this plan and those within it, each with its path below this one, which has none."""
        parts = zip(LETTERS, (self.then, self.on_failure), strict=True)
        below = [(f"{letter}{path}", plan) for letter, part in parts if part for path, plan in part.levels]
        return [("", self), *below]

    @cached_property
    def size(self) -> int:
        """Return how many bytes the store keeps of the whole plan."""
        return sum(len(plan.text) for _, plan in self.levels)

    @cached_property
    def groups(self) -> frozenset[str]:
        """Return the groups that the whole plan names."""
        return frozenset().union(*(plan.own_groups for _, plan in self.levels))

    @cached_property
    def reached(self) -> frozenset[str]:
        """Return these groups, and those that the schedules among its tasks feed."""
        return frozenset().union(*(plan.own_reach for _, plan in self.levels))

    def every_add(self, path: str) -> Iterator[tuple[str, NewTask]]:
        """Yield all tasks of the plan, with their paths below this one."""
        waiting = [(path, self)]
        while waiting:
            path, plan = waiting.pop()
            adds = f"{path}.adds" if plan.is_batch else path
            yield from ((f"{adds}[{place}]", add) for place, add in enumerate(plan.adds))
            waiting += [(f"{path}.{name}", part) for name, part in plan.parts]


class PackedPlan(Plan):
    """A level as the store keeps it. Its tasks are decoded only when they are read.

    A hundred thousand tasks, made where only their text is needed, would hold up a server.
    """

    def __init__(self, level: Plan, then: Plan | None = None, on_failure: Plan | None = None) -> None:
        known = {name: getattr(level, name) for name in ("text", "number", "own_groups", "own_reach")}
        self.__dict__.update(known, then=then, on_failure=on_failure)

    number = 0  # Each level has its own.

    @cached_property
    def adds(self) -> tuple[NewTask, ...]:
        return adds_in(self.text)


Planned = Plan | NewTask | Iterable[NewTask] | None  # What programs may give in the place of a plan.


def plan_of(planned: Planned, name: str = "then") -> Plan | None:
    """Return the plan; None if there is nothing to add. Raises TypeError, which names the part that is no task."""
    if planned is None or isinstance(planned, Plan):
        return planned
    adds = adds_of(planned, name)
    return Plan(adds) if adds else None


def adds_of(planned: NewTask | Iterable[NewTask], name: str) -> tuple[NewTask, ...]:
    """Return the tasks. Raises TypeError, which names the part that is no task."""
    if isinstance(planned, str | bytes) or not isinstance(planned, NewTask | Iterable):
        raise TypeError(f"{name} must be {TASKS_TO_ADD}, or a Plan, not {planned!r:.100}")
    adds = (planned,) if isinstance(planned, NewTask) else tuple(planned)
    for place, add in enumerate(adds):
        if not isinstance(add, NewTask):
            raise TypeError(f"{name}[{place}] must be {TASKS_TO_ADD}, not {add!r:.100}")
    return adds


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch:
    """A batch to create, in the same commit as its first tasks.

    `then`: what to add when all its tasks have succeeded; `on_failure`: what to add when the first one has failed.
    `hold`: it stays open until it is released. `failed_ends`: what has failed counts as succeeded.
    """

    name: str = ""
    then: Plan | None = None
    on_failure: Plan | None = None
    parent: int = 0  # The id of an open batch, which stays open until this one has closed; 0: none.
    hold: bool = False
    failed_ends: bool = False
    mark: str = ""  # By which whoever creates it finds it.

    @property
    def parts(self) -> list[tuple[str, Plan]]:
        """Return its plans, with their names."""
        return [(name, plan) for name in PLANS if (plan := getattr(self, name))]

    @property
    def planned(self) -> Iterator[tuple[str, NewTask]]:
        """Yield the tasks of its plans, with their paths."""
        for name, plan in self.parts:
            yield from plan.every_add(name)

    @property
    def planned_groups(self) -> frozenset[str]:
        """Return the groups that its plans name."""
        return frozenset().union(*(plan.groups for _, plan in self.parts))

    @property
    def reached(self) -> frozenset[str]:
        """Return these groups, and those that schedules among them feed."""
        return frozenset().union(*(plan.reached for _, plan in self.parts))

    @property
    def size(self) -> int:
        """Return how many bytes the store keeps of its plans."""
        return sum(plan.size for _, plan in self.parts)

    @property
    def levels(self) -> Iterator[tuple[str, Plan]]:
        """Yield its plans and those within them, with their paths."""
        for letter, plan in zip(LETTERS, (self.then, self.on_failure), strict=True):
            if plan:
                yield from ((f"{letter}{path}", level) for path, level in plan.levels)


# ---- On the wire


class PlanOnTheWire(Asked, frozen=True, kw_only=True):
    """Tasks to add later, which are a batch of their own."""

    adds: tuple[Add, ...] = ()
    then: tuple[Add, ...] | PlanOnTheWire | None = None
    on_failure: tuple[Add, ...] | PlanOnTheWire | None = None


Then = tuple[Add, ...] | PlanOnTheWire | None


class BatchRequest(AskedOperation, frozen=True, kw_only=True):
    """A batch, with its first tasks."""

    name: BatchName = ""
    adds: tuple[Add, ...] = ()
    then: Annotated[
        Then,
        Meta(
            description="Tasks to add once, when all members have succeeded: a list of adds, or an object with `adds`, "
            "`then` and `on_failure`, which makes them a batch."
        ),
    ] = None
    on_failure: Annotated[
        Then, Meta(description="The same, to add once, when the first member has failed, was cancelled or purged.")
    ] = None
    parent: Annotated[Int64, Meta(description="The id of an open batch that stays open until this one closes.")] = 0
    hold: Annotated[bool, Meta(description="Keep the batch open until it is released.")] = False
    failed_ends: Annotated[bool, Meta(description="Count failed members as succeeded.")] = False

    def problems(self, limits: Limits) -> Iterator[Problem]:
        yield from _wrong_adds("adds", self.adds, limits)
        waiting: list[tuple[str, Any, int]] = [(name, getattr(self, name), 1) for name in PLANS]
        while waiting:
            path, plan, depth = waiting.pop()
            if plan and depth > MOST_DEPTH:
                yield path.partition(".")[0], f"must not nest deeper than {MOST_DEPTH} levels"
                return
            if isinstance(plan, PlanOnTheWire):
                yield from _wrong_adds(f"{path}.adds", plan.adds, limits)
                waiting += [(f"{path}.{name}", getattr(plan, name), depth + 1) for name in PLANS]
            elif plan:
                yield from _wrong_adds(path, plan, limits)


def _wrong_adds(path: str, adds: tuple[Add, ...], limits: Limits) -> Iterator[Problem]:
    for place, add in enumerate(adds):
        yield from ((f"{path}[{place}].{name}", why) for name, why in add.problems(limits))


def plan_from(asked: Then) -> Plan | None:
    """Return the plan that a request describes; None if it is empty."""
    if isinstance(asked, PlanOnTheWire):
        adds = tuple(add.new_task() for add in asked.adds)
        return Plan(adds, plan_from(asked.then), plan_from(asked.on_failure))
    return Plan(tuple(add.new_task() for add in asked)) if asked else None


class BatchesRequest(Asked, frozen=True, kw_only=True):
    """Which batches to list."""

    open: Annotated[bool | None, Meta(description="yes: only open ones; no: only closed ones.")] = None
    after: NextAfterId | None = None
    limit: PageSize = 100


class Batch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch. total = open + failed + ended."""

    id: Int64
    name: str
    state: Annotated[str, Meta(description="One of open, held, succeeded, failed, deleted.")]
    total: Annotated[int, Meta(description="The number of members.")]
    open: Annotated[int, Meta(description="Members that have not ended.")]
    failed: Annotated[
        int, Meta(description="Members that have failed, or were cancelled, purged or removed before they succeeded.")
    ]
    ended: Annotated[int, Meta(description="Members that have succeeded.")]
    created_at_ms: At = msgspec.field(name="created")
    closed_at_ms: Annotated[int | None, Meta(description="When it closed; null while it is open.")] = msgspec.field(
        name="closed_at"
    )
    parent: Annotated[int | None, Meta(description="The batch that stays open until this one closes; null: none.")]
    children: Annotated[int, Meta(description="The number of open batches whose parent this one is.")] = 0
    hold: Annotated[bool, Meta(description="Whether it waits to be released.")] = False
    failed_ends: Annotated[bool, Meta(description="Whether failed members count as succeeded.")] = False
    failed_children: Annotated[int, Meta(description="Batches within it that have failed, or were deleted.")] = 0
    gone: Annotated[int, Meta(description="Of the failed members, those that no requeue brings back.")] = 0
    deleted: Annotated[bool, Meta(description="Whether it was deleted: then it adds nothing.")] = False
    problem: Annotated[str, Meta(description="Why it can't add what it plans, and stays open; empty if it can.")] = ""
    lost_rights: Annotated[
        bool, Meta(description="Whether those who planned it have lost their rights: an operator releases it.")
    ] = False

    @property
    def search(self) -> str:
        """Return the search for its tasks."""
        return f"batch:{self.id}"

    @property
    def failed_search(self) -> str:
        return f"{self.search} state:failed"

    @property
    def is_stuck(self) -> bool:
        """Return whether it waits for nothing but failed members."""
        is_over = self.closed_at_ms is not None or self.open or self.children
        return bool(self.failed > self.gone and not (is_over or self.failed_ends))


def state_of(batch: Batch) -> str:
    """Return whether it is open, or how it closed, as a word."""
    if batch.deleted:
        return "deleted"
    if batch.closed_at_ms is not None:
        has_lost = bool(batch.gone or batch.failed_children) and not batch.failed_ends
        return "failed" if has_lost else "succeeded"
    return "held" if batch.problem or (batch.hold and not batch.open) else "open"


class BatchMade(Struct, frozen=True, kw_only=True):
    """A new batch and its first tasks."""

    batch: Batch
    tasks: tuple[Task, ...]


class BatchPage(Struct, frozen=True, kw_only=True):
    """Batches, newest first."""

    batches: tuple[Batch, ...]
    after: After = None


FIELDS = tuple(field.name for field in fields(NewTask))
DECODER = msgspec.json.Decoder(tuple[NewTask, ...])


def adds_in(text: str) -> tuple[NewTask, ...]:
    """Return the tasks that the store keeps as this text."""
    return DECODER.decode(text)


def plans_of(levels: Mapping[str, Plan]) -> tuple[Plan | None, Plan | None]:
    """Put `then` and `on_failure` together of levels, by their paths."""
    whole: dict[str, Plan] = {}
    for path in sorted(levels, key=len, reverse=True):
        whole[path] = PackedPlan(levels[path], whole.get(f"{path}{THEN}"), whole.get(f"{path}{ON_FAILURE}"))
    return whole.get(THEN), whole.get(ON_FAILURE)


def words_of(number: int, groups: Iterable[str], *, has_more: bool = False) -> str:
    """Say what a level of a plan adds: "2 tasks in bind, and more"."""
    count = f"{number} tasks in " if number > 1 else ""
    return f"{count}{', '.join(sorted(groups))}{', and more' if has_more else ''}"
