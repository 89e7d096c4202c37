"""Batches within a transaction of the store: their locks, their counts, and what is written of them.

A commit that ends less than a hundredth of a batch's open members shares a lock of the batch with others, and adds to
one of its counts. Any other commit that ends members, and whatever else concerns the batch, has the lock alone: it
sees exact counts, and so the last end of a member sees that it is the last one. Locks are taken after all others, of
children before their parents.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from taskstore.types.batches import Plan, plan_in, text_of

from ..core.batches import Batch, Batches, Phase, possible_ends
from ..core.operations import BatchStep, Commit, Operation, TaskRecord
from .rows import Row, Statement, Steps
from .transaction_values import Seen, Written

if TYPE_CHECKING:
    from .dialect import Dialect

PARTS = 64  # Of the counts of a batch.
SHARED_BELOW = 100  # A commit shares the lock if it ends less than this part of the open members.
TRIES = 10
MOST_KNOWN = 10_000
UNREAD = Plan(())  # A plan that is there, in the place of what it says.
COUNT_COLUMNS = ("batch", "part", "open", "failed", "ended")
CHANGED = ("hold", "refuses", "has_failed", "children", "closed_at_ms")
NEW_COLUMNS = ("id", "name", "mark", "parent", "failed_ends", "created_at_ms", "then", "on_failure", *CHANGED)

# By database and batch: how many members were open, and whether a failure adds something. Only to guess the lock.
_guesses: dict[str, dict[int, tuple[int, bool]]] = {}


@dataclass(slots=True)
class Demand:
    """What operations may do to batches."""

    ends: Counter[int] = field(default_factory=Counter)  # How many members may end or fail, by batch.
    failing: set[int] = field(default_factory=set)  # Of which members may fail.
    named: set[int] = field(default_factory=set)  # That take new members.
    changed: set[int] = field(default_factory=set)  # That change otherwise.
    adding: set[int] = field(default_factory=set)  # Of which more is added when they have closed, or now.
    new: int = 0  # How many batches may be made, at most.

    @property
    def ids(self) -> set[int]:
        return {*self.ends, *self.named, *self.changed}


def demand_of(operations: Iterable[Operation], named: Mapping[int, TaskRecord]) -> Demand:
    demand = Demand()
    for _, batch, may_fail in possible_ends(operations, named):
        demand.ends[batch] += 1
        if may_fail:
            demand.failing.add(batch)
    for commit in operations:
        if isinstance(commit, Commit):
            demand.named.update(add.batch for add in commit.adds if add.batch)
            if isinstance(commit.batch, BatchStep):
                demand.changed.add(commit.batch.id)
                demand.adding.update([commit.batch.id] if commit.batch.adds else [])
            elif commit.batch:
                demand.new += 1 + sum(plan.is_batch for _, plan in commit.batch.parts)
                demand.changed.update({commit.batch.parent} - {0})
    return demand


def _name_any(operations: Iterable[Operation], named: Mapping[int, TaskRecord]) -> bool:
    """Return whether the operations name a batch or a member of one; this is asked in every transaction."""
    for task in named.values():
        if task.batch:
            return True
    for commit in operations:
        if isinstance(commit, Commit) and (commit.batch or (commit.adds and any(add.batch for add in commit.adds))):
            return True
    return False


def concern(operation: Operation, named: Mapping[int, TaskRecord]) -> set[int]:
    """Return the batches that an operation may change."""
    return demand_of([operation], named).ids


def look_into(operations: Sequence[Operation], seen: Seen, dialect: Dialect) -> Steps[None]:
    """Lock and read the batches that the operations may change, and the parents that may close with them."""
    if not _name_any(operations, seen.named):
        return
    demand = demand_of(operations, seen.named)
    if not (demand.ids or demand.new):
        return
    guesses = _guesses.setdefault(dialect.using, {})
    found: dict[int, Batch] = {}
    shared = {each for each in demand.ids if dialect.serves_many and _may_share(each, demand, guesses.get(each))}
    wanted, below = demand.ids, dict[int, set[int]]()  # Of parents: the batches because of which they are locked.
    while wanted:
        with_groups = {*demand.named, *demand.changed}
        locked, read = yield from _locked(sorted(wanted, reverse=True), shared, with_groups, dialect)
        for batch_id in wanted - locked:
            seen.locked_batches |= {batch_id, *below.get(batch_id, ())}
        parents: set[int] = set()
        for batch in read:
            found[batch.id], batch.is_exact = batch, batch.id not in shared
            guesses[batch.id] = batch.counts[Phase.OPEN], bool(batch.on_failure and not batch.has_failed)
            if batch.id in shared and not _may_share(batch.id, demand, guesses[batch.id]):
                seen.contended_batches.add(batch.id)
            if batch.parent and batch.id not in shared and _may_end(batch, demand):
                below.setdefault(batch.parent, set()).update({batch.id, *below.get(batch.id, ())})
                parents.add(batch.parent)
        wanted = parents - found.keys() - seen.locked_batches
    if len(guesses) > MOST_KNOWN:
        guesses.clear()
    firing = [batch for batch in found.values() if batch.is_exact and (batch.then or batch.on_failure)]
    firing = [batch for batch in firing if _may_end(batch, demand) or batch.id in demand.adding]
    if firing:
        sql = f'SELECT id, "then", on_failure FROM tasks_app_batch WHERE {dialect.is_listed}'
        [plans] = yield [Statement(sql, [dialect.list_of(batch.id for batch in firing)])]
        for batch_id, *texts in plans:
            found[batch_id].then, found[batch_id].on_failure = map(plan_in, texts)
    number = demand.new + sum(plan.is_batch for batch in firing for plan in (batch.then, batch.on_failure) if plan)
    [ids] = (yield [dialect.batch_ids(number)]) if number else [[]]
    seen.batches = Batches(found, iter([batch_id for (batch_id,) in ids]))


def _may_share(batch: int, demand: Demand, guess: tuple[int, bool] | None) -> bool:
    if guess is None or batch in demand.changed:
        return False
    are_open, failure_adds = guess
    return demand.ends[batch] * SHARED_BELOW < are_open and not (failure_adds and batch in demand.failing)


def _may_end(batch: Batch, demand: Demand) -> bool:
    """Return whether the batch may close in this transaction, or add something because of a failure."""
    return batch.counts[Phase.OPEN] <= demand.ends[batch.id] or batch.id in demand.failing


def _number_of(batch: int) -> int:
    digest = hashlib.blake2b(f"batch {batch}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _locked(
    ids: Sequence[int], shared: Collection[int], with_groups: Collection[int], dialect: Dialect
) -> Steps[tuple[set[int], list[Batch]]]:
    """Lock these batches in this order, and read them. Returns which are locked now, and those that exist."""
    numbers, are_shared = [_number_of(batch) for batch in ids], [batch in shared for batch in ids]
    named = [batch for batch in ids if batch in with_groups]
    is_of_batch = dialect.is_listed.replace("id", "batch", 1)
    statements = [
        dialect.lock_each(numbers, are_shared),
        # By a statement of its own: it sees what was committed before the locks were there.
        Statement(
            f"""
            SELECT batch.id, parent, hold, failed_ends, refuses, has_failed, children, closed_at_ms,
                CASE WHEN "then" = '' THEN 0 ELSE 1 END, CASE WHEN on_failure = '' THEN 0 ELSE 1 END,
                CAST(coalesce(sum(open), 0) AS bigint), CAST(coalesce(sum(failed), 0) AS bigint),
                CAST(coalesce(sum(ended), 0) AS bigint)
            FROM tasks_app_batch AS batch LEFT JOIN tasks_app_batchcount AS counts ON counts.batch = batch.id
            WHERE batch.{dialect.is_listed} GROUP BY batch.id
            """,
            [dialect.list_of(ids)],
        ),
    ]
    if named:
        sql = f'SELECT batch, "group" FROM tasks_app_batchgroup WHERE {is_of_batch}'
        statements.append(Statement(sql, [dialect.list_of(named)]))
    for _ in range(TRIES):
        locks, rows, *others = yield statements
        if all(is_locked for (is_locked,) in locks):
            break
    locked = {batch for batch, (is_locked,) in zip(ids, locks, strict=True) if is_locked}
    groups = defaultdict(set)
    for batch, group in others[0] if named else ():
        groups[batch].add(group)
    return locked, [_batch_of(row, frozenset(groups[row[0]])) for row in rows if row[0] in locked]


def _batch_of(row: Row, groups: frozenset[str]) -> Batch:
    batch, parent, hold, failed_ends, refuses, has_failed, children, closed_at_ms, then, on_failure, *counts = row
    return Batch(
        id=batch,
        parent=parent,
        hold=bool(hold),
        failed_ends=bool(failed_ends),
        refuses=bool(refuses),
        has_failed=bool(has_failed),
        children=children,
        closed_at_ms=closed_at_ms,
        then=UNREAD if then else None,
        on_failure=UNREAD if on_failure else None,
        counts=counts,
        groups=groups,
        known_groups=groups,
    )


def written(written: Written, dialect: Dialect) -> Iterator[Statement]:
    """Yield the statements that write what has become of batches."""
    counts: list[Row] = []
    groups: list[Row] = []
    newest = 0
    for batch in sorted(written.batches, key=lambda batch: batch.id):
        changed = (
            int(batch.hold), int(batch.refuses), int(batch.has_failed), batch.children, batch.closed_at_ms,
        )  # fmt: skip
        if new := batch.made:
            first = (batch.id, new.name, new.mark, batch.parent, int(batch.failed_ends), written.now_ms)
            row = (*first, text_of(batch.then), text_of(batch.on_failure), *changed)
            yield from dialect.insert("tasks_app_batch", NEW_COLUMNS, [row])
        elif batch.is_changed:
            sets = ", ".join(f"{name} = %s" for name in CHANGED)
            yield Statement(f"UPDATE tasks_app_batch SET {sets} WHERE id = %s", [*changed, batch.id])
            if batch.adds_more:
                then = [text_of(batch.then), batch.id]
                yield Statement('UPDATE tasks_app_batch SET "then" = %s WHERE id = %s', then)
        if any(batch.more):
            counts.append((batch.id, 0 if batch.is_exact else random.randrange(PARTS), *batch.more))
        groups += [(batch.id, group) for group in sorted(batch.groups - batch.known_groups)]
        newest = max(newest, batch.id if batch.made else 0)
    if newest and not dialect.serves_many:
        yield dialect.go_on_after("batches", newest)
    yield from dialect.add("tasks_app_batchcount", COUNT_COLUMNS, counts, 2)
    yield from dialect.insert(
        "tasks_app_batchgroup", ("batch", "group"), groups, 'ON CONFLICT (batch, "group") DO NOTHING'
    )
