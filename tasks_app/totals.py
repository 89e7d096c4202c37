"""Counts without counting: a total for each group, and the deltas that are still to be folded into it.

Every batch appends by how much it changed the numbers of its groups, in its own transaction, because
a total that each of them updated in place would make them wait for each other. One process at a
time folds the deltas into the totals; whoever reads sums up both, so that it never matters when.

SQL instead of the ORM, because sums over two tables and bounded counts inside of them can't be said in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from django.db import DEFAULT_DB_ALIAS, transaction

from .database import MINUTE_MS, Dialect, Row, Statement, Steps, dialect_of
from .operations import GroupScope
from .tally import COUNTERS, HISTOGRAMS, counter_in, text_of

FOLD_ONCE_IN = 256  # Commits of a process in which no server does it.
# Of the future of a group so much is counted; beyond that the numbers of claimed and scheduled tasks are too low.
FUTURE_CAP = 200_000
# Sorts after every name that a group can have.
BEYOND_EVERY_NAME = chr(0x10FFFF) * 256

PLACE_DIGITS = 6

COUNTS = ("tasks", "leases", "failed")  # Of a group, at a moment.
EVENTS = ("entered", "left", "failures", "claimed")  # In a group, within a time.
TOTAL_COLUMNS = ("group", *COUNTS)
HAPPENED = (*EVENTS, "tasks", *HISTOGRAMS)  # Of a group, within a time; tasks: how many there were at its end.
RATE_COLUMNS = ("group", "minutes", "minute", *HAPPENED)


class Numbers(NamedTuple):
    """What is known of a group. `claimed` and `scheduled` are the parts of `leases`, and of the rest, in the future."""

    group: str
    tasks: int
    leases: int
    failed: int
    claimed: int
    scheduled: int

    @property
    def ready(self) -> int:
        return self.tasks - self.leases - self.scheduled

    @property
    def expired(self) -> int:
        return self.leases - self.claimed


# ---- Reading


def numbers(scope: GroupScope, using: str = DEFAULT_DB_ALIAS) -> list[Numbers]:
    """The numbers of the groups that hold a task and that the scope allows, sorted by name, as of one moment."""
    return _numbers(*_condition(scope), using)


def numbers_of(group: str, using: str = DEFAULT_DB_ALIAS) -> Numbers | None:
    """The numbers of one group; None when it holds no task."""
    found = _numbers('"group" = %s', [group], using)
    return found[0] if found else None


def numbers_of_all(using: str = DEFAULT_DB_ALIAS) -> Numbers:
    """The numbers of all groups together, under no name. Added up by the database: there may be ten thousand groups."""
    dialect = dialect_of(using)
    sums = ", ".join(f"CAST(coalesce(sum({name}), 0) AS bigint)" for name in Numbers._fields[1:])
    [row] = dialect.rows(f"SELECT '', {sums} FROM ({_query_of_numbers('1 = 1', dialect)}) AS numbers")
    return Numbers._make(row)


def _numbers(condition: str, names: Sequence[str], using: str) -> list[Numbers]:
    dialect = dialect_of(using)
    query = _query_of_numbers(condition, dialect)
    rows = dialect.rows_at_once(["name", *Numbers._fields[1:]], query, [*names, *names])
    return sorted(Numbers._make(row) for row in rows)


def _query_of_numbers(condition: str, dialect: Dialect) -> str:
    """A query for Numbers, a row for each group; it takes the parameters of the condition twice."""
    columns = '"group", tasks, leases, failed'
    sums = ", ".join(f"CAST(sum({name}) AS bigint) AS {name}" for name in COUNTS)
    return f"""
        SELECT name, tasks, leases, failed,
            CASE WHEN leases > 0 THEN ({_future_of("leased_since_ms > 0")}) ELSE 0 END AS claimed,
            CASE WHEN tasks > leases THEN ({_future_of("leased_since_ms = 0")}) ELSE 0 END AS scheduled
        FROM (SELECT {dialect.clock} AS now_ms) AS clock, (
            SELECT "group" AS name, {sums}
            FROM (
                SELECT {columns} FROM tasks_app_grouptotal WHERE {condition}
                UNION ALL
                SELECT {columns} FROM tasks_app_countdelta WHERE {condition}
            ) AS totals_and_deltas
            GROUP BY "group"
            HAVING sum(tasks) > 0
        ) AS sums
    """


def _future_of(state: str) -> str:
    """A query for how many tasks of the group `name` lie in the future; an index-only scan."""
    return f"""
        SELECT count(*)
        FROM (
            SELECT leased_since_ms FROM tasks_app_task
            WHERE "group" = name AND available_at_ms > now_ms
            ORDER BY available_at_ms
            LIMIT {FUTURE_CAP}
        ) AS future
        WHERE {state}
    """


def longest_ready_ms(groups: Iterable[str], using: str = DEFAULT_DB_ALIAS) -> dict[str, int]:
    """For how long the oldest ready task of each group has been ready. Ask only for groups that have one."""
    dialect = dialect_of(using)
    rows = dialect.rows_at_once(
        ["name", "ms"],
        f"""
        SELECT name, now_ms - (
            SELECT available_at_ms FROM tasks_app_task
            WHERE "group" = name AND available_at_ms <= now_ms AND leased_since_ms = 0
            ORDER BY available_at_ms, id
            LIMIT 1
        ) AS ms
        FROM (SELECT {dialect.clock} AS now_ms) AS clock, {dialect.names}
        """,
        [dialect.list_of_names(groups)],
    )
    # What was ready a moment ago may be gone.
    return {name: ms for name, ms in rows if ms is not None}


def flow(scope: GroupScope, using: str = DEFAULT_DB_ALIAS) -> dict[str, tuple[float, float]]:
    """How many tasks entered and left each group within the last minute, where there were any."""
    dialect = dialect_of(using)
    minute, past_ms = divmod(dialect.now_ms(), MINUTE_MS)
    condition, names = _condition(scope)
    rows = dialect.rows_at_once(
        ["group", "minute", "entered", "left"],
        f"""
        SELECT "group", minute, CAST(sum(entered) AS bigint) AS entered, CAST(sum("left") AS bigint) AS "left"
        FROM (
            SELECT "group", minute, entered, "left" FROM tasks_app_rate
            WHERE minutes = 1 AND minute >= %s AND ({condition})
            UNION ALL
            SELECT "group", minute, entered, "left" FROM tasks_app_countdelta
            WHERE minute >= %s AND ({condition})
        ) AS rates_and_deltas
        GROUP BY "group", minute
        """,
        [minute - 1, *names, minute - 1, *names],
    )
    flows: dict[str, tuple[float, float]] = {}
    for group, of_minute, entered, left in rows:
        # Of the minute before this one so much lies within the last sixty seconds.
        share = 1.0 if of_minute == minute else 1 - past_ms / MINUTE_MS
        entered_before, left_before = flows.get(group, (0.0, 0.0))
        flows[group] = entered_before + entered * share, left_before + left * share
    return flows


def changes_of(sets: Sequence[Sequence[str]], start: int, using: str = DEFAULT_DB_ALIAS) -> list[dict[int, int]]:
    """By how much the number of tasks of each set of groups changed, by minute from `start` on.

    Minutes in which nothing happened are left out.
    """
    dialect = dialect_of(using)
    # A list of names is all that every database takes as one parameter: each bears the place of its set.
    members = dialect.list_of_names(
        f"{place:0{PLACE_DIGITS}}{name}" for place, names in enumerate(sets) for name in names
    )
    rows = dialect.rows_at_once(
        ["place", "minute", "more"],
        # Materialized, or SQLite would look through all members for each delta. And a cross join, because it keeps
        # the order of that: by itself it would read what happened in all groups.
        f"""
        WITH members AS MATERIALIZED (
            SELECT substr(name, 1, {PLACE_DIGITS}) AS place, substr(name, {PLACE_DIGITS + 1}) AS member
            FROM {dialect.names}
        )
        SELECT place, minute, CAST(sum(more) AS bigint) AS more
        FROM (
            SELECT place, minute, entered - "left" AS more FROM members CROSS JOIN tasks_app_rate
            WHERE "group" = member AND minutes = 1 AND minute >= %s
            UNION ALL
            SELECT place, minute, tasks AS more FROM members JOIN tasks_app_countdelta ON "group" = member
            WHERE minute >= %s
        ) AS rates_and_deltas
        GROUP BY place, minute
        """,
        [members, start, start],
    )
    changes: list[dict[int, int]] = [{} for _ in sets]
    for place, minute, more in rows:
        changes[int(place)][minute] = more
    return changes


def _condition(scope: GroupScope) -> tuple[str, list[str]]:
    """A condition for the groups that the scope allows, and its parameters."""
    if scope.patterns is None:
        return "1 = 1", []
    conditions, names = ["1 = 0"], list[str]()
    for pattern in scope.patterns:
        if pattern.endswith("*"):
            # Not LIKE: on SQLite it takes capitals for small letters.
            conditions.append('"group" >= %s AND "group" < %s')
            names += [pattern[:-1], pattern[:-1] + BEYOND_EVERY_NAME]
        else:
            conditions.append('"group" = %s')
            names.append(pattern)
    return " OR ".join(conditions), names


# ---- Folding


def now_and_then_fold(using: str) -> None:
    """After a commit in a process without a server: else the deltas would grow without end."""
    if random.randrange(FOLD_ONCE_IN) == 0:
        # What goes wrong is a line in the log: the commit itself is done.
        transaction.on_commit(partial(fold_here, using), using=using, robust=True)


def fold_here(using: str = DEFAULT_DB_ALIAS) -> None:
    """Fold on Django's connection, in a transaction of its own or the caller's."""
    dialect = dialect_of(using)
    with dialect.turn(), transaction.atomic(using=using):
        dialect.drive(when_elected(fold, dialect))


def when_elected(work: Callable[[Dialect], Steps[bool]], dialect: Dialect) -> Steps[bool]:
    """Do the work in this transaction, unless another process keeps house right now.

    Returns what the work says: whether there is more of it.
    """
    [[(is_elected,)]] = yield [dialect.election()]
    return (yield from work(dialect)) if is_elected else False


def fold(dialect: Dialect) -> Steps[bool]:
    """Fold all deltas into the totals, the rates, and what each client has done."""
    sums = [f'CAST(sum("{name}") AS bigint)' for name in (*COUNTS, *EVENTS)]
    texts = map(dialect.joined, COUNTERS)
    rows = yield from dialect.take("tasks_app_countdelta", ", ".join((*sums, *texts)), grouped_by='"group", minute')
    if rows:
        tasks = yield from _add_to_totals(rows, dialect)
        yield from add_to_rates(1, [_happened(row, tasks) for row in rows], dialect)
        yield from _add_to_work_done(rows, dialect)
    return False


def _happened(row: Row, tasks: Mapping[str, int]) -> Row:
    """A folded delta as a row of rates: its group, its minute, HAPPENED."""
    group, minute, *rest, _ = row
    events, histograms = rest[len(COUNTS) : -len(HISTOGRAMS)], rest[-len(HISTOGRAMS) :]
    return (group, minute, *events, tasks[group], *histograms)


def _add_to_totals(rows: Sequence[Row], dialect: Dialect) -> Steps[Mapping[str, int]]:
    """Add numbers of groups: a name, a minute, COUNTS, more. Returns how many tasks each of them holds now."""
    groups = sorted({row[0] for row in rows})
    [before] = yield [
        Statement(
            f'SELECT "group", tasks, leases, failed FROM tasks_app_grouptotal WHERE {_is_one_of(dialect)}',
            [dialect.list_of_names(groups)],
        )
    ]
    totals = {group: [0, 0, 0] for group in groups} | {group: list(counts) for group, *counts in before}
    for group, _, *numbers in rows:
        totals[group] = [old + new for old, new in zip(totals[group], numbers, strict=False)]
    living = [(group, *counts) for group, counts in totals.items() if any(counts)]
    ended = [group for group, counts in totals.items() if not any(counts)]
    yield [
        *dialect.replace("tasks_app_grouptotal", TOTAL_COLUMNS, living, key=1),
        Statement(
            f"DELETE FROM tasks_app_grouptotal WHERE {_is_one_of(dialect)}",
            [dialect.list_of_names(ended)],
        ),
    ]
    return {group: counts[0] for group, counts in totals.items()}


def add_to_rates(minutes: int, rows: Sequence[Row], dialect: Dialect) -> Steps[None]:
    """Add what happened to the rates of so many minutes. Rows: group, minute, HAPPENED."""
    sums: dict[tuple[str, int], Row] = {}
    for group, minute, *happened in sorted(rows, key=lambda row: row[1]):
        key = (group, minute - minute % minutes)
        sums[key] = _sum(sums[key], happened) if key in sums else tuple(happened)
    [before] = yield [
        Statement(
            f"""
            SELECT "group", minute, {", ".join(f'"{name}"' for name in HAPPENED)}
            FROM tasks_app_rate
            WHERE minutes = %s AND minute >= %s AND minute <= %s AND {_is_one_of(dialect)}
            """,
            [
                minutes,
                min(minute for _, minute in sums),
                max(minute for _, minute in sums),
                dialect.list_of_names(sorted({group for group, _ in sums})),
            ],
        )
    ]
    for group, minute, *happened in before:
        if (group, minute) in sums:
            sums[group, minute] = _sum(happened, sums[group, minute])
    rates = [(group, minutes, minute, *_folded(happened)) for (group, minute), happened in sums.items()]
    yield dialect.replace("tasks_app_rate", RATE_COLUMNS, rates, key=3)


def _sum(earlier: Sequence[Any], later: Sequence[Any]) -> Row:
    """Of HAPPENED: the events add up, the tasks are those at the end, the histograms stand one after the other."""
    *events, _, waits, runs = earlier
    *more_events, tasks, more_waits, more_runs = later
    added_up = (a + b for a, b in zip(events, more_events, strict=True))
    return (*added_up, tasks, f"{waits} {more_waits}", f"{runs} {more_runs}")


def _folded(happened: Row) -> Row:
    *numbers, waits, runs = happened
    return (*numbers, text_of(counter_in(waits)), text_of(counter_in(runs)))


def _add_to_work_done(rows: Sequence[Row], dialect: Dialect) -> Steps[None]:
    """Add what was done, by client: the last of COUNTERS. The rows begin with a group and a minute."""
    texts: dict[int, list[str]] = {}
    for _, minute, *_, text in rows:
        texts.setdefault(minute, []).append(text)
    done = [
        (minute, client, count)
        for minute, of_minute in texts.items()
        for client, count in counter_in(" ".join(of_minute)).items()
    ]
    if done:
        yield dialect.add("tasks_app_workdone", ("minute", "client", "tasks"), done, key=2)


def _is_one_of(dialect: Dialect) -> str:
    return f'"group" IN (SELECT name FROM {dialect.names})'
