"""Changes of the limits of groups, and of what is kept for them of the tasks that are there already.

On PostgreSQL each transaction shares a lock of a table; a change of limits waits for it, so that every commit is
decided with the limits that apply to it. In a large group the rows of LimitedTask are written in steps, each in its own
transaction, so that nobody waits for long. Commits keep these rows from the first step on, and the claims that need
them are put off until the last one. A row of LimitChange says that steps are left, also when the process has died.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from django.db import OperationalError, transaction

from taskstore.errors import StoreBusy

from ..core.limits import GroupLimit, Limits
from .dialect import Dialect
from .django_transaction import atomic, dialect_of
from .group_patterns import bounds_of
from .limits import COLUMNS
from .rows import Row, Statement, T, quoted

LOOK_EVERY_S = 0.02
WAITS_MS = (*[20] * 10, 1_000)  # For locks of others. The last one holds up everybody else for long.
STEP_WAITS_MS = (20, 20, 20)  # Of a step, for which nobody waits.
STEP = 3_000  # Tasks.


class Change(NamedTuple):
    """A row of LimitChange."""

    id: int
    name: str
    holds: int


class Place(NamedTuple):
    """The last task that was noted, in the order of the steps. A task never changes its place: it is immutable."""

    group: str
    available_at_ms: int
    id: int


def change_limits(name: str, limit: GroupLimit | None, set_by: str, dialect: Dialect) -> bool:
    """Set the limit of this name, or remove it (None), within a transaction of Django.

    Returns whether everything is done: if not, `finish_changes` has to follow after the commit. Raises StoreBusy when
    transactions with the former limits last too long.
    """
    return announce_change(dialect, partial(_change, name, limit, set_by, dialect))


def _change(name: str, limit: GroupLimit | None, set_by: str, dialect: Dialect) -> bool:
    # Recent claims stay: they were made, whatever limits them now.
    former = limits_now(dialect)
    dialect.send([Statement("DELETE FROM tasks_app_grouplimit WHERE name = %s", [name])])
    if limit:
        columns = ", ".join(quoted((*COLUMNS, "set_by", "at")))
        sql = f"INSERT INTO tasks_app_grouplimit ({columns}) VALUES ({'%s, ' * len(COLUMNS)} %s, {dialect.time_of})"
        dialect.send([Statement(sql, [*limit, set_by, dialect.now_ms() / 1_000])])
    if not any(each.keeps(leased=True) for each in (*former, *limits_now(dialect))):
        return True
    before = next((each for each in former if each.name == name), None)
    unfinished = dialect.rows("SELECT 1 FROM tasks_app_limitchange WHERE name = %s AND holds = 1", [name])
    holds = bool(unfinished) or before is None or limit is None or before.rows != limit.rows
    dialect.send(
        [
            Statement("DELETE FROM tasks_app_limitchange WHERE name = %s", [name]),
            Statement("INSERT INTO tasks_app_limitchange (name, holds) VALUES (%s, %s)", [name, int(holds)]),
        ]
    )
    [row] = dialect.rows("SELECT id, name, holds FROM tasks_app_limitchange WHERE name = %s", [name])
    return _note(Change(*row), None, dialect) is None


def finish_changes(using: str) -> bool:
    """Do the steps that changes of limits have left. Returns whether none is left. Not within a transaction."""
    dialect = dialect_of(using)
    for row in dialect.rows("SELECT id, name, holds FROM tasks_app_limitchange ORDER BY id"):
        place: Place | None = None
        took_s = 0.0
        while True:
            time.sleep(took_s)  # Those that were waiting go on.
            began_s = time.monotonic()
            try:
                with atomic(dialect.using):
                    place = announce_change(dialect, partial(_note, Change(*row), place, dialect), STEP_WAITS_MS)
            except StoreBusy:
                return False
            if place is None:
                break
            took_s = time.monotonic() - began_s
    return True


def announce_change(dialect: Dialect, change: Callable[[], T], waits_ms: Sequence[int] = WAITS_MS) -> T:
    """Make a change after which every later transaction reads the limits again. Returns what it returns.

    Waits for transactions that use the former limits, and for rows that others have locked. Meanwhile everybody else
    waits for it. So it gives up soon, lets the others go on, and tries again.
    """
    for wait_ms in waits_ms:
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


def _note(change: Change, last: Place | None, dialect: Dialect) -> Place | None:
    """Do a step: keep for the next tasks what their limits need. Returns the last of them; None if no step is left."""
    first, beyond = bounds_of(change.name)
    rows = dialect.rows(
        f"""
        SELECT "group", available_at_ms, id FROM tasks_app_task
        WHERE ("group", available_at_ms, id) > (%s, %s, %s) AND "group" < %s
        ORDER BY "group", available_at_ms, id LIMIT {STEP}
        """,
        [*(last or Place(first, -(2**62), 0)), beyond or first + chr(1)],
    )
    if rows:
        ids = dialect.list_of([row[-1] for row in rows])
        if change.holds:
            sql = f"DELETE FROM tasks_app_limitedtask WHERE {dialect.is_listed}"
            dialect.send([Statement(sql, [ids]), *_kept(rows, dialect)])
        from_ms = f"CASE WHEN available_at_ms > (SELECT {dialect.clock}) THEN available_at_ms ELSE 0 END"
        sql = f"""
            INSERT INTO tasks_app_limitedvalue ("group", value, from_ms)
            SELECT DISTINCT "group", value, {from_ms} FROM tasks_app_limitedtask AS task
            WHERE {dialect.is_listed} AND leased = 0 AND NOT EXISTS (
                SELECT 1 FROM tasks_app_limitedvalue AS noted
                WHERE noted."group" = task."group" AND noted.from_ms = {from_ms} AND noted.value = task.value
            )
        """
        dialect.send([Statement(sql, [ids])])
    if len(rows) == STEP:
        return Place(*rows[-1])
    # Not by its name: another change of that name may have come after it, and has steps left.
    dialect.send([Statement("DELETE FROM tasks_app_limitchange WHERE id = %s", [change.id])])
    return None


def _kept(rows: list[Row], dialect: Dialect) -> Iterator[Statement]:
    """Statements: keep the rows of LimitedTask for these tasks."""
    limits, ids = Limits(limits=limits_now(dialect)), defaultdict[str, list[int]](list)
    for group, _, task_id in rows:
        if (limit := limits.of(group)) and limit.keeps(leased=True):
            ids[limit.by].append(task_id)
    for by, its in ids.items():
        sql = f"""
            INSERT INTO tasks_app_limitedtask (id, "group", value, priority, available_at_ms, leased)
            SELECT id, "group", {dialect.label_value}, priority, available_at_ms,
                CASE WHEN leased_since_ms > 0 THEN 1 ELSE 0 END
            FROM tasks_app_task WHERE {dialect.is_listed} {"" if by else "AND leased_since_ms > 0"}
        """
        yield Statement(sql, [by, dialect.list_of(its)])
