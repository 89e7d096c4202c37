"""Which values of the label of a limit have a task to claim, found in constant time however many are at their limit.

Whoever adds a task of a value, or ends a lease, adds a row of LimitedValue: rows of nobody else are touched, so no
commit waits for another. Claims, one after the other in a group, look only at the values of such rows. They delete
those of values of which none can be claimed, until there is another row, and keep those of the others.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..core.limits import Allowance, Claims
from .rows import Row, Statement, Steps

if TYPE_CHECKING:
    from .dialect import Dialect

MOST_VALUES = 1_000  # That are looked at together.

_turns: dict[str, str] = {}  # By group with very many claimable values: the one after which the next claim begins.


@dataclass(slots=True)
class Chosen:
    """The tasks that claims may take."""

    is_paused: bool = False
    ids: list[int] = field(default_factory=list)  # The best first.
    values: set[Row] = field(default_factory=set)  # As in Seen.
    looked_at: list[int] = field(default_factory=list)  # As in Seen.


def learn(allowance: Allowance, values: Collection[str], until_ms: int, dialect: Dialect) -> Steps[list[Row]]:
    """Read the use of the limit by these values. Returns rows of the best available tasks, one of each value.

    It is exact only under the lock of the group.
    """
    group, limit = allowance.group, allowance.limit
    if not values:
        return []
    names = dialect.list_of_names(values)
    statements = [
        Statement(
            f"""
            SELECT asked.value, asked.leased, head.id, head.priority, head.available_at_ms
            FROM (
                SELECT name AS value, (
                    SELECT count(*) FROM tasks_app_limitedtask WHERE "group" = %s AND leased = 1 AND value = name
                ) AS leased, (
                    SELECT id FROM tasks_app_limitedtask
                    WHERE "group" = %s AND leased = 0 AND value = name AND available_at_ms <= %s
                    ORDER BY priority DESC, available_at_ms, id LIMIT 1
                ) AS head
                FROM {dialect.names}
            ) AS asked LEFT JOIN tasks_app_limitedtask AS head ON head.id = asked.head
            """,
            [group, group, until_ms, names],
        )
    ]
    if limit.per_ms is not None:
        sql = f"""
            SELECT id, value, at_ms, claims, again_ms FROM {dialect.names} CROSS JOIN tasks_app_recentclaim
            WHERE "group" = %s AND value = name
        """
        statements.append(Statement(sql, [names, group]))
    used, *made = yield statements
    allowance.learn({value: leased for value, leased, *_ in used}, [Claims(*row) for rows in made for row in rows])
    return [(id, value, priority, at_ms) for value, _, id, priority, at_ms in used if id is not None]


def best_of_values(
    allowance: Allowance,
    also: Collection[str],
    number: int,
    until_ms: int,
    chosen: Chosen,
    dialect: Dialect,
    spare: int = 0,
) -> Steps[list[Row]]:
    """Return available tasks of values below their limit, of the highest priorities; at most `number` of a value.

    `also`: values to be looked at without a row of LimitedValue; `spare`: so many beyond the limit of a value.
    """
    group, now_ms = allowance.group, allowance.now_ms
    start = after = _turns.pop(group, "")
    due, ahead, *page = yield [*_due(allowance, until_ms), *_noted(group, after)]
    new = {*(value for (value,) in ahead), *(value for _, value, _ in due)}  # There may be no other row of them.
    others = new.union(also)
    heads: dict[str, Row] = {}
    while True:
        at_once, rest = page
        values = {value for _, value in at_once}
        found = {row[1]: row for row in (yield from learn(allowance, values | others, until_ms, dialect))}
        claimable = {value: row for value, row in found.items() if allowance.room(value)}
        heads |= claimable
        kept = {id for id, value in at_once if value in claimable}
        chosen.looked_at += {id for id, value in (*at_once, *rest) if value in values and id not in kept}
        chosen.looked_at += [id for id, _, from_ms in due if from_ms <= now_ms]
        chosen.values |= {(group, value, 0) for value in new & claimable.keys() - values}
        for value in (values | new) & found.keys() - claimable.keys():
            if allowance.slots(value) and (in_ms := allowance.next_in_ms(value)):
                chosen.values.add((group, value, now_ms + in_ms))
        chosen.values |= yield from _later(group, (values | new) - found.keys(), dialect)
        if heads and len(at_once) == MOST_VALUES:
            _turns[group] = at_once[-1][1]  # So that those behind it get their turn.
        if heads or (len(at_once) < MOST_VALUES and not start):
            break
        start, after = ("", "") if len(at_once) < MOST_VALUES else (start, at_once[-1][1])
        due, new, others = [], set(), set()
        page = [*(yield _noted(group, after))]
    # The best of all are among those of the values whose first ones are the best.
    best = sorted(heads.values(), key=lambda row: (-row[2], random.random()))[:number]
    if number == 1 or not best:
        return best
    more = yield [
        Statement(
            """
            SELECT id, value, priority, available_at_ms FROM tasks_app_limitedtask
            WHERE "group" = %s AND leased = 0 AND value = %s AND available_at_ms <= %s
            ORDER BY priority DESC, available_at_ms, id LIMIT %s
            """,
            [group, value, until_ms, min(number, allowance.room(value) + spare)],
        )
        for _, value, *_ in best
    ]
    return [row for rows in more for row in rows]


def _later(group: str, values: Collection[str], dialect: Dialect) -> Steps[set[Row]]:
    """Return new rows for values whose tasks are all available only later, though no row says when.

    Such a task was added after the time at which claims look, or before the clock was set back.
    """
    if not values:
        return set()
    sql = f"""
        SELECT value, at_ms
        FROM (
            SELECT name AS value, (
                SELECT min(available_at_ms) FROM tasks_app_limitedtask
                WHERE "group" = %s AND leased = 0 AND value = name
            ) AS at_ms
            FROM {dialect.names}
        ) AS later
        WHERE at_ms IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM tasks_app_limitedvalue AS noted
            WHERE "group" = %s AND from_ms = later.at_ms AND noted.value = later.value
        )
    """
    [rows] = yield [Statement(sql, [group, dialect.list_of_names(values), group])]
    return {(group, value, max(1, at_ms)) for value, at_ms in rows}


def _due(allowance: Allowance, until_ms: int) -> list[Statement]:
    """Statements: the rows that are due until then, and the values with claims that are noted for the future."""
    due = """
        SELECT id, value, from_ms FROM tasks_app_limitedvalue WHERE "group" = %s AND from_ms > 0 AND from_ms <= %s
        ORDER BY from_ms LIMIT %s
    """
    ahead = """
        SELECT value FROM tasks_app_recentclaim
        WHERE "group" = %s AND at_ms >= %s AND again_ms NOT BETWEEN 1 AND %s LIMIT %s
    """
    latest_ms = allowance.limit.slice_of(allowance.now_ms)
    return [
        Statement(due, [allowance.group, until_ms, MOST_VALUES]),
        Statement(ahead, [allowance.group, allowance.ahead_ms, latest_ms, MOST_VALUES]),
    ]


def _noted(group: str, after: str) -> list[Statement]:
    """Statements: a row of each of the next values, and more rows of these values."""
    next_value = """
        SELECT value FROM tasks_app_limitedvalue WHERE "group" = %s AND from_ms = 0{} ORDER BY value LIMIT 1
    """
    values = f"""
        WITH RECURSIVE noted(value, number) AS (
            SELECT ({next_value.format(" AND value > %s" if after else "")}), 1
            UNION ALL
            SELECT ({next_value.format(" AND value > noted.value")}), number + 1
            FROM noted WHERE noted.value IS NOT NULL AND number < {MOST_VALUES}
        )
        SELECT (
            SELECT min(id) FROM tasks_app_limitedvalue AS each
            WHERE "group" = %s AND from_ms = 0 AND each.value = noted.value
        ), value
        FROM noted WHERE value IS NOT NULL
    """
    rows = """
        SELECT id, value FROM tasks_app_limitedvalue WHERE "group" = %s AND from_ms = 0 AND value >= %s
        ORDER BY value, id LIMIT %s
    """
    place = [after] if after else []
    return [Statement(values, [group, *place, group, group]), Statement(rows, [group, after, MOST_VALUES])]
