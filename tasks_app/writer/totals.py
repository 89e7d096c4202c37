"""Counts without counting: a total for each group, and deltas that are not folded into it yet.

Every batch appends the changes of its groups' numbers in its own transaction, because updates of the
totals in place would make batches wait for each other. One process at a time folds the deltas into the
totals. Readers add up both, so the time of the folding does not matter.

SQL instead of the ORM, which can't express sums over two tables with bounded counts inside.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from django.db import transaction

from taskstore.types.tasks import Standing, holds_results

from ..core.operations import GroupScope
from ..core.tally import COUNTERS, COUNTS, Histogram
from ..database import MINUTE_MS, Dialect, Row, Statement, Steps, atomic, dialect_of
from ..database.group_patterns import allowed_by
from ..database.rows import quoted

FOLD_ONCE_IN = 256  # Commits of a process without a server.
# At most so many future tasks of a group are counted; beyond, the numbers of claimed and scheduled tasks are too low.
FUTURE_CAP = 200_000
PAGE_GROUPS = 5_000
FEW_TASKS = 10  # On average in a group; see _query_of_many.

PLACE_DIGITS = 6

EVENTS = ("entered", "left", "failures", "claimed")  # In a group, within a time.
TOTAL_COLUMNS = ("group", *COUNTS)


class Happened(NamedTuple):
    """The events in a group during some minutes."""

    entered: int
    left: int
    failures: int
    claimed: int
    tasks: int  # At the end.
    waits: Histogram
    runs: Histogram

    @classmethod
    def read(cls, values: Sequence[Any]) -> Happened:
        """Parse these columns of a row of rates."""
        entered, left, failures, claimed, tasks, waits, runs = values
        return cls(entered, left, failures, claimed, tasks, Histogram(waits), Histogram(runs))

    def then(self, later: Happened) -> Happened:
        """Return the events of both times, which follow each other."""
        return Happened(
            entered=self.entered + later.entered,
            left=self.left + later.left,
            failures=self.failures + later.failures,
            claimed=self.claimed + later.claimed,
            tasks=later.tasks,
            waits=Histogram.added_up([self.waits, later.waits]),
            runs=Histogram.added_up([self.runs, later.runs]),
        )

    @property
    def row(self) -> Row:
        return (*self[:-2], str(self.waits), str(self.runs))


RATE_COLUMNS = ("group", "minutes", "minute", *Happened._fields)


class Folded(NamedTuple):
    """The sum of a group's deltas of a minute."""

    group: str
    minute: int
    counts: Sequence[int]  # COUNTS
    events: Sequence[int]  # EVENTS
    waits: Histogram
    runs: Histogram
    done: Histogram  # By client.

    @classmethod
    def read(cls, row: Row) -> Folded:
        group, minute, *numbers = row[: -len(COUNTERS)]
        waits, runs, done = map(Histogram, row[-len(COUNTERS) :])
        return cls(group, minute, numbers[: len(COUNTS)], numbers[len(COUNTS) :], waits, runs, done)

    def happened(self, tasks: int) -> Happened:
        entered, left, failures, claimed = self.events
        return Happened(entered, left, failures, claimed, tasks, self.waits, self.runs)


class Numbers(NamedTuple):
    """The numbers of a group, or of many together. The seven of STATES add up to `tasks`."""

    group: str = ""
    tasks: int = 0
    leases: int = 0
    errors: int = 0  # Tasks with an error, in any state.
    finished: int = 0
    retrying: int = 0
    failed: int = 0
    claimed: int = 0  # The future part of `leases`.
    later: int = 0  # The future part of the rest, whatever its standing.
    put_off: int = 0  # Of these, the ones that are not open.

    @property
    def scheduled(self) -> int:
        return self.later - self.put_off

    @property
    def ready(self) -> int:
        return self.tasks - self.leases - self.finished - self.retrying - self.failed - self.scheduled

    @property
    def expired(self) -> int:
        return self.leases - self.claimed

    @property
    def to_do(self) -> int:
        """What workers have still to do, but for what they hold: ready, expired, and to be tried again."""
        return self.ready + self.retrying + self.expired

    @property
    def available(self) -> int:
        """Ready, and what has failed and may be claimed again. Nobody claims records of jobs and commands."""
        return 0 if holds_results(self.group) else self.tasks - self.leases - self.finished - self.later

    @classmethod
    def sum_of(cls, each: Iterable[Numbers]) -> Numbers:
        """Add up many groups; `available` makes no sense of the sum."""
        return cls("", *map(sum, zip(*(numbers[1:] for numbers in each), strict=True)))


numbers_made_of: Callable[[Row], Numbers] = partial(tuple.__new__, Numbers)  # Of very many groups, as in operations.py.

# The numbers of a group, how long its oldest ready task has been ready (None: no task is), and how many tasks have
# entered and left it within the last minute: claims, renewals and edits count as neither.
Counted = tuple[Numbers, int | None, float, float]


# ---- Reading


def numbers(scope: GroupScope, using: str = "") -> list[Numbers]:
    """Return the numbers of all groups within the scope that have tasks, sorted by name, as of one moment."""
    with dialect_of(using).adding_up():
        return _numbers(*allowed_by(scope.patterns), using)


def names(scope: GroupScope, using: str = "") -> list[str]:
    """Return the names of all groups within the scope that have tasks, sorted by code point."""
    condition, parameters = allowed_by(scope.patterns)
    query = f"SELECT name FROM ({_query_of_sums(condition)}) AS sums"
    return sorted(name for (name,) in dialect_of(using).rows_at_once(["name"], query, [*parameters] * 2))


def pages(scope: GroupScope, using: str = "") -> Iterator[list[Counted]]:
    """Yield the same and more in pages of about `PAGE_GROUPS`, each as of one moment."""
    dialect = dialect_of(using)
    has_few = _has_few_tasks_a_group(dialect)
    allowed, names = allowed_by(scope.patterns)
    beginning: str | None = ""
    while beginning is not None:
        condition, within = f'"group" >= %s AND ({allowed})', [beginning, *names]
        found = dialect.rows(
            f'SELECT "group" FROM tasks_app_grouptotal WHERE {condition} '
            f'ORDER BY "group" LIMIT 1 OFFSET {PAGE_GROUPS:d}',
            within,
        )
        beginning = found[0][0] if found else None
        if beginning is not None:
            condition, within = f'{condition} AND "group" < %s', [*within, beginning]
        with dialect.adding_up():
            page = _counted(condition, within, dialect, has_few=has_few)
        yield page


def size_of(scope: GroupScope, using: str = "") -> tuple[int, int]:
    """Return how many groups within the scope have tasks, and how many tasks those have."""
    condition, names = allowed_by(scope.patterns)
    sums = _query_of_sums(condition)
    rows = dialect_of(using).rows(f"SELECT count(*), {_sum_of('tasks')} FROM ({sums}) AS sums", [*names, *names])
    [(groups, tasks)] = rows
    return int(groups), int(tasks)


def numbers_of(group: str, using: str = "") -> Numbers | None:
    """Return the numbers of one group; None when it is empty."""
    found = _numbers('"group" = %s', [group], using)
    return found[0] if found else None


def numbers_of_each(groups: Iterable[str], using: str = "") -> dict[str, Numbers]:
    """Return the numbers of these groups by name, without empty ones. Reads no other group."""
    dialect = dialect_of(using)
    found = _numbers(_is_one_of(dialect), [dialect.list_of_names(groups)], using)
    return {numbers.group: numbers for numbers in found}


def counted(groups: Iterable[str], using: str = "") -> dict[str, Counted]:
    """Return the same and more."""
    dialect = dialect_of(using)
    found = _counted(_is_one_of(dialect), [dialect.list_of_names(groups)], dialect)
    return {each[0].group: each for each in found}


def numbers_of_all(using: str = "") -> Numbers:
    """Return the sum of all groups, without a name."""
    return summary(using=using).numbers


class Summary(NamedTuple):
    """The sum of many groups."""

    numbers: Numbers  # The sums, without a name.
    groups: int
    at_ms: int
    holding: dict[str, int]  # The number of groups with a task in each of the STATES.


OPEN = "tasks - leases - finished - retrying - failed"  # Ready and scheduled.
STATES = {
    "ready": f"{OPEN} - (later - put_off)",
    "claimed": "claimed",
    "expired": "leases - claimed",
    "scheduled": "later - put_off",
    "retrying": "retrying",
    "failed": "failed",
    "finished": "finished",
}
# The states of which a level is kept by the minute.
LEVELS = tuple(state for state in STATES if state != "finished")


# The parts of what lies in the future.
FUTURE = {
    "claimed": "leased_since_ms > 0",
    "later": "leased_since_ms = 0",
    "put_off": f"leased_since_ms = 0 AND standing <> {Standing.OPEN:d}",
}
# A task that a worker should claim: ready, or to be tried again.
IS_TO_CLAIM = f"leased_since_ms = 0 AND standing IN ({Standing.OPEN:d}, {Standing.RETRYING:d})"
# Since when the oldest of these in the group `name` is available.
OLDEST_READY = f"""
    SELECT available_at_ms FROM tasks_app_task
    WHERE "group" = name AND available_at_ms <= now_ms AND {IS_TO_CLAIM}
    ORDER BY available_at_ms, id
    LIMIT 1
"""


def summary(part: Part | None = None, using: str = "") -> Summary:
    """Add up the groups of the part (None: all). The database does it in one statement: there may be many groups."""
    dialect = dialect_of(using)
    condition, names = (part or EVERYTHING).condition(dialect)
    if _has_few_tasks_a_group(dialect):
        query, times = _summary_of_few_tasks(condition, dialect), 5
    else:
        query, times = _summary_of_many_tasks(condition, dialect), 2
    with dialect.adding_up():
        [row] = dialect.rows(query, names * times)
        at_ms, groups, *rest = map(int, row)
    numbers, held = rest[: len(Numbers._fields) - 1], rest[len(Numbers._fields) - 1 :]
    return Summary(Numbers("", *numbers), groups, at_ms, dict(zip(STATES, held, strict=True)))


def _has_few_tasks_a_group(dialect: Dialect) -> bool:
    [(groups, tasks)] = dialect.rows("SELECT count(*), coalesce(sum(tasks), 0) FROM tasks_app_grouptotal")
    return bool(tasks <= FEW_TASKS * groups)


def _summary_of_many_tasks(condition: str, dialect: Dialect) -> str:
    """Return a query for a summary. It takes the parameters of the condition twice."""
    # Materialized, or future tasks would be counted again for each sum.
    return f"""
        WITH numbers AS MATERIALIZED ({_query_of_numbers(condition, dialect)})
        SELECT {dialect.clock}, count(*), {", ".join(map(_sum_of, Numbers._fields[1:]))},
            {", ".join(map(_how_many, STATES.values()))}
        FROM numbers
    """


def _summary_of_few_tasks(condition: str, dialect: Dialect) -> str:
    """Return the same. It takes the parameters five times.

    Most groups have no future tasks. This query adds up all groups without reading their tasks, and then corrects the
    sums of groups with future tasks: with 300 000 groups, in a fifth of the time.
    """
    # Where all that is open, or leased, lies in the future, a group holds nothing ready, or expired.
    fewer_ready = f"CASE WHEN {OPEN} > 0 AND {OPEN} <= later - put_off THEN 1 ELSE 0 END"
    fewer_expired = "CASE WHEN leases > 0 AND leases <= claimed THEN 1 ELSE 0 END"
    right = {
        **{name: _sum_of(name) for name in FUTURE},
        **{f"with_{name}": _how_many(STATES[name]) for name in ("claimed", "scheduled")},
        "fewer_ready": _how_many(fewer_ready),
        "fewer_expired": _how_many(fewer_expired),
    }
    sums = {
        **{name: _sum_of(name) for name in COUNTS},
        **{f"with_{name}": _how_many(name) for name in ("retrying", "failed", "finished")},
        "with_ready": _how_many(OPEN),
        "with_expired": _how_many("leases"),
    }
    of_future = f'({condition}) AND "group" IN (SELECT name FROM future)'
    holding = {state: f"with_{state}" for state in STATES}
    holding |= {state: f"with_{state} - fewer_{state}" for state in ("ready", "expired")}
    return f"""
        WITH future AS MATERIALIZED ({_query_of_future(condition, dialect)}), put_right AS (
            SELECT {", ".join(f"{sql} AS {name}" for name, sql in right.items())}
            FROM ({_query_of_sums(of_future)}) AS sums JOIN future ON future.name = sums.name
        ), added_up AS (
            SELECT count(*) AS groups, {", ".join(f"{sql} AS {name}" for name, sql in sums.items())}
            FROM ({_query_of_sums(condition)}) AS sums
        )
        SELECT {dialect.clock}, added_up.groups, {", ".join(Numbers._fields[1:])}, {", ".join(holding.values())}
        FROM added_up CROSS JOIN put_right
    """


def _sum_of(expression: str) -> str:
    return f"CAST(coalesce(sum({expression}), 0) AS bigint)"


def _how_many(expression: str) -> str:
    return f"coalesce(sum(CASE WHEN {expression} > 0 THEN 1 ELSE 0 END), 0)"


def _query_of_future(condition: str, dialect: Dialect) -> str:
    """Return a query for the future tasks of each group. It scans the index of all tasks."""
    counted = ", ".join(f"sum(CASE WHEN {state} THEN 1 ELSE 0 END) AS {name}" for name, state in FUTURE.items())
    return f"""
        SELECT "group" AS name, {counted}
        FROM tasks_app_task
        WHERE available_at_ms > (SELECT {dialect.clock}) AND ({condition})
        GROUP BY "group"
    """


@dataclass(frozen=True, slots=True)
class Part:
    """The groups whose names start with `prefix` and contain `searched`, ignoring case, but for `others`."""

    prefix: str = ""
    searched: str = ""
    others: Sequence[str] = ()

    def condition(self, dialect: Dialect) -> tuple[str, list[Any]]:
        """Return the SQL condition with its parameters."""
        conditions, parameters = ["1 = 1"], list[Any]()
        if self.prefix:
            condition, names = allowed_by((f"{self.prefix}*",))
            conditions.append(condition)
            parameters += names
        if self.searched.isascii():
            if self.searched:
                conditions.append(dialect.contains)
                parameters.append(self.searched.lower())
        else:
            # Databases don't ignore the case of all letters, so Python compares the few names that are not ASCII.
            rows = dialect.rows_at_once(
                ["group"],
                f"""
                SELECT "group" FROM tasks_app_grouptotal WHERE {dialect.is_not_ascii}
                UNION
                SELECT "group" FROM tasks_app_countdelta WHERE {dialect.is_not_ascii}
                """,
                [],
            )
            wanted = self.searched.casefold()
            found = [name for (name,) in rows if name.startswith(self.prefix) and wanted in name.casefold()]
            conditions.append(_is_one_of(dialect))
            parameters.append(dialect.list_of_names(found))
        if self.others:
            conditions.append(f"NOT {_is_one_of(dialect)}")
            parameters.append(dialect.list_of_names(self.others))
        return " AND ".join(conditions), parameters


EVERYTHING = Part()


def names_of(part: Part, limit: int, using: str = "") -> list[str]:
    """Return the sorted names of the first groups of a part that have tasks; at most `limit`."""
    dialect = dialect_of(using)
    condition, names = part.condition(dialect)
    query = f"SELECT name FROM ({_query_of_sums(condition)}) AS found ORDER BY name LIMIT {limit:d}"
    return [name for (name,) in dialect.rows_at_once(["name"], query, [*names, *names])]


def most_ready(limit: int, using: str = "") -> list[str]:
    """Return the groups with the most tasks that are not leased, which are usually ready and rarely scheduled."""
    dialect = dialect_of(using)
    rank = "tasks - leases - finished"
    query = f"SELECT name FROM ({_query_of_sums('1 = 1')}) AS sums ORDER BY {rank} DESC, name LIMIT {limit:d}"
    return [name for (name,) in dialect.rows_at_once(["name"], query, [])]


def leased(limit: int, using: str = "") -> list[str]:
    """Return the names of groups that have leased tasks; at most `limit`."""
    dialect = dialect_of(using)
    query = f"SELECT name FROM ({_query_of_sums('1 = 1')}) AS sums WHERE leases > 0 LIMIT {limit:d}"
    return [name for (name,) in dialect.rows_at_once(["name"], query, [])]


def tasks_with_errors(using: str = "") -> int:
    """Return the number of tasks with an error in all groups."""
    # One statement: a delta that is folded between two statements would be counted twice or not at all.
    [(failed,)] = dialect_of(using).rows(
        """
        SELECT CAST(coalesce(sum(errors), 0) AS bigint)
        FROM (
            SELECT errors FROM tasks_app_grouptotal WHERE errors <> 0
            UNION ALL
            SELECT errors FROM tasks_app_countdelta WHERE errors <> 0
        ) AS totals_and_deltas
        """
    )
    return int(failed)


def largest(limit: int, using: str = "") -> list[str]:
    """Return the names of the largest groups, the largest first."""
    dialect = dialect_of(using)
    query = f"SELECT name FROM ({_query_of_sums('1 = 1')}) AS sums ORDER BY tasks DESC, name LIMIT {limit:d}"
    return [name for (name,) in dialect.rows_at_once(["name"], query, [])]


def ranked(order: str, part: Part, *, is_downwards: bool, start: int, limit: int, using: str = "") -> list[str]:
    """Return the names of `limit` groups of the part from position `start`, sorted; equal ones by name, upwards.

    `order`: "name", one of STATES, "oldest" (how long a task has been ready), "in" or "out" (within a minute).
    """
    dialect = dialect_of(using)
    condition, names = part.condition(dialect)
    source, times = _query_of_sums(condition), 2
    by: str = order
    match order:
        case "name" | "retrying" | "failed" | "finished":
            pass
        case "in" | "out":
            event = {"in": "entered", "out": '"left"'}[order]
            flows, by = _query_of_flows("1 = 1", dialect), "rank"
            source = f"""
                SELECT sums.name AS name, coalesce(flows.{event}, 0) AS rank
                FROM ({source}) AS sums LEFT JOIN ({flows}) AS flows ON flows."group" = sums.name
            """
        case "oldest":
            source, times = _query_of_many(condition, dialect, has_few=_has_few_tasks_a_group(dialect))
            source, by = _query_of_oldest(source, dialect), "rank"
        case _:
            source, times = _query_of_many(condition, dialect, has_few=_has_few_tasks_a_group(dialect))
            by = STATES[order]
    query = f"""
        SELECT name FROM ({source}) AS ranked
        ORDER BY {by} {"DESC" if is_downwards else "ASC"}, name
        LIMIT {limit:d} OFFSET {start:d}
    """
    with dialect.adding_up():
        return [name for (name,) in dialect.rows_at_once(["name"], query, names * times)]


def _query_of_oldest(numbers: str, dialect: Dialect) -> str:
    return f"""
        SELECT name,
            CASE WHEN {STATES["ready"]} + retrying > 0 THEN coalesce(now_ms - ({OLDEST_READY}), 0) ELSE 0 END AS rank
        FROM (SELECT {dialect.clock} AS now_ms) AS clock, ({numbers}) AS numbers
    """


def _query_of_oldest_of_each(condition: str, dialect: Dialect) -> str:
    """Return a query for OLDEST_READY of each group that has one. It scans the index of all tasks."""
    return f"""
        SELECT "group", min(available_at_ms) AS at_ms
        FROM tasks_app_task
        WHERE available_at_ms <= (SELECT {dialect.clock}) AND {IS_TO_CLAIM} AND ({condition})
        GROUP BY "group"
    """


def _query_of_flows(condition: str, dialect: Dialect) -> str:
    """Return a query for the tasks that entered and left each group within the last minute.

    It takes the parameters twice.
    """
    recent = f"minute >= (SELECT {dialect.clock}) / {MINUTE_MS} - 1 AND ({condition})"
    # This share of the minute before is within the last sixty seconds.
    share = (
        f"CASE WHEN minute = now_ms / {MINUTE_MS} THEN 1.0 ELSE 1 + now_ms / {MINUTE_MS} - now_ms / {MINUTE_MS}.0 END"
    )
    sums = ", ".join(f'CAST(sum("{event}" * {share}) AS double precision) AS "{event}"' for event in EVENTS[:2])
    return f"""
        SELECT "group", {sums}
        FROM (SELECT {dialect.clock} AS now_ms) AS clock CROSS JOIN (
            SELECT "group", minute, entered, "left" FROM tasks_app_rate WHERE minutes = 1 AND {recent}
            UNION ALL
            SELECT "group", minute, entered, "left" FROM tasks_app_countdelta WHERE {recent}
        ) AS rates_and_deltas
        GROUP BY "group"
    """


def _numbers(condition: str, names: Sequence[Any], using: str) -> list[Numbers]:
    dialect = dialect_of(using)
    query = _query_of_numbers(condition, dialect)
    rows = dialect.rows_at_once(["name", *Numbers._fields[1:]], query, [*names, *names])
    return sorted(Numbers._make(row) for row in rows)


def _query_of_numbers(condition: str, dialect: Dialect) -> str:
    """Return a query for Numbers, a row for each group. It takes the parameters of the condition twice."""
    return f"""
        SELECT name, {", ".join(COUNTS)},
            CASE WHEN leases > 0 THEN ({_future_of("claimed")}) ELSE 0 END AS claimed,
            CASE WHEN tasks > leases THEN ({_future_of("later")}) ELSE 0 END AS later,
            CASE WHEN finished + retrying + failed > 0 THEN ({_future_of("put_off")}) ELSE 0 END AS put_off
        FROM (SELECT {dialect.clock} AS now_ms) AS clock, ({_query_of_sums(condition)}) AS sums
    """


def _counted(condition: str, names: Sequence[Any], dialect: Dialect, *, has_few: bool = False) -> list[Counted]:
    numbers, times = _query_of_many(condition, dialect, has_few=has_few)
    oldest, joined = f"CASE WHEN {STATES['ready']} + retrying > 0 THEN ({OLDEST_READY}) END", ""
    if has_few:
        oldest, times = "oldest.at_ms", times + 1
        of_each = _query_of_oldest_of_each(condition, dialect)
        joined = f'LEFT JOIN ({of_each}) AS oldest ON oldest."group" = numbers.name'
    query = f"""
        SELECT numbers.name AS name, {", ".join(Numbers._fields[1:])}, now_ms - {oldest} AS ready_ms,
            coalesce(entered, 0.0) AS entered, coalesce("left", 0.0) AS "left"
        FROM (SELECT {dialect.clock} AS now_ms) AS clock CROSS JOIN ({numbers}) AS numbers {joined}
        LEFT JOIN ({_query_of_flows(condition, dialect)}) AS flows ON flows."group" = numbers.name
    """
    columns = ["name", *Numbers._fields[1:], "ready_ms", "entered", "left"]
    rows = sorted(dialect.rows_at_once(columns, query, [*names] * (times + 2)))
    return [(numbers_made_of(row[:-3]), *row[-3:]) for row in rows]


def _query_of_many(condition: str, dialect: Dialect, *, has_few: bool) -> tuple[str, int]:
    """Return the same for perhaps very many groups, and how often it takes the parameters."""
    if not has_few:
        return _query_of_numbers(condition, dialect), 2
    # One scan of the index of all tasks takes a tenth of the time of one lookup for each group.
    query = f"""
        SELECT sums.name AS name, {", ".join(COUNTS)}, {", ".join(f"coalesce({name}, 0) AS {name}" for name in FUTURE)}
        FROM ({_query_of_sums(condition)}) AS sums
        LEFT JOIN ({_query_of_future(condition, dialect)}) AS future ON future.name = sums.name
    """
    return query, 3


def _query_of_sums(condition: str) -> str:
    """Return a query for the name and COUNTS of each group that has tasks. It takes the parameters twice.

    It joins the few deltas to the totals. Grouping both by name would sort all names: with 300 000 groups, that
    took longer than all the rest.
    """
    together = ", ".join(f"totals.{name} + coalesce(deltas.{name}, 0) AS {name}" for name in COUNTS)
    sums = ", ".join(f"CAST(sum({name}) AS bigint) AS {name}" for name in COUNTS)
    return f"""
        WITH deltas AS MATERIALIZED (
            SELECT "group" AS name, {sums} FROM tasks_app_countdelta WHERE {condition} GROUP BY "group"
        ), totals AS (
            SELECT "group" AS name, {", ".join(COUNTS)} FROM tasks_app_grouptotal WHERE {condition}
        )
        SELECT name, {", ".join(COUNTS)}
        FROM (
            SELECT totals.name AS name, {together} FROM totals LEFT JOIN deltas ON deltas.name = totals.name
            UNION ALL
            SELECT name, {", ".join(COUNTS)} FROM deltas
            WHERE NOT EXISTS (SELECT 1 FROM tasks_app_grouptotal WHERE "group" = deltas.name)
        ) AS totals_and_deltas
        WHERE tasks > 0
    """


def _future_of(part: str) -> str:
    """Return a query for the number of future tasks of the group `name`; an index-only scan."""
    return f"""
        SELECT count(*)
        FROM (
            SELECT leased_since_ms, standing FROM tasks_app_task
            WHERE "group" = name AND available_at_ms > now_ms
            ORDER BY available_at_ms
            LIMIT {FUTURE_CAP}
        ) AS future
        WHERE {FUTURE[part]}
    """


def last_claims(groups: Iterable[str], start: int, using: str = "") -> dict[str, int]:
    """Return the minute of the last claim in each group since the minute `start`, at most a day ago.

    Leaves out groups without a claim since then.
    """
    dialect = dialect_of(using)
    rows = dialect.rows_at_once(
        ["name", "minute"],
        f"""
        SELECT name, (
            SELECT minute FROM tasks_app_rate
            WHERE "group" = name AND minutes = 1 AND minute >= start AND claimed > 0
            ORDER BY minute DESC
            LIMIT 1
        ) AS minute
        FROM (SELECT CAST(%s AS bigint) AS start) AS since, {dialect.names}
        """,
        [start, dialect.list_of_names(groups)],
    )
    return {name: minute for name, minute in rows if minute is not None}


def changes_of(sets: Sequence[Sequence[str]], start: int, using: str = "") -> list[dict[int, int]]:
    """Return the change of the number of tasks of each set of groups, by minute from `start` on.

    Leaves out minutes without a change.
    """
    dialect = dialect_of(using)
    # Both databases take a list of names as one parameter, so each name is prefixed with the number of its set.
    members = dialect.list_of_names(
        f"{place:0{PLACE_DIGITS}}{name}" for place, names in enumerate(sets) for name in names
    )
    rows = dialect.rows_at_once(
        ["place", "minute", "more"],
        # Materialized, or SQLite would scan all members for each delta. The cross join keeps SQLite's join order:
        # otherwise it would read the rates of all groups.
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


# ---- Folding


def now_and_then_fold(using: str) -> None:
    """Fold after some commits of a process without a server: otherwise, deltas would grow without limit."""
    if random.randrange(FOLD_ONCE_IN) == 0:
        # An error is only logged: the commit itself is done.
        transaction.on_commit(partial(fold_here, using), using=using, robust=True)


def fold_here(using: str = "") -> None:
    """Fold on Django's connection, in a transaction of its own or the caller's."""
    dialect = dialect_of(using)
    with atomic(dialect.using):
        dialect.drive(when_elected(fold, dialect))


def when_elected(work: Callable[[Dialect], Steps[bool]], dialect: Dialect) -> Steps[bool]:
    """Do the work in this transaction, unless another process is housekeeping right now.

    Returns whether there is more work.
    """
    [[(is_elected,)]] = yield [dialect.election()]
    return (yield from work(dialect)) if is_elected else False


def fold(dialect: Dialect) -> Steps[bool]:
    """Fold all deltas into the totals, the rates, and the work counts of clients."""
    sums = [f'CAST(sum("{name}") AS bigint)' for name in (*COUNTS, *EVENTS)]
    texts = map(dialect.joined, COUNTERS)
    rows = yield from dialect.take("tasks_app_countdelta", ", ".join((*sums, *texts)), grouped_by='"group", minute')
    if rows:
        folded = list(map(Folded.read, rows))
        tasks = yield from _add_to_totals(folded, dialect)
        happened = [(each.group, each.minute, each.happened(tasks[each.group])) for each in folded]
        yield from add_to_rates(1, happened, dialect)
        by_minute: dict[int, list[Histogram]] = {}
        for each in folded:
            by_minute.setdefault(each.minute, []).append(each.done)
        done = [
            (minute, client, number)
            for minute, clients in by_minute.items()
            for client, number in Histogram.added_up(clients).counter.items()
        ]
        if done:
            yield dialect.add("tasks_app_workdone", ("minute", "client", "tasks"), done, key=2)
        yield from dialect.count_anew()
    return False


def _add_to_totals(folded: Sequence[Folded], dialect: Dialect) -> Steps[Mapping[str, int]]:
    """Add the sums to the totals. Returns the present number of tasks of each group."""
    groups = sorted({each.group for each in folded})
    [before] = yield [
        Statement(
            f'SELECT "group", {", ".join(COUNTS)} FROM tasks_app_grouptotal WHERE {_is_one_of(dialect)}',
            [dialect.list_of_names(groups)],
        )
    ]
    totals = {group: [0] * len(COUNTS) for group in groups} | {group: list(counts) for group, *counts in before}
    for each in folded:
        totals[each.group] = [old + new for old, new in zip(totals[each.group], each.counts, strict=True)]
    living = [(group, *counts) for group, counts in totals.items() if any(counts)]
    ended = [group for group, counts in totals.items() if not any(counts)]
    yield [
        *dialect.replace("tasks_app_grouptotal", TOTAL_COLUMNS, living, key=1),
        Statement(f"DELETE FROM tasks_app_grouptotal WHERE {_is_one_of(dialect)}", [dialect.list_of_names(ended)]),
    ]
    return {group: counts[0] for group, counts in totals.items()}


def add_to_rates(minutes: int, rows: Iterable[tuple[str, int, Happened]], dialect: Dialect) -> Steps[None]:
    """Add the events of groups, each of a minute, to the rates of so many minutes."""
    sums: dict[tuple[str, int], Happened] = {}
    for group, minute, happened in sorted(rows, key=lambda row: row[1]):
        key = (group, minute - minute % minutes)
        sums[key] = sums[key].then(happened) if key in sums else happened
    [before] = yield [
        Statement(
            f"""
            SELECT "group", minute, {", ".join(quoted(Happened._fields))}
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
    for group, minute, *values in before:
        if (group, minute) in sums:
            sums[group, minute] = Happened.read(values).then(sums[group, minute])
    rates = [(group, minutes, minute, *happened.row) for (group, minute), happened in sums.items()]
    yield dialect.replace("tasks_app_rate", RATE_COLUMNS, rates, key=3)


def _is_one_of(dialect: Dialect) -> str:
    return f'"group" IN (SELECT name FROM {dialect.names})'
