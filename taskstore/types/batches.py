"""Batches: tasks that end together, and what is added when they have.

Times are milliseconds since the Epoch. Source: contract.md section 9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta, Struct

from .requests import Add, Asked, AskedOperation
from .scalars import CLIENT_TEXT_LENGTH, PLAIN, After, At, Int64, Limits, NextAfterId, PageSize
from .schedules import SCHEDULES, reached_by
from .tasks import NewTask, Problem, Task

MOST_DEPTH, MOST_PLANNED = 100, 1_000  # Of plans within plans, and of the tasks of one.
PLANS, LISTS = ("then", "on_failure"), ("batches", "steps")
# In the paths of levels: "tf" is what `then` adds on failure, "s0001." the last step, and "s0001.0.f" what is added on
# failure of the first batch within that step.
THEN, ON_FAILURE = LETTERS = "t", "f"
AFTER_BATCH = "after_batch"  # The label of a task that a batch has added, with the id of the batch.

BatchName = Annotated[str, Meta(max_length=CLIENT_TEXT_LENGTH, pattern=PLAIN, description="For people; may be empty.")]


# Each way of the product to call a task later.
TASKS_TO_ADD = "a task to add: NewTask(...), a job such as resize.s(1), or planned(task, 1) for one of Django's"


@dataclass(frozen=True)
class Plan:
    """The tasks to add when a batch has closed, or failed.

    With more than `adds` they are a batch of their own. `batches`: the batches within it, which begin together with its
    tasks; they and these are a level of the plan. `steps`: levels that follow within it, one after the other, each when
    all before it has succeeded. `then`: what it adds when it closes; `on_failure`: at the first failure within it. A
    part without tasks is left out, and what follows it takes its place. What is computed from a plan is computed once,
    by whoever asks first: a plan may hold a hundred thousand tasks.
    """

    adds: tuple[NewTask, ...] = ()
    then: Plan | None = None
    on_failure: Plan | None = None
    batches: tuple[Plan, ...] = ()
    steps: tuple[Plan, ...] = ()

    def __post_init__(self) -> None:
        plans: dict[str, Any] = {name: plan_of(getattr(self, name), name) for name in PLANS}
        steps = (each if each.is_level else Plan(batches=(each,)) for each in plans_in(self.steps, "steps"))
        adds, batches = adds_of(self.adds, "adds"), plans_in(self.batches, "batches")
        self.__dict__.update(plans, adds=adds, batches=batches, steps=tuple(steps))

    @property
    def is_level(self) -> bool:
        return not (self.then or self.on_failure or self.steps)

    @property
    def is_batch(self) -> bool:
        return bool(self.batches) or not self.is_level

    @property
    def parts(self) -> list[tuple[str, Plan]]:
        """Return the plans within this one, with their names."""
        named = [(name, plan) for name in PLANS if (plan := getattr(self, name))]
        lists = [(f"{name}[{place}]", plan) for name in LISTS for place, plan in enumerate(getattr(self, name))]
        return [*named, *lists]

    @cached_property
    def number(self) -> int:
        """Return how many tasks this level has."""
        return len(self.adds) + sum(plan.number for plan in self.batches)

    @cached_property
    def new_batches(self) -> int:
        """Return how many batches this level makes."""
        return self.is_batch + sum(plan.new_batches for plan in self.batches)

    @cached_property
    def text(self) -> str:
        """Return the tasks of this level as the store keeps them."""
        kept = self._kept
        return msgspec.json.encode(kept if self.batches or self.steps else kept["adds"]).decode()

    @property
    def _kept(self) -> dict[str, Any]:
        return {
            "adds": [{name: value for name in FIELDS if (value := getattr(add, name))} for add in self.adds],
            "batches": [plan._kept for plan in self.batches],
            "steps": len(self.steps),
            **{name: plan.number for name in PLANS if (plan := getattr(self, name))},
        }

    @cached_property
    def own_groups(self) -> frozenset[str]:
        """Return the groups that this level names."""
        return frozenset(add.group for add in self.adds).union(*(plan.own_groups for plan in self.batches))

    @cached_property
    def own_reach(self) -> frozenset[str]:
        """Return these groups, and those that the schedules among its tasks feed."""
        schedules = [add for add in self.adds if add.group == SCHEDULES]
        within = [plan.own_reach for plan in self.batches]
        return self.own_groups.union(*within, *(reached_by(add.group, add.data) for add in schedules))

    @property
    def in_words(self) -> str:
        """Say what this level adds: "2 tasks in bind"."""
        return f"{self.number} {'task' if self.number == 1 else 'tasks'} in {', '.join(sorted(self.own_groups))}"

    @cached_property
    def levels(self) -> Sequence[tuple[str, Plan]]:
        """Return this plan and those within it that begin later, each with its path below this one, which has none."""
        found = [("", self)]
        for letter, plan in zip(LETTERS, (self.then, self.on_failure), strict=True):
            found += [(f"{letter}{path}", level) for path, level in plan.levels] if plan else ()
        for place, within in enumerate(self.batches):
            found += [(f"{place}.{path}", level) for path, level in within.levels if path]
        for place, step in enumerate(self.steps):
            found += [(f"{step_of(len(self.steps) - place)}{path}", level) for path, level in step.levels]
        return found

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

    @property
    def planned(self) -> Iterator[tuple[str, NewTask]]:
        """Yield the tasks that it adds later, with their paths."""
        waiting = self.parts
        while waiting:
            path, plan = waiting.pop()
            name = path.rpartition(".")[2]
            if name.startswith("steps") and len(plan.batches) == 1 and plan.number == plan.batches[0].number:
                plan = plan.batches[0]  # What was given as a step with more than tasks.
            is_object = plan.is_batch or name.startswith("batches")
            adds = f"{path}.adds" if is_object else path
            yield from ((f"{adds}[{place}]", add) for place, add in enumerate(plan.adds))
            waiting += [(f"{path}.{name}", part) for name, part in plan.parts]


class PackedPlan(Plan):
    """A plan as the store keeps it. Its tasks are decoded only when they are read.

    A hundred thousand tasks, made where only their text is needed, would hold up a server.
    """

    def __init__(self, plan: Plan) -> None:
        known = {name: getattr(plan, name) for name in ("text", "number", "own_groups", "own_reach")}
        self.__dict__.update(known, **{name: tuple(map(PackedPlan, getattr(plan, name))) for name in LISTS})
        self.__dict__.update({name: part and PackedPlan(part) for name in PLANS for part in [getattr(plan, name)]})

    @cached_property
    def adds(self) -> tuple[NewTask, ...]:
        return level_in(self.text).adds


def without_empty(plan: Plan | None) -> Plan | None:
    """Return the plan, which begins with its first step if it has nothing else; if it has no tasks, what follows it."""
    if plan is None or plan.number:
        return plan
    if not plan.steps:
        return plan.then
    first, *steps = plan.steps
    return replace(plan, adds=first.adds, batches=first.batches, steps=tuple(steps))


def step_of(left: int) -> str:
    """Return the step after which one step less is left, as a part of a path. Those left come first by name."""
    return f"s{left:04}."


class Planning(Protocol):
    """A chain or a group."""

    @property
    def plan(self) -> Plan: ...


Planned = Plan | Planning | NewTask | Iterable[NewTask] | None  # What programs may give in the place of a plan.


def plan_of(planned: Planned, name: str = "then") -> Plan | None:
    """Return the plan; None if there is nothing to add. Raises TypeError, which names the part that is no task."""
    planned = getattr(planned, "plan", planned)  # Of a chain or a group.
    if planned is None or isinstance(planned, Plan):
        return without_empty(planned)
    return without_empty(Plan(adds_of(planned, name)))


def plans_in(plans: Iterable[Planned], name: str) -> tuple[Plan, ...]:
    """Return the plans that have tasks. Raises TypeError as `plan_of` does."""
    return tuple(filter(None, (plan_of(plan, f"{name}[{place}]") for place, plan in enumerate(plans))))


def adds_of(planned: Any, name: str) -> tuple[NewTask, ...]:
    """Return the tasks. Raises TypeError, which names the part that is no task."""
    if isinstance(planned, str | bytes) or not isinstance(planned, NewTask | Iterable):
        raise TypeError(f"{name} must be {TASKS_TO_ADD}, or a Plan, not {planned!r:.100}")
    adds = (planned,) if isinstance(planned, NewTask) else tuple(planned)
    for place, add in enumerate(adds):
        if not isinstance(add, NewTask):
            raise TypeError(f"{name}[{place}] must be {TASKS_TO_ADD}, not {add!r:.100}")
    return adds


NO_PLAN = Plan()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch:
    """A batch to create, in the same commit as its first tasks, which its plan leaves out.

    `hold`: it stays open until it is released. `failed_ends`: what has failed counts as succeeded.
    """

    name: str = ""
    plan: Plan = NO_PLAN
    parent: int = 0  # The id of an open batch, which stays open until this one has closed; 0: none.
    hold: bool = False
    failed_ends: bool = False
    mark: str = ""  # By which whoever creates it finds it.


# ---- On the wire


class PlanOnTheWire(Asked, frozen=True, kw_only=True):
    """Tasks to add later, which are a batch of their own."""

    adds: tuple[Add, ...] = ()
    then: tuple[Add, ...] | PlanOnTheWire | None = None
    on_failure: tuple[Add, ...] | PlanOnTheWire | None = None
    batches: tuple[PlanOnTheWire, ...] = ()
    steps: tuple[tuple[Add, ...] | PlanOnTheWire, ...] = ()


Then = tuple[Add, ...] | PlanOnTheWire | None


class BatchRequest(AskedOperation, frozen=True, kw_only=True):
    """A batch, with its first tasks."""

    name: BatchName = ""
    adds: tuple[Add, ...] = ()
    then: Annotated[
        Then,
        Meta(
            description="Tasks to add once, when all members have succeeded: a list of adds, or an object with `adds`, "
            "`then`, `on_failure` and `batches`, which makes them a batch."
        ),
    ] = None
    on_failure: Annotated[
        Then, Meta(description="The same, to add once, when the first member has failed, was cancelled or purged.")
    ] = None
    batches: Annotated[
        tuple[PlanOnTheWire, ...],
        Meta(description="Batches within it that begin at once: objects like those of `then`. It waits for them."),
    ] = ()
    steps: Annotated[
        tuple[tuple[Add, ...] | PlanOnTheWire, ...],
        Meta(
            description="What to add within it, one after the other, each when all before it has succeeded: lists of "
            "adds, or objects like those of `then`. `then` comes after the last one."
        ),
    ] = ()
    parent: Annotated[Int64, Meta(description="The id of an open batch that stays open until this one closes.")] = 0
    hold: Annotated[bool, Meta(description="Keep the batch open until it is released.")] = False
    failed_ends: Annotated[bool, Meta(description="Count failed members as succeeded.")] = False

    def problems(self, limits: Limits) -> Iterator[Problem]:
        yield from _wrong_adds("adds", self.adds, limits)
        waiting: list[tuple[str, Any, int]] = [(name, plan, 1) for name, plan in _parts_in(self)]
        while waiting:
            path, plan, depth = waiting.pop()
            if plan and depth > MOST_DEPTH:
                yield path.partition(".")[0], f"must not nest deeper than {MOST_DEPTH} levels"
                return
            if isinstance(plan, PlanOnTheWire):
                yield from _wrong_adds(f"{path}.adds", plan.adds, limits)
                waiting += [(f"{path}.{name}", part, depth + 1) for name, part in _parts_in(plan)]
            elif plan:
                yield from _wrong_adds(path, plan, limits)


def _parts_in(asked: BatchRequest | PlanOnTheWire) -> Iterator[tuple[str, Then]]:
    yield from ((name, getattr(asked, name)) for name in PLANS)
    yield from ((f"{name}[{place}]", plan) for name in LISTS for place, plan in enumerate(getattr(asked, name)))


def _wrong_adds(path: str, adds: tuple[Add, ...], limits: Limits) -> Iterator[Problem]:
    for place, add in enumerate(adds):
        yield from ((f"{path}[{place}].{name}", why) for name, why in add.problems(limits))


def plan_from(asked: Then) -> Plan | None:
    """Return the plan that a request describes; None if it is empty."""
    if isinstance(asked, PlanOnTheWire):
        adds = tuple(add.new_task() for add in asked.adds)
        return without_empty(replace(later_in(asked), adds=adds))
    return Plan(tuple(add.new_task() for add in asked)) if asked else None


def later_in(asked: BatchRequest | PlanOnTheWire) -> Plan:
    """Return what a request describes beside its first tasks."""
    plans: Any = {name: plan_from(getattr(asked, name)) for name in PLANS}
    plans |= {name: tuple(map(plan_from, getattr(asked, name))) for name in LISTS}
    return Plan(**plans)


class BatchesRequest(Asked, frozen=True, kw_only=True):
    """Which batches to list."""

    open: Annotated[bool | None, Meta(description="yes: only open ones; no: only closed ones.")] = None
    after: NextAfterId | None = None
    limit: PageSize = 100


class Batch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch, counted together with the batches within it. total = open + failed + ended."""

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
    planned: Annotated[int, Meta(description="How many tasks `then` is still to add, as long as none fails.")] = 0
    deleted: Annotated[bool, Meta(description="Whether it was deleted: then it adds nothing.")] = False
    problem: Annotated[str, Meta(description="Why it can't add what it plans, and stays open; empty if it can.")] = ""
    lost_rights: Annotated[
        bool, Meta(description="Whether those who planned it have lost their rights: an operator releases it.")
    ] = False

    @property
    def whole(self) -> int:
        """Return how many tasks it has, and will have if none fails."""
        return self.total + self.planned

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
        return self.failed > self.gone and not (self.closed_at_ms is not None or self.open or self.failed_ends)


class BatchMade(Struct, frozen=True, kw_only=True):
    """A new batch and its first tasks."""

    batch: Batch
    tasks: tuple[Task, ...]


class BatchPage(Struct, frozen=True, kw_only=True):
    """Batches, newest first."""

    batches: tuple[Batch, ...]
    after: After = None


FIELDS = tuple(field.name for field in fields(NewTask))


class KeptLevel(Struct, frozen=True):
    """A level of a plan as the store keeps it. `steps`: how many follow within its batch. `then` and `on_failure`: how
    many tasks that adds later."""

    adds: tuple[NewTask, ...]
    batches: tuple[KeptLevel, ...] = ()
    steps: int = 0
    then: int = 0
    on_failure: int = 0

    @property
    def every_add(self) -> tuple[NewTask, ...]:
        return sum((level.every_add for level in self.batches), self.adds)


DECODER = msgspec.json.Decoder(tuple[NewTask, ...] | KeptLevel)


def level_in(text: str) -> KeptLevel:
    """Return the level that the store keeps as this text."""
    kept = DECODER.decode(text)
    return kept if isinstance(kept, KeptLevel) else KeptLevel(kept)
