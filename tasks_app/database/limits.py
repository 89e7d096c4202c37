"""The limits of groups (core/limits.py) in a transaction: read, applied to claims, and changed.

Every transaction reads the number of changes of limits together with the time, without another trip to the database.
The limits stay in memory until that number changes. On PostgreSQL each transaction shares a lock of a table; a change
of limits waits for it, so that every commit is decided with the limits that apply to it.

For tasks of groups with limits the store writes rows of LimitedTask. Claims from such a group take a lock of the group
until the transaction ends: they are decided one after the other, across processes.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from django.db import OperationalError, transaction

from taskstore.errors import StoreBusy
from taskstore.types.scalars import is_in_group

from ..core.limits import Allowance, GroupLimit, Limits, values_to_lease
from ..core.operations import Operation, Supply, TaskRecord
from .claim_pools import NO_LIMITS, Demand, Queried, best_first, demands_of, queried_by
from .limited_values import MOST_VALUES, Chosen, best_of_values, learn
from .rows import Row, Statement, Steps, T, quoted, record_of
from .transaction_values import Seen

if TYPE_CHECKING:
    from .dialect import Dialect

COLUMNS = GroupLimit._fields
LOOK_EVERY_S = 0.02
TRIES = 10  # To lock what another process has locked, before claims are put off.
WAITS_MS = (*[20] * 10, 1_000)  # For locks of others. The last one holds up everybody else for long.
SPARE = 20  # Tasks that a claim looks at in place of those that others have locked.
LEFT_OVER = 100  # Rows of LimitedValue: then a claim is worth while only to delete them.

NOTHING = GroupLimit("")

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
        [rows] = yield [Statement(f"SELECT {', '.join(quoted(COLUMNS))} FROM tasks_app_grouplimit")]
        limits = Limits(version, [GroupLimit(*row) for row in rows])
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
        now_ms = yield from _lock(group, dialect)
        if now_ms is None:
            seen.undecided.add(group)
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
        if limit := limits.of(group):
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


# ---- Changes of limits


def change_limits(name: str, limit: GroupLimit | None, set_by: str, dialect: Dialect) -> list[str]:
    """Set the limit of this name, or remove it (None), within a transaction of Django. Returns the groups concerned.

    Raises StoreBusy when transactions with the former limits last too long.
    """
    return announce_change(dialect, partial(_change, name, limit, set_by, dialect))


def _change(name: str, limit: GroupLimit | None, set_by: str, dialect: Dialect) -> list[str]:
    former = Limits(limits=limits_now(dialect))
    dialect.send([Statement("DELETE FROM tasks_app_grouplimit WHERE name = %s", [name])])
    if limit:
        columns = ", ".join(quoted((*COLUMNS, "set_by", "at")))
        sql = f"INSERT INTO tasks_app_grouplimit ({columns}) VALUES ({'%s, ' * len(COLUMNS)} %s, {dialect.time_of})"
        dialect.send([Statement(sql, [*limit, set_by, dialect.now_ms() / 1_000])])
    limits = Limits(limits=limits_now(dialect))
    groups = [group for group in dialect.group_names() if is_in_group(name, group)]
    for group in groups:
        # Recent claims stay: they were made, whatever limits them now.
        _note_anew(group, former.of(group) or NOTHING, limits.of(group) or NOTHING, dialect)
    return groups


def announce_change(dialect: Dialect, change: Callable[[], T]) -> T:
    """Make a change after which every later transaction reads the limits again. Returns what it returns.

    Waits for transactions that use the former limits, and for rows that others have locked. Meanwhile everybody else
    waits for it. So it gives up soon, lets the others go on, and tries again.
    """
    for wait_ms in WAITS_MS:
        try:
            with transaction.atomic(using=dialect.using):
                before, after = dialect.change_limits(wait_ms)
                dialect.send(before)
                changed = change()
                dialect.send(after)
            return changed
        except OperationalError as error:
            if not (dialect.serves_many and dialect.is_contention(error)):
                raise
        time.sleep(LOOK_EVERY_S)  # Those that were waiting go on.
    raise StoreBusy("a long transaction is using the limits, or has locked their rows: try again later")


def limits_now(dialect: Dialect) -> list[GroupLimit]:
    """All limits, sorted by name."""
    rows = dialect.rows(f"SELECT {', '.join(quoted(COLUMNS))} FROM tasks_app_grouplimit")
    return sorted(GroupLimit(*row) for row in rows)


def _note_anew(group: str, former: GroupLimit, limit: GroupLimit, dialect: Dialect) -> None:
    """Write the rows of LimitedTask for a group again, unless they stay the same, and those of LimitedValue."""
    dialect.send([Statement('DELETE FROM tasks_app_limitedvalue WHERE "group" = %s', [group])])
    if (former.by, former.keeps(leased=True)) != (limit.by, limit.keeps(leased=True)):
        dialect.send([Statement('DELETE FROM tasks_app_limitedtask WHERE "group" = %s', [group])])
        is_leased = "" if limit.by else "AND leased_since_ms > 0"
        sql = f"""
            INSERT INTO tasks_app_limitedtask (id, "group", value, priority, available_at_ms, leased)
            SELECT id, "group", {dialect.label_value}, priority, available_at_ms,
                CASE WHEN leased_since_ms > 0 THEN 1 ELSE 0 END
            FROM tasks_app_task WHERE "group" = %s {is_leased}
        """
        dialect.send([Statement(sql, [limit.by, group])] if limit.keeps(leased=True) else [])
    if limit.by:
        sql = f"""
            INSERT INTO tasks_app_limitedvalue ("group", value, from_ms)
            SELECT DISTINCT "group", value,
                CASE WHEN available_at_ms > (SELECT {dialect.clock}) THEN available_at_ms ELSE 0 END
            FROM tasks_app_limitedtask WHERE "group" = %s AND leased = 0
        """
        dialect.send([Statement(sql, [group])])
