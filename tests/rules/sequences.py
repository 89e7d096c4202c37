"""Sequences of operations, made by chance: small worlds, in which much collides.

Hypothesis draws the seed of a sequence only: a draw for each of its parts took four fifths of the tests' time.
"""

from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random

from hypothesis import strategies as st
from msgspec import structs

from tasks_app.core.operations import EVERY_GROUP, Claim, Commit, GroupScope, Operation, Operator
from taskstore.types.tasks import Change, Ending, NewTask, Order

LENGTH = 30
START_MS = 1_000_000  # The time of the first operation.
# An id from here on stands for "the newest task but n": which one that is shows when the sequence runs.
NEWEST = 10**6
NEVER = 10**9  # An id that no sequence reaches.


def often(usual, *others, times):
    """A list to choose from, mostly the usual value: an operation of which each part is odd is only ever refused."""
    return [usual] * times * len(others) + list(others)


def fields(**choices):
    """Any combination of the choices."""
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


def any_of(values):
    return lambda chance: chance.choice(values)


def one_of(*makers):
    return lambda chance: chance.choice(makers)(chance)


def some(make, least=0, most=2):
    return lambda chance: tuple(make(chance) for _ in range(chance.randint(least, most)))


def made_of(kind, *parts, **makers):
    """A frozen value of that kind: all fields of one of each of the parts, and what is made for the others."""

    def make(chance):
        of_parts = [chance.choice(part) for part in parts]
        return kind(**ChainMap(*of_parts), **{name: maker(chance) for name, maker in makers.items()})

    return make


def moving(change: Change) -> NewTask:
    """As REST writes a change of the group."""
    return NewTask(group=change.group or "mail", id=change.id, moving=replace(change, group=change.group or "mail"))


GROUPS = often("mail", "reports", "mail/in", times=1)
# Mostly tasks that are there.
IDS = [NEWEST + n for n in range(8)] * 6 + [-1, 0, 1, 2, 3, 5, 8, NEVER]
AN_ID = any_of(IDS)
SOME_IDS = some(AN_ID, least=1)
DEPENDS = one_of(*[any_of([()])] * 4, some(AN_ID, least=1, most=1))
# Now; a second, a minute from now; long ago; about when the sequence runs; far ahead.
TIMES = often(0, -1, -1_000, -60_000, 1, START_MS, START_MS + 1_000, START_MS + 60_000, 9_000_000, times=1)
CONTENT = {"data": [b"", b"\0\xff"], "data_type": ["", "example/Letter"], "error": ["", "broken"], "timespec_ms": TIMES}
KEPT = {"data": [None, b"", b"\0\xff"], "data_type": [None, "", "example/Letter"], "error": [None, "", "broken"]}
STAYING = fields(group=[None, None, "mail", "reports"], labels=[None, {}, {"team": "red"}], priority=[None, 0, 5, -5])
BY_ANYBODY = {
    "owner": often(7, 8, 0, times=2),
    "scope": often(EVERY_GROUP, GroupScope(("mail",)), GroupScope(("mail/*", "reports")), times=6),
}
OPERATORS = often(None, Operator(name="Ann"), Operator(name="Bob", ending=Ending.PURGED), times=6)
WHO = fields(**BY_ANYBODY)
BY = fields(**BY_ANYBODY, operator=OPERATORS)

NEW = fields(**CONTENT, group=GROUPS, labels=[{}, {"team": "red"}], priority=often(0, 5, -5, times=1))
KEYS = {"unique": any_of([None, None, "Ann", "Bob"]), "unique_for_ms": any_of([0, 0, 30_000])}
ADDS = made_of(NewTask, NEW, **KEYS)
CHANGES = made_of(Change, fields(**KEPT, timespec_ms=TIMES, release=[False, False, True]), STAYING, id=AN_ID)
MOVES = one_of(made_of(NewTask, NEW, id=AN_ID), lambda chance: moving(CHANGES(chance)))
GROUPLESS = any_of([NewTask(group="")])
RENEWALS = any_of([(Change(id=one, timespec_ms=-60_000),) for one in IDS])

ADDING = made_of(Commit, BY, adds=some(ADDS, least=1, most=3))
UPDATING = made_of(Commit, BY, updates=some(CHANGES, least=1), depends=DEPENDS)
RENEWING = made_of(Commit, WHO, updates=RENEWALS)
DELETING = made_of(Commit, BY, deletes=SOME_IDS, depends=DEPENDS)
MOVING = made_of(Commit, BY, adds=some(MOVES, least=1), deletes=SOME_IDS)
MIXED = made_of(
    Commit,
    BY,
    adds=some(one_of(ADDS, ADDS, MOVES, GROUPLESS)),
    updates=some(CHANGES),
    deletes=some(AN_ID),
    depends=DEPENDS,
)
ASKED = fields(
    groups=[(group,) for group in GROUPS],
    duration_ms=often(1_000, -5, 0, 1, 60_000, times=1),
    limit=often(1, 2, 5, times=1),
    order=[Order.OLDEST],
)
CLAIMING = made_of(Claim, WHO, ASKED, depends=DEPENDS)


@dataclass(frozen=True)
class Step:
    """An operation, and the time that passes before it; None: it goes into the transaction of the one before it."""

    elapsed_ms: int | None
    operation: Operation


STEPS = made_of(
    Step,
    [{"elapsed_ms": elapsed_ms} for elapsed_ms in (None, None, 0, 1, 1_000, 60_000)],
    operation=one_of(ADDING, ADDING, UPDATING, RENEWING, DELETING, MOVING, MIXED, CLAIMING, CLAIMING),
)
SEQUENCES = st.integers(0, 2**64).map(lambda seed: sequence_of(Random(seed)))


def sequence_of(chance):
    return [STEPS(chance) for _ in range(LENGTH)]


def batches(sequence: Sequence[Step]) -> list[tuple[int, list[Operation]]]:
    """The operations of each transaction, with the time that passes before it."""
    found: list[tuple[int, list[Operation]]] = []
    for step in sequence:
        if step.elapsed_ms is None and found:
            found[-1][1].append(step.operation)
        else:
            found.append((step.elapsed_ms or 0, [step.operation]))
    return found


def resolved(operation: Operation, living: Sequence[int], last_id: int) -> Operation:
    """The operation with ids as they are now: `living` are there, rising, and `last_id` is the newest given out."""

    def meant(task_id: int) -> int:
        if living and NEWEST <= task_id < NEWEST + 8:
            return living[-1 - (task_id - NEWEST) % len(living)]
        # Nobody can name a task that the same transaction is only about to make.
        return task_id if task_id <= last_id else NEVER

    depends = tuple(meant(task_id) for task_id in operation.depends)
    if isinstance(operation, Claim):
        return structs.replace(operation, depends=depends)
    return structs.replace(
        operation,
        adds=tuple(replace(add, id=meant(add.id)) for add in operation.adds),
        updates=tuple(replace(change, id=meant(change.id)) for change in operation.updates),
        deletes=tuple(meant(task_id) for task_id in operation.deletes),
        depends=depends,
    )
