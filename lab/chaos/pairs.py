"""Pairs of conflicting operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks_app.core.operations import Claim, Commit, Operation
from tasks_app.database.claim_pools import drafts_of
from taskstore.types.batches import NewBatch, Plan
from taskstore.types.tasks import Change, NewTask

NOBODY, ANN, BOB = 1, 2, 3
GONE = 0  # An id that no task has.

Make = Callable[[int, int, int], Operation]  # Takes the ids of the prepared tasks.


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The operations of Ann and Bob on three prepared tasks, one in each of the groups."""

    name: str
    ann: Make
    bob: Make
    groups: Sequence[str] = ("mail", "reports", "reports")
    are_batch: bool = False  # The prepared tasks are the members of one.

    @property
    def is_plain(self) -> bool:
        """Whether what a writer knows makes a difference: one of them is a claim, or adds something."""
        operations = self.operations([1, 2, 3])
        return any(type(operation) is Claim or drafts_of([operation])[0] for operation in operations)

    @property
    def preparation(self) -> Commit:
        """The commit that adds the prepared tasks."""
        tasks = [NewTask(group=group, data=f"task {place}".encode()) for place, group in enumerate(self.groups)]
        then = Plan((NewTask(group="then"),))
        return Commit(owner=NOBODY, adds=tuple(tasks), batch=NewBatch(plan=Plan(then=then)) if self.are_batch else None)

    def operations(self, ids: Sequence[int]) -> tuple[Operation, Operation]:
        first, second, third = ids
        return self.ann(first, second, third), self.bob(first, second, third)


def commit(
    owner: int, *, adds: str = "", updates: Sequence[int] = (), deletes: Sequence[int] = (), depends: Sequence[int] = ()
) -> Commit:
    """Return a commit. `adds`: the group of a task to add."""
    data = f"of {owner}".encode()
    return Commit(
        owner=owner,
        adds=(NewTask(group=adds, data=data),) if adds else (),
        updates=tuple(Change(id=task_id, data=data, error="") for task_id in updates),
        deletes=tuple(deletes),
        depends=tuple(depends),
    )


def claim(owner: int, depends: Sequence[int] = ()) -> Claim:
    return Claim(groups=("mail",), owner=owner, depends=tuple(depends))


PAIRS = (
    Pair(
        name="both update the same, depending on the same",
        ann=lambda a, b, c: commit(ANN, updates=[a, b], depends=[c]),
        bob=lambda a, b, c: commit(BOB, updates=[b, a], depends=[c]),
    ),
    Pair(
        name="both delete one of theirs and the same",
        ann=lambda a, b, c: commit(ANN, adds="mail", deletes=[a, b], depends=[c]),
        bob=lambda a, b, c: commit(BOB, adds="mail", deletes=[b], depends=[c]),
    ),
    Pair(
        name="each depends on what the other updates",
        ann=lambda a, b, c: commit(ANN, updates=[a], depends=[b]),
        bob=lambda a, b, c: commit(BOB, updates=[b], depends=[a]),
    ),
    Pair(
        name="one depends on what the other deletes",
        ann=lambda a, b, c: commit(ANN, updates=[a], depends=[b]),
        bob=lambda a, b, c: commit(BOB, adds="reports", deletes=[b], depends=[c]),
    ),
    Pair(name="both claim the only one", ann=lambda a, b, c: claim(ANN), bob=lambda a, b, c: claim(BOB)),
    Pair(
        name="one claims what the other deletes, which adds another",
        ann=lambda a, b, c: claim(ANN),
        bob=lambda a, b, c: commit(BOB, adds="mail", deletes=[a], depends=[c]),
    ),
    Pair(
        name="one claims what the other is refused to delete",
        ann=lambda a, b, c: claim(ANN),
        bob=lambda a, b, c: commit(BOB, deletes=[a], depends=[GONE]),
    ),
    Pair(
        name="both update the same, and each one more",
        ann=lambda a, b, c: commit(ANN, updates=[a, b]),
        bob=lambda a, b, c: commit(BOB, updates=[c, b]),
    ),
    Pair(
        name="one deletes what the other replaces by another",
        ann=lambda a, b, c: commit(ANN, deletes=[b, a]),
        bob=lambda a, b, c: commit(BOB, adds="reports", deletes=[a]),
    ),
    Pair(
        name="one claims what the other replaces by another",
        ann=lambda a, b, c: claim(ANN),
        bob=lambda a, b, c: commit(BOB, adds="mail", deletes=[a]),
    ),
    Pair(
        name="one claims what the other moves away",
        ann=lambda a, b, c: claim(ANN),
        bob=lambda a, b, c: Commit(owner=BOB, updates=(Change(id=a, group="reports"),)),
    ),
    Pair(
        name="one claims, depending on what the other updates, which depends on what is claimed",
        ann=lambda a, b, c: claim(ANN, depends=[b]),
        bob=lambda a, b, c: commit(BOB, updates=[b], depends=[a]),
    ),
    Pair(
        name="each ends one of the last two tasks of a batch",
        ann=lambda a, b, c: commit(ANN, deletes=[a]),
        bob=lambda a, b, c: commit(BOB, deletes=[b, c]),
        are_batch=True,
    ),
)
