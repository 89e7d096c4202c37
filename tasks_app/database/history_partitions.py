"""The trail on PostgreSQL: a table for each day (UTC), made ahead, and dropped whole when all of it is old.

Beside them stands a default table for what finds none of its day, so that a commit never fails: because nobody
kept house for days, or the clock jumped. A day of which it holds rows gets no table any more, since
PostgreSQL refuses that; its rows stay where they are until they are old.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from ..conf import retention
from . import MINUTE_MS, Dialect, Statement, Steps

DAY_MS = 24 * 60 * MINUTE_MS
AHEAD = 3  # Days: today, tomorrow, and the day after.

TABLE = "tasks_app_endedtask"
DEFAULT = f"{TABLE}_default"

# Commits queue up behind whoever waits for a lock: better no table today than that.
BRIEFLY = Statement("SET LOCAL lock_timeout = '50ms'")


def make_ahead(dialect: Dialect) -> Steps[bool]:
    """Make the tables of today and of the next days, where they are missing. There is never more of it."""
    today, tables = yield from _look(dialect)
    missing = [day for day in range(today, today + AHEAD) if table_of(day) not in tables]
    if missing:
        free = yield from _without_rows(missing, dialect)
        yield [BRIEFLY, *(_unless_locked(_making(day)) for day in free)]
    return False


def drop_old(dialect: Dialect) -> Steps[bool]:
    """Drop the tables of which every row is old, and the oldest ones while all are too large. Never today's."""
    today, tables = yield from _look(dialect)
    # The rows of a day are old when its last one is: a day after its first one.
    oldest = table_of(max(today - retention.days(), 0))
    old = list[str]()
    for table in sorted(table for table in tables if table != DEFAULT and table < table_of(today)):
        if table < oldest or 0 < retention.most_bytes() < sum(tables.values()):
            old.append(table)
            del tables[table]
    if old:
        yield [BRIEFLY, _unless_locked(f"DROP TABLE {', '.join(old)}")]
    return False


def table_of(day: int) -> str:
    """The table of a day, which counts from the Epoch. Names sort as days do."""
    return f"{TABLE}_{datetime.fromtimestamp(day * DAY_MS / 1000, UTC):%Y_%m_%d}"


def _look(dialect: Dialect) -> Steps[tuple[int, dict[str, int]]]:
    """Today, and the tables that are there, with their bytes."""
    [[(now_ms,)], tables] = yield [
        Statement(f"SELECT {dialect.clock}"),
        Statement(
            f"""
            SELECT relname::text, pg_total_relation_size(pg_class.oid)
            FROM pg_inherits
            JOIN pg_class ON pg_class.oid = inhrelid
            WHERE inhparent = '{TABLE}'::regclass
            """
        ),
    ]
    return now_ms // DAY_MS, dict(tables)


def _without_rows(days: Iterable[int], dialect: Dialect) -> Steps[list[int]]:
    """Those of the days of which the default table holds nothing."""
    [rows] = yield [
        Statement(
            f"""
            SELECT day
            FROM unnest(%s::bigint[]) AS day
            WHERE NOT EXISTS (
                SELECT FROM {DEFAULT} WHERE ended_at_ms >= day * {DAY_MS} AND ended_at_ms < (day + 1) * {DAY_MS}
            )
            """,
            [dialect.list_of(days)],
        )
    ]
    return [day for (day,) in rows]


def _making(day: int) -> str:
    # Not PARTITION OF: it would lock out every commit, where attaching lets those go on that find a table of their day.
    return f"""
        CREATE TABLE {table_of(day)} (LIKE {TABLE} INCLUDING ALL);
        ALTER TABLE {TABLE} ATTACH PARTITION {table_of(day)}
        FOR VALUES FROM ({day * DAY_MS}) TO ({(day + 1) * DAY_MS})
    """


def _unless_locked(sql: str) -> Statement:
    """Nothing comes of it when somebody holds a lock, has just written a row of the day, or makes the same table.

    The next round tries again.
    """
    reasons = "lock_not_available OR check_violation OR duplicate_table OR unique_violation"
    return Statement(f"DO $$ BEGIN {sql}; EXCEPTION WHEN {reasons} THEN NULL; END $$")
