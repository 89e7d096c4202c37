"""The limits of groups (core/limits.py) in a transaction: read, and applied to claims. limit_changes.py changes them.

Every transaction reads the number of changes of limits together with the time, without another trip to the database.
The limits stay in memory until that number changes.

For tasks of groups with limits the store writes rows of LimitedTask. Claims from such a group take a lock of the group
until the transaction ends: they are decided one after the other, across processes.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.limits import Allowance, GroupLimit, Limits, values_to_lease
from ..core.operations import Operation, Supply, TaskRecord
from .claim_pools import NO_LIMITS, Demand, Queried, best_first, demands_of, queried_by
from .limited_values import MOST_VALUES, Chosen, best_of_values, learn
from .rows import Row, Statement, Steps, quoted, record_of
from .transaction_values import Seen

if TYPE_CHECKING:
    from .dialect import Dialect

COLUMNS = GroupLimit._fields
TRIES = 10  # To lock what another process has locked, before claims are put off.
SPARE = 20  # Tasks that a claim looks at in place of those that others have locked.
LEFT_OVER = 100  # Rows of LimitedValue: then a claim is worth while only to delete them.

_known: dict[str, Limits] = {}  # By database. Replaced as a whole.


def forget(using: str) -> None:
    """Read the limits again: a new connection may lead to a database that has lost its latest changes."""
    _known.pop(using, None)


def known(using: str) -> Limits:
    """Return the limits that this process has in memory."""
    return _known.get(using, NO_LIMITS)


def read_limits(version: int, dialect: Dialect) -> Steps[Limits]:
    """Return the limits of this version, which the transaction has read."""
    limits = known(dialect.using)
    if limits.version != version:
        rows, changing = yield [
            Statement(f"SELECT {', '.join(quoted(COLUMNS))} FROM tasks_app_grouplimit"),
            Statement("SELECT name, holds FROM tasks_app_limitchange"),
        ]
        limits = Limits(version, [GroupLimit(*row) for row in rows], dict(changing))
        if dialect.is_alone:  # What a caller's transaction sees may be taken back.
            _known[dialect.using] = limits
    return limits


def look_into(operations: Sequence[Operation], seen: Seen, dialect: Dialect) -> Steps[None]:
    """Read the use of the limits that the operations touch, and lock tasks for their claims."""
    before = known(dialect.using)
    if not before and seen.limits_version == before.version:
        return
    seen.limits = yield from read_limits(seen.limits_version, dialect)
    demands = demands_of(operations)
    queried = {group: asked for group, asked in queried_by(operations).items() if asked.tasks}
    # Also those that were left out by mistake: their limits have gone since.
    claimed = {group for group in (*demands, *queried) if seen.limits.of(group) or before.of(group)}
    leased = values_to_lease(operations, seen.named, seen.limits)
    locked = []
    for group in sorted(claimed | leased.keys()):
        seen.candidates.pop(group, None)
        seen.earliest.pop(group, None)
        now_ms = None if seen.limits.are_held(group) else (yield from _lock(group, dialect))
        if now_ms is None:
            seen.undecided.add(group)
            seen.candidates[group], seen.earliest[group] = [], []  # A claim takes what other groups have.
        else:
            seen.now_ms = max(seen.now_ms, now_ms)  # The last claim of each group was before.
            locked.append(group)
    for group in locked:
        allowance = seen.allowances[group] = Allowance(group, seen.limits.of(group) or GroupLimit(group), seen.now_ms)
        if group in claimed:
            yield from _look_into(allowance, demands.get(group), queried.get(group), seen, dialect)
        yield from learn(allowance, leased.get(group, ()), seen.now_ms, dialect)
    if locked:
        # Leases that ended after the locks are not counted, either: what is leased is so from after their ends.
        [[(now_ms,)]] = yield [Statement(f"SELECT {dialect.clock}")]
        seen.now_ms = max(seen.now_ms, now_ms)
        for allowance in seen.allowances.values():
            allowance.now_ms = seen.now_ms


def _look_into(
    allowance: Allowance, demand: Demand | None, asked: Queried | None, seen: Seen, dialect: Dialect
) -> Steps[None]:
    group = allowance.group
    number = (demand.limit if demand else 0) + (asked.tasks if asked else 0)
    is_oldest = demand.oldest if demand else True
    until_ms = max(seen.now_ms, asked.latest_ms if asked else 0)
    chosen = yield from _chosen(allowance, Demand(number, oldest=is_oldest), until_ms, dialect)
    seen.values |= chosen.values
    seen.looked_at += chosen.looked_at
    rows: Sequence[Row] = []
    if chosen.ids:
        [rows] = yield [dialect.lock_tasks(chosen.ids, seen)]
    is_hidden = len(rows) < len(chosen.ids)
    if is_hidden:  # Others have locked some of them, perhaps for long.
        wanted = Demand(number, oldest=is_oldest)
        wider = yield from _chosen(allowance, wanted, until_ms, dialect, spare=SPARE)
        if others := [task_id for task_id in wider.ids if task_id not in chosen.ids]:
            [more] = yield [dialect.lock_tasks(others, seen)]
            rows = [*rows, *more]
    found = {row[0]: record_of(row) for row in rows}
    if not is_hidden or chosen.is_paused:
        seen.exhausted.add(group)  # Nothing was hidden by the locks of others.
    if demand:
        seen.candidates[group] = best_first(rows, demand)
    if asked:
        seen.earliest[group] = sorted(found.values(), key=lambda task: (task.available_at_ms, task.id))


def learn_of(drafts: Iterable[TaskRecord], seen: Seen, dialect: Dialect) -> Steps[None]:
    """Read the use of limits by the values of new tasks, as far as it is unknown."""
    for group, allowance in seen.allowances.items():
        values = {allowance.limit.value_of(draft.labels) for draft in drafts if draft.group == group}
        yield from learn(allowance, values - allowance.known, seen.now_ms, dialect)


def within_limits(supply: Supply, dialect: Dialect) -> Steps[Supply]:
    """Reduce the supply to the tasks that limits allow, with the times at which a rate allows more."""
    # Those in memory are those of the last transaction: a change of limits may be why somebody looks.
    [[(version, now_ms)]] = yield [Statement(f"SELECT {dialect.limits_version}, {dialect.clock}")]
    limits = yield from read_limits(version, dialect)
    available, next_in_ms = dict(supply.available), dict(supply.next_in_ms)
    for group, count in supply.available.items() if limits else ():
        if (limit := limits.of(group)) and not limits.are_held(group):
            allowance = Allowance(group, limit, now_ms)
            chosen = yield from _chosen(allowance, Demand(count), now_ms, dialect)
            available[group] = len(chosen.ids) or len(chosen.looked_at) >= LEFT_OVER
            first = 'SELECT min(from_ms) FROM tasks_app_limitedvalue WHERE "group" = %s AND from_ms > %s'
            [[(from_ms,)]] = yield [Statement(first, [group, now_ms])]
            times = [allowance.soonest_ms(), from_ms and from_ms - now_ms, next_in_ms.get(group)]
            if in_ms := min(filter(None, times), default=None):
                next_in_ms[group] = in_ms
    return replace(supply, available=available, next_in_ms=next_in_ms)


def _lock(group: str, dialect: Dialect) -> Steps[int | None]:
    """Lock the group until the transaction ends. Returns the time at which it was locked; None if others keep it."""
    digest = hashlib.blake2b(f"limit {group}".encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "big", signed=True)
    for _ in range(TRIES):
        locking = dialect.lock_each([number], [False])
        [[(is_locked,)], [(now_ms,)]] = yield [locking, Statement(f"SELECT {dialect.clock}")]
        if is_locked:
            return int(now_ms)
    return None


def _chosen(allowance: Allowance, demand: Demand, until_ms: int, dialect: Dialect, spare: int = 0) -> Steps[Chosen]:
    """Choose the tasks that may be claimed, and so many more."""
    group, limit, chosen = allowance.group, allowance.limit, Chosen()
    expired = """
        SELECT id, value, priority, available_at_ms FROM tasks_app_limitedtask
        WHERE "group" = %s AND leased = 1 AND available_at_ms <= %s ORDER BY available_at_ms LIMIT %s
    """
    paused, found = yield [
        Statement('SELECT 1 FROM tasks_app_pausedgroup WHERE "group" = %s', [group]),
        Statement(expired, [group, allowance.now_ms, MOST_VALUES if limit.by else demand.limit]),
    ]
    if paused:
        chosen.is_paused = True
        return chosen
    available: list[Row] = []
    if limit.by:
        values = {row[1] for row in found}
        number = demand.limit + spare
        available = yield from best_of_values(allowance, values, number, until_ms, chosen, dialect, spare)
    else:
        yield from learn(allowance, [""], until_ms, dialect)
        if room := min(allowance.room(""), demand.limit):
            available = yield from _longest_available(group, room + spare, until_ms, dialect)
    found = [*[row for row in found if allowance.claims(row[1])], *available]
    random.shuffle(found)
    found.sort(key=lambda row: (-row[2], row[3]) if demand.oldest else (-row[2],))
    most = demand.limit if limit.by else min(demand.limit, allowance.claims(""))
    chosen.ids = list(dict.fromkeys([row[0] for row in found]))[: most + spare]
    return chosen


def _longest_available(group: str, number: int, until_ms: int, dialect: Dialect) -> Steps[list[Row]]:
    """Return available tasks of the highest priorities, the longest available of each."""
    found: list[Row] = []
    priority: int | None = 2**15 - 1  # Above all that there are.
    while len(found) < number:
        sql = 'SELECT max(priority) FROM tasks_app_task WHERE "group" = %s AND priority < %s'
        [[(priority,)]] = yield [Statement(sql, [group, priority])]
        if priority is None:
            break
        [rows] = yield [
            Statement(
                """
                SELECT id, '', priority, available_at_ms FROM tasks_app_task
                WHERE "group" = %s AND priority = %s AND available_at_ms <= %s
                ORDER BY available_at_ms, id LIMIT %s
                """,
                [group, priority, until_ms, number],
            )
        ]
        found += rows
    return found
