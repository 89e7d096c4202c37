"""Batches within a transaction of the store: their locks, their counts, and what is written of them.

A commit that ends less than a hundredth of a batch's open members shares a lock of the batch with others, and adds to
one of its counts. Any other commit that ends members, and whatever else concerns the batch, has the lock alone: it
sees exact counts, and so the last end of a member sees that it is the last one. Locks are taken after all others, of
children before their parents.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from django.conf import settings

from taskstore.types.batches import ON_FAILURE, THEN, Plan, level_in, step_of
from taskstore.types.scalars import Limits
from taskstore.types.tasks import NOBODY, NewTask

from ..conf.commands import COMMANDS_ARE_OFF, commands_are_on
from ..core.batches import OWED, Batch, Batches, Level, Phase, keeps_failures, possible_ends, weight_of
from ..core.operations import BatchStep, Commit, GroupScope, Operation, Step, TaskRecord, why_may_not_add
from .new_groups import why_too_many
from .rows import Heavy, Row, Statement, Steps, quoted
from .transaction_values import Seen, Written

if TYPE_CHECKING:
    from .dialect import Dialect

PARTS = 64  # Of the counts of a batch.
SHARED_BELOW = 100  # A commit shares the lock if it ends less than this part of the open members.
TRIES = 10
MOST_KNOWN = 10_000
READ_AT_ONCE = 16 * 2**20  # Bytes of plans in one transaction. The housekeeper reads the rest step by step.
LARGE_PLAN = 2**18  # Bytes, of which to make tasks takes longer than others should wait.
COUNT_COLUMNS = ("batch", "part", "open", "failed", "ended", "gone")
CHANGED = (
    "hold", "failed_ends", "refuses", "has_failed", "children", "failed_children", "closed_at_ms",
    "steps", "then", "on_failure", "problem",
)  # fmt: skip
NEW_COLUMNS = ("id", "name", "mark", "parent", "created_at_ms", "root", "path", *CHANGED)
PLAN_COLUMNS = ("root", "level", "holder", "number", "size", "words", "groups", "reach", "adds")
HOLDER_COLUMNS = ("name", "groups", "commands", "lost")

# A batch, whose id is `top`, and those within it, as the table `tree`.
TREE = """
    WITH RECURSIVE tree(id, root, path, refuses, closed_at_ms, problem) AS (
        SELECT id, root, path, refuses, closed_at_ms, problem FROM tasks_app_batch AS top WHERE top.id = {top}
        UNION ALL
        SELECT below.id, below.root, below.path, below.refuses, below.closed_at_ms, below.problem
        FROM tree JOIN tasks_app_batch AS below ON below.parent = tree.id AND NOT (below.parent = 0)
    )
"""
ALL_WITHIN = f"{TREE} SELECT id FROM tree".format(top="CAST(%s AS bigint)")
EACH = '"tasks_app_batch"."id"'
# Of a batch with those within it: the numbers of members by phase; how many of its own are gone; how many tasks are
# planned if nothing fails; and why something can't be added. Each batch is looked up by itself: a planner that does not
# know how few they are would read whole tables.
TOTALS = (
    *(
        f"sum((SELECT sum({name}) FROM tasks_app_batchcount WHERE batch = tree.id))"
        for name in ("open", "failed", "ended", "gone")
    ),
    f"(SELECT sum(gone) FROM tasks_app_batchcount WHERE batch = {EACH})",
    f"""sum(CASE WHEN refuses = 0 AND (tree.id = {EACH} OR tree.id = root) THEN (
        SELECT sum(number) FROM tasks_app_batchplan
        WHERE level >= CAST(tree.root AS text) || '/' || tree.path
            AND level < CAST(tree.root AS text) || '/' || tree.path || '~' AND level NOT LIKE '%%{ON_FAILURE}%%'
    ) END)""",
)
NUMBERS = f"""(
    {TREE.format(top=EACH)}
    SELECT {" || ' ' || ".join(f"CAST(coalesce({total}, 0) AS text)" for total in TOTALS)}
        || ' ' || coalesce(max(CASE WHEN closed_at_ms = 0 THEN problem END), '')
    FROM tree
)"""

# By database and batch: how many members were open, and whether a failure adds something. Only to guess the lock.
_guesses: dict[str, dict[int, tuple[int, bool]]] = {}


@dataclass(slots=True)
class Demand:
    """What operations may do to batches."""

    ends: Counter[int] = field(default_factory=Counter)  # How many members may end or fail, by batch.
    failing: set[int] = field(default_factory=set)  # Of which members may fail.
    named: set[int] = field(default_factory=set)  # That take new members.
    changed: set[int] = field(default_factory=set)  # That change otherwise.
    adding: set[int] = field(default_factory=set)  # Batches that get more plans.
    released: set[int] = field(default_factory=set)  # Batches that are released.
    takes_over: dict[int, GroupScope] = field(default_factory=dict)  # Rows of plans that get these rights.
    new: int = 0  # How many batches may be made, at most.

    @property
    def ids(self) -> set[int]:
        return {*self.ends, *self.named, *self.changed}


def demand_of(operations: Iterable[Operation], named: Mapping[int, TaskRecord]) -> Demand:
    demand = Demand()
    for task, may_fail in possible_ends(operations, named):
        demand.ends[task.batch] += weight_of(task)
        if may_fail:
            demand.failing.add(task.batch)
    for commit in operations:
        if isinstance(commit, Commit):
            demand.named.update(add.batch for add in commit.adds if add.batch)
            demand.failing.update(add.batch for add in commit.adds if add.batch and keeps_failures(add.group))
            if isinstance(commit.batch, BatchStep):
                ids = {commit.batch.id, *commit.batch.also}
                demand.changed |= ids
                if commit.batch.plan.then:
                    demand.adding.add(commit.batch.id)
                if commit.batch.step is Step.RELEASE:
                    demand.released |= ids
                demand.takes_over |= dict.fromkeys(commit.batch.takes_over, commit.scope)
            elif commit.batch:
                demand.new += 1 + sum(plan.new_batches for _, plan in commit.batch.plan.parts)
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
            guesses[batch.id] = batch.counts[Phase.OPEN], batch.tells_failure
            if batch.id in shared and not _may_share(batch.id, demand, guesses[batch.id]):
                seen.contended_batches.add(batch.id)
            if batch.parent and batch.id not in shared and _may_end(batch, demand):
                below.setdefault(batch.parent, set()).update({batch.id, *below.get(batch.id, ())})
                if batch.id in demand.failing or batch.has_lost or batch.refuses or batch.id in demand.changed:
                    demand.failing.add(batch.parent)
                parents.add(batch.parent)
        wanted = parents - found.keys() - seen.locked_batches
    if len(guesses) > MOST_KNOWN:
        guesses.clear()
    due = [
        (batch, letter)
        for batch in found.values()
        for letter in (batch.next_level, ON_FAILURE)
        if _is_due(batch, letter, demand, len(below.get(batch.id, ())))
    ]
    if due:
        yield from _read_levels(due, demand.takes_over, dialect)
    if demand.adding:
        yield from _read_sizes([batch for batch in found.values() if batch.id in demand.adding], dialect)
    number = demand.new + sum(level.new_batches for batch in found.values() for level in batch.levels.values())
    [ids] = (yield [dialect.batch_ids(number)]) if number else [[]]
    seen.batches = Batches(found, iter([batch_id for (batch_id,) in ids]), most_plan_bytes())


def most_plan_bytes() -> int:
    """How many bytes of tasks the plans of a batch may have together."""
    return int(getattr(settings, "TASKSTORE_MAX_PLAN_BYTES", Limits().plan_bytes))


def _is_due(batch: Batch, letter: str, demand: Demand, children: int) -> bool | str:
    """Return whether the batch may add this level in this transaction. `children`: how many may close in it."""
    is_looked_at = batch.id in demand.changed
    if not batch.is_exact or batch.closed_at_ms or batch.refuses or (batch.problem and not is_looked_at):
        return False  # With a problem only the housekeeper and operators try again.
    if letter == ON_FAILURE:
        fails = batch.id in demand.failing and not batch.has_failed
        return batch.on_failure > 0 and (fails or batch.has_failed == OWED)
    waits = batch.hold and batch.id not in demand.released
    return letter and not waits and batch.children <= children and _may_end(batch, demand)


def level_of(batch: Batch, letter: str) -> str:
    return f"{batch.root}/{batch.path}{letter}"


def _read_levels(
    due: Sequence[tuple[Batch, str]], takes_over: Mapping[int, GroupScope], dialect: Dialect
) -> Steps[None]:
    """Read what the batches may add now, as far as it is not too much, and whether anything is against it."""
    wanted = {level_of(batch, letter): (batch, letter) for batch, letter in due}
    sql = f"""
        SELECT plan.id, plan.level, plan.holder, plan.size, plan.groups, holder.groups, holder.commands, holder.lost,
            (SELECT CAST(coalesce(sum(number), 0) AS bigint) FROM tasks_app_batchplan AS below
            WHERE below.level = plan.level || '{THEN}'),
            (SELECT CAST(coalesce(sum(number), 0) AS bigint) FROM tasks_app_batchplan AS below
            WHERE below.level = plan.level || '{ON_FAILURE}')
        FROM tasks_app_batchplan AS plan LEFT JOIN tasks_app_rightsholder AS holder ON holder.name = plan.holder
        WHERE plan.level IN (SELECT name FROM {dialect.names})
        ORDER BY plan.id
    """
    [rows] = yield [Statement(sql, [dialect.list_of_names(wanted)])]
    parts: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        parts[row[1]].append(row)
    left, chosen = READ_AT_ONCE, list[str]()
    for level, found in parts.items():
        batch, letter = wanted[level]
        lost = next(filter(None, (_why_lost(row) for row in found if row[0] not in takes_over)), "")
        size = sum(row[3] for row in found)
        if lost:
            batch.levels[letter] = Level((), against=lost)
        elif size <= left or not chosen:
            chosen.append(level)
            left -= size
    if not chosen:
        return
    ids = [row[0] for level in chosen for row in parts[level]]
    statement = Statement(f"SELECT id, adds FROM tasks_app_batchplan WHERE {dialect.is_listed}", [dialect.list_of(ids)])
    [texts] = yield Heavy([statement]) if READ_AT_ONCE - left > LARGE_PLAN else [statement]
    kept = {number: level_in(text) for number, text in texts}
    for level in chosen:
        batch, letter = wanted[level]
        read = [(row, kept[row[0]], takes_over.get(row[0]) or _rights_in(row)) for row in parts[level]]
        against = next(filter(None, (_why_not(each.every_add, scope) for _, each, scope in read)), "")
        for _, each, scope in read:
            against = against or (yield from why_too_many({add.group for add in each.every_add}, scope, dialect))
        groups = frozenset(group for row, *_ in read for group in json.loads(row[4]))
        whole = [Level.kept_as(each, scope.holder, groups) for _, each, scope in read]
        batch.levels[letter] = Level(
            tuple(part for each in whole for part in each.parts),
            then=parts[level][0][-2],
            on_failure=parts[level][0][-1],
            steps=sum(each.steps for each in whole),
            groups=groups,
            against=against,
            within=tuple(level for each in whole for level in each.within),
        )


def _why_lost(row: Row) -> str:
    """Return why the rights of this row are lost; empty: they are not."""
    _, _, holder, *_, groups, _, lost, _, _ = row
    return lost or ("" if groups or not holder else f"{holder} is not known any more")


def _rights_in(row: Row) -> GroupScope:
    _, _, holder, _, _, groups, may_command, *_ = row
    own = GroupScope.of_holder(holder, groups, may_command=bool(may_command))
    return own if commands_are_on() else replace(own, no_commands_because=COMMANDS_ARE_OFF)


def _why_not(adds: Sequence[NewTask], scope: GroupScope) -> str:
    """Return why the tasks may not be added with these rights; empty: they may."""
    if not scope.is_restricted:
        return ""
    why = next(filter(None, (why_may_not_add(add.group, add.data, scope) for add in adds)), "")
    return why and f"{scope.holder}: {why}".removeprefix(": ")


def _read_sizes(batches: Sequence[Batch], dialect: Dialect) -> Steps[None]:
    """Read how much the batches plan already."""
    for batch in batches:
        sql = "SELECT coalesce(sum(size), 0) FROM tasks_app_batchplan WHERE level >= %s AND level < %s"
        [[(size,)]] = yield [Statement(sql, _levels_from(level_of(batch, "")))]
        batch.planned_bytes = int(size)


def _levels_from(level: str, last: str = "") -> list[str]:
    """Return the bounds of the levels from this one to the last, and of those below them."""
    return [level, f"{last or level}~"]


# A condition on the table of batches, here called `waiting`: nothing keeps it open any more.
WAITS_FOR_NOTHING = f"""
    closed_at_ms = 0 AND (
        has_failed = {OWED} OR hold = 0 AND children = 0 AND NOT EXISTS (
            SELECT 1 FROM tasks_app_batchcount WHERE batch = waiting.id GROUP BY batch
            HAVING sum(open) > 0 OR (failed_ends = 0 AND sum(failed) > 0)
        )
    )
"""


def looks_at(ids: Iterable[int], dialect: Dialect) -> Steps[list[Commit]]:
    """Return the commits that close those of the batches that nothing keeps open any more.

    Of transactions that share the lock of a batch, and end its members at the same time, none may have seen the last.
    """
    sql = f"SELECT id FROM tasks_app_batch AS waiting WHERE {dialect.is_listed} AND {WAITS_FOR_NOTHING}"
    [rows] = yield [Statement(sql, [dialect.list_of(ids)])]
    return [Commit(owner=NOBODY, batch=BatchStep(batch, Step.LOOK)) for (batch,) in rows]


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
            SELECT batch.id, parent, hold, failed_ends, refuses, has_failed, children, failed_children, closed_at_ms,
                steps, "then", on_failure, problem, root, path,
                CAST(coalesce(sum(open), 0) AS bigint), CAST(coalesce(sum(failed), 0) AS bigint),
                CAST(coalesce(sum(ended), 0) AS bigint), CAST(coalesce(sum(gone), 0) AS bigint)
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
    batch, parent, hold, failed_ends, refuses, has_failed, children, failed_children, closed_at_ms, *others = row
    steps, then, on_failure, problem, root, path, *counts = others
    return Batch(
        id=batch,
        parent=parent,
        hold=bool(hold),
        failed_ends=bool(failed_ends),
        refuses=bool(refuses),
        has_failed=has_failed,
        children=children,
        failed_children=failed_children,
        closed_at_ms=closed_at_ms,
        steps=steps,
        then=then,
        on_failure=on_failure,
        problem=problem,
        root=root,
        path=path,
        counts=counts,
        groups=groups,
        known_groups=groups,
    )


def written(written: Written, dialect: Dialect) -> Iterator[Statement]:
    """Yield the statements that write what has become of batches."""
    counts: list[Row] = []
    groups: list[Row] = []
    newest = 0
    plans: list[tuple[int, str, Plan, GroupScope | None]] = []
    for batch in sorted(written.batches, key=lambda batch: batch.id):
        changed = (
            int(batch.hold), int(batch.failed_ends), int(batch.refuses), int(batch.has_failed), batch.children,
            batch.failed_children, batch.closed_at_ms, batch.steps, batch.then, batch.on_failure, batch.problem,
        )  # fmt: skip
        if new := batch.made:
            first = (batch.id, new.name, new.mark, batch.parent, written.now_ms)
            yield from dialect.insert("tasks_app_batch", NEW_COLUMNS, [(*first, batch.root, batch.path, *changed)])
            is_over = batch.closed_at_ms and not batch.has_failed
            plans += [
                (batch.root, level_of(batch, path), plan, batch.rights)
                for path, plan in new.plan.levels
                if path and path not in batch.spent and not (is_over and path.startswith(ON_FAILURE))
            ]
        elif batch.is_changed:
            sets = ", ".join(f"{name} = %s" for name in quoted(CHANGED))
            yield Statement(f"UPDATE tasks_app_batch SET {sets} WHERE id = %s", [*changed, batch.id])
            yield from _changed_plans(batch)
        if THEN not in batch.spent:
            plans += [(batch.root, level_of(batch, THEN), *later) for later in batch.later]
        if any(batch.more):
            counts.append((batch.id, 0 if batch.is_exact else random.randrange(PARTS), *batch.more))
        groups += [(batch.id, group) for group in sorted(batch.groups - batch.known_groups)]
        newest = max(newest, batch.id if batch.made else 0)
    if newest and not dialect.serves_many:
        yield dialect.go_on_after("batches", newest)
    rights = {scope.holder: scope for *_, scope in plans if scope}
    rights |= {scope.holder: scope for batch in written.batches for _, scope in batch.taken_over}
    yield from dialect.insert("tasks_app_batchplan", PLAN_COLUMNS, [_plan_row(*plan) for plan in plans])
    yield from dialect.insert(
        "tasks_app_rightsholder",
        HOLDER_COLUMNS,
        # access/rights.py keeps the rights of known holders current.
        [
            (name, json.dumps(scope.patterns), int(not scope.no_commands_because), "")
            for name, scope in rights.items()
            if name
        ],
        "ON CONFLICT (name) DO NOTHING",
    )
    yield from dialect.add("tasks_app_batchcount", COUNT_COLUMNS, counts, 2)
    yield from dialect.insert(
        "tasks_app_batchgroup", ("batch", "group"), groups, 'ON CONFLICT (batch, "group") DO NOTHING'
    )


def _plan_row(root: int, level: str, plan: Plan, scope: GroupScope | None) -> Row:
    groups = json.dumps(sorted(plan.groups))
    return (
        root,
        level,
        scope.holder if scope else "",
        plan.number,
        len(plan.text),
        plan.in_words,
        groups,
        json.dumps(sorted(plan.own_reach)),
        plan.text,
    )


def _changed_plans(batch: Batch) -> Iterator[Statement]:
    """Yield the statements after which nothing is planned any more that was added, or never will be."""
    for row, scope in batch.taken_over:
        yield Statement("UPDATE tasks_app_batchplan SET holder = %s WHERE id = %s", [scope.holder, row])
    for letter in sorted(batch.spent):
        yield Statement("DELETE FROM tasks_app_batchplan WHERE level = %s", [level_of(batch, letter)])
    unused = [(ON_FAILURE, ON_FAILURE)] if batch.on_failure and not batch.has_failed else []
    unused += [(THEN, THEN)] if batch.then else []
    # A step that was added keeps what is planned within it.
    unused += [(step_of(1), step_of(batch.steps))] if batch.steps else []
    for levels in unused if batch.closed_at_ms and not batch.refuses else ():
        sql = "DELETE FROM tasks_app_batchplan WHERE level >= %s AND level < %s"
        yield Statement(sql, _levels_from(*(level_of(batch, level) for level in levels)))
