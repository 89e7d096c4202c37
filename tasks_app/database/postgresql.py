"""PostgreSQL: row locks in one order, and a batch written by one statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import Any

from django.db import connections, transaction

from ..candidate_pools import CANDIDATES, NO_MARK_MS, Pools
from ..errors import CommitUnknown
from ..operations import Operation, TaskRecord
from ..payloads import OWN_ID
from ..standby import Doubts
from ..tally import COUNTERS
from .batch import Seen, Written
from .demand import (
    Demand,
    Queried,
    best_first,
    changed_ids,
    demands_of,
    depended_ids,
    kept_by_key,
    keys_of,
    order_of,
    queried_by,
)
from .dialect import ID_JUMP, IS_RUNNING, UNCONFIRMED, Dialect, is_opportunistic
from .rows import (
    ANSWERED_COLUMNS,
    COLUMNS,
    DELTA_COLUMNS,
    ENDED_COLUMNS,
    ITEM_COLUMNS,
    Row,
    Statement,
    Steps,
    quoted,
    record_of,
    row_of,
)

HOUSEKEEPING_LOCK = 0x7A5C_5703  # Any number that nobody else takes a lock by.


# The types of columns that are not bigint.
POSTGRESQL_TYPES: Mapping[str, str] = {
    "data": "bytea",
    "labels": "jsonb",
    "priority": "smallint",
    "claims": "integer",
} | dict.fromkeys(
    (
        *("group", "data_type", "error", "ending", "operator", "reason", "key", "digest", "answer", *COUNTERS),
        *("outcome", "why"),
    ),
    "text",
)


# What is written in place of a draft's value.
DRAFTED: Mapping[str, str] = {
    "origin": "coalesce(nullif(origin, 0), id)",
    "data": f"CASE WHEN payload = {OWN_ID} THEN '' ELSE data END",
    "payload": f"CASE WHEN payload = {OWN_ID} THEN id ELSE payload END",
}


def _arrays(columns: Sequence[str]) -> str:
    return ", ".join(f"%s::{POSTGRESQL_TYPES.get(name, 'bigint')}[]" for name in columns)


LEAST_MS = 50  # 0 would be for ever.
# A process that stops amid a transaction, with its machine or by a debugger, holds up others no longer than this.
SILENCE_S = 60
# And one that was elected to do what only one does, no longer than this: then another process is.
ELECTED_SILENCE_S = 4


class PostgreSQL(Dialect):
    hurry = ("SET lock_timeout = '1s'", "SET statement_timeout = '1s'")
    selected = Dialect.selected.replace('"labels"', "labels::text")
    clock = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    time_of = "to_timestamp(%s::bigint)"
    newest_id = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM tasks_app_ids"
    newest_commit = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM tasks_app_commits"
    is_listed = "id = ANY(%s::bigint[])"
    is_key_named = "key = ANY(%s::text[])"
    later_of = "greatest"
    has_history_days = True
    names = "unnest(%s::text[]) AS names(name)"
    # The parts of the statement that writes a batch. Drafts are numbered first, all others may ask for the numbers:
    # by their place in an array, as a join would compare each with each, hash and merge joins being switched off.
    drafts = f"""
        drafts AS MATERIALIZED (
            SELECT nextval('tasks_app_ids') AS id, place, {", ".join(quoted(COLUMNS[1:]))}
            FROM unnest({_arrays(COLUMNS[1:])}) WITH ORDINALITY AS draft({", ".join(quoted(COLUMNS[1:]))}, place)
        )
    """
    removed = f"removed AS (DELETE FROM tasks_app_task WHERE {is_listed})"
    trail = f"""
        trail AS (
            INSERT INTO tasks_app_endedtask ({", ".join(quoted(ENDED_COLUMNS))})
            SELECT {", ".join(quoted(ENDED_COLUMNS[:-1]))}, ids[successor + 1]
            FROM unnest({_arrays(ENDED_COLUMNS)}) AS gone({", ".join(quoted(ENDED_COLUMNS))}),
                (SELECT array_agg(id ORDER BY place) AS ids FROM drafts) AS numbered
        )
    """
    trail_of_ends = f"""
        trail AS (
            INSERT INTO tasks_app_endedtask ({", ".join(quoted(ENDED_COLUMNS))})
            SELECT * FROM unnest({_arrays(ENDED_COLUMNS)})
        )
    """
    kept = f"""
        kept AS (
            INSERT INTO tasks_app_keptanswer (key, digest, at_ms, answer, ids)
            SELECT key, digest, at_ms, answer, (
                SELECT coalesce(string_agg(drafts.id::text, ',' ORDER BY place), '')
                FROM drafts
                WHERE place > first AND place <= last
            )
            FROM unnest({_arrays(ANSWERED_COLUMNS)}) AS answered({", ".join(ANSWERED_COLUMNS)})
        )
    """
    kept_alone = f"""
        kept AS (
            INSERT INTO tasks_app_keptanswer (key, digest, at_ms, answer, ids)
            SELECT key, digest, at_ms, answer, ''
            FROM unnest({_arrays(ANSWERED_COLUMNS)}) AS answered({", ".join(ANSWERED_COLUMNS)})
        )
    """
    counted = f"""
        counted AS (
            INSERT INTO tasks_app_countdelta ({", ".join(quoted(DELTA_COLUMNS))})
            SELECT * FROM unnest({_arrays(DELTA_COLUMNS)})
        )
    """
    itemised = f"""
        itemised AS (
            INSERT INTO tasks_app_bulkitem ({", ".join(quoted(ITEM_COLUMNS))})
            SELECT * FROM unnest({_arrays(ITEM_COLUMNS)})
        )
    """
    stored = f"""
        stored AS (
            INSERT INTO tasks_app_payload (id, data) SELECT id, data FROM drafts WHERE payload = {OWN_ID}
        )
    """
    let_go = f"let_go AS (DELETE FROM tasks_app_payload WHERE {is_listed})"
    insertion = f"""
        INSERT INTO tasks_app_task ({", ".join(quoted(COLUMNS))})
        SELECT id, {", ".join(DRAFTED.get(name, f'"{name}"') for name in COLUMNS[1:])}
        FROM drafts
        ORDER BY place
        RETURNING id
    """

    def __init__(self, using: str, *, waits: bool) -> None:
        super().__init__(using, waits=waits)
        self._pools = Pools()

    def go_on_after(self, name: str, number: int) -> Statement:
        sequence = f"tasks_app_{name}"
        before = f"SELECT last_value FROM {sequence}"
        return Statement(f"SELECT setval('{sequence}', greatest(%s::bigint, ({before})))", [number])

    def list_of(self, ids: Iterable[int]) -> Any:
        return self.array("bigint", list(ids))

    def list_of_names(self, names: Iterable[str]) -> Any:
        return self.array("text", list(names))

    def turn(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def reading(self) -> AbstractContextManager[Any]:
        # A cursor outside of a transaction makes the server copy the whole result, and fails behind pgbouncer.
        return transaction.atomic(using=self.using)

    def preparation(self, operations: Sequence[Operation]) -> Iterator[Statement]:
        # The time that went by until there was a connection counts, too.
        durability = ["SET LOCAL synchronous_commit = off"] if is_opportunistic() else []
        silence = f"SET LOCAL idle_in_transaction_session_timeout = '{SILENCE_S}s'"
        yield _at_once(self._limit("lock"), silence, *durability)
        changed = changed_ids(operations)
        if named := changed | depended_ids(operations):
            # A lock timeout is for each lock: of several rows, and of one row behind others who want it, the waits
            # would add up. What follows finds them locked, and may take as long as there is to do.
            yield _at_once(self._limit("statement"))
            yield self._lock(changed, named - changed)
            yield _at_once("SET LOCAL statement_timeout TO DEFAULT", self._limit("lock"))

    def _limit(self, kind: str) -> str:
        return f"SET LOCAL {kind}_timeout = '{max(LEAST_MS, int(self.left_s * 1000))}ms'"

    def _lock(self, changed: Iterable[int], depended: Iterable[int]) -> Statement:
        # In the order in which the look locks them, and without their data.
        return Statement(
            f"""
            WITH changed AS MATERIALIZED (
                SELECT FROM tasks_app_task WHERE {self.is_listed} ORDER BY id FOR UPDATE
            ), depended AS MATERIALIZED (
                SELECT FROM tasks_app_task WHERE {self.is_listed} ORDER BY id FOR KEY SHARE
            )
            SELECT (SELECT count(*) FROM changed), (SELECT count(*) FROM depended)
            """,
            [self.list_of(changed), self.list_of(depended)],
        )

    def look(self, operations: Sequence[Operation]) -> Steps[Seen]:
        changed, demands = changed_ids(operations), demands_of(operations)
        queried = queried_by(operations)
        taken_from = {group: asked for group, asked in queried.items() if asked.tasks}
        read = [group for group, asked in queried.items() if asked.is_read]
        depended = depended_ids(operations) - changed
        skip = "" if self.waits else "SKIP LOCKED"
        self._pools.begin([*demands, *queried])
        to_read = [group for group, demand in demands.items() if self._pools.must_read(group, demand.limit)]
        keys = keys_of(operations)
        # Each kind in one statement, in id order: two commits that share tasks would deadlock otherwise.
        # Depends are shared, so that a task which every commit depends on serialises nobody.
        statements = [
            *([self.tasks_of(changed, f"ORDER BY id FOR UPDATE {skip}")] if changed else []),
            *([self.tasks_of(depended, f"ORDER BY id FOR KEY SHARE {skip}")] if depended else []),
            *(self._lock_candidates(group, demand) for group, demand in demands.items()),
            *(self._read_pool(group) for group in to_read),
            *(self._lock_earliest(group, asked) for group, asked in taken_from.items()),
            *map(self.first_of, read),
            *([self.kept_answers(keys)] if keys else []),
            # The time comes last: a lease that ran out while this waited for locks has run out.
            self._time_and_numbers(len(operations)),
        ]
        found = iter((yield statements))
        named_rows = islice(found, bool(changed) + bool(depended))
        named = {task.id: task for rows in named_rows for task in map(record_of, rows)}
        candidates = {group: best_first(next(found), demand) for group, demand in demands.items()}
        for group in to_read:
            self._pools.note(group, next(found), (task.id for task in candidates[group]))
        earliest = {group: [*map(record_of, next(found))] for group in taken_from}
        for group, tasks in earliest.items():
            self._pools.note_earliest(group, tasks, queried[group].tasks)
        first = {group: [*map(record_of, next(found))] for group in read}
        kept = next(found) if keys else ()
        numbers = next(found)
        if not _is_log_intact(numbers):
            yield from self._jump_after_lost_log()
            [numbers] = yield [self._time_and_numbers(len(operations))]
        missing = (changed | depended) - named.keys()
        seen = Seen(
            *(numbers[0][0], named, candidates, [number for *_, number in numbers], kept_by_key(kept)),
            earliest=earliest,
            first=first,
        )
        yield from self._look_behind_locks(demands, seen)
        if missing and not self.waits:
            [rows] = yield [Statement(f"SELECT id FROM tasks_app_task WHERE {self.is_listed}", [self.list_of(missing)])]
            seen.locked = {task_id for (task_id,) in rows}
        return seen

    def _time_and_numbers(self, commits: int) -> Statement:
        return Statement(
            f"""
            SELECT {self.clock}, EXISTS (SELECT FROM tasks_app_log_intact), nextval('tasks_app_commits')
            FROM generate_series(1, %s)
            """,
            [commits],
        )

    def _lock_candidates(self, group: str, demand: Demand) -> Statement:
        known = None if demand.oldest else self._pools.take(group, demand.limit)
        if known:
            return self._lock_known(group, *known)
        # The ids are looked up by an index-only scan and locked by number: the planner
        # would join the whole table otherwise.
        return Statement(
            f"""
            SELECT {self.selected}
            FROM tasks_app_task
            WHERE id = ANY(ARRAY(
                SELECT id FROM ({self._available}) AS candidates ORDER BY priority DESC, {order_of(demand)} LIMIT %s
            ))
            FOR UPDATE SKIP LOCKED
            """,
            [group, group, group, group, self._pools.mark_of(group), demand.limit],
        )

    def _lock_earliest(self, group: str, asked: Queried) -> Statement:
        # Locked one by one until there are enough: what another transaction holds is passed over.
        return self.earliest(group, asked, self._pools.mark_of(group), "FOR UPDATE SKIP LOCKED")

    def _lock_known(self, group: str, priority: int, ids: Sequence[int]) -> Statement:
        # None of them when something of a higher priority has become available.
        return Statement(
            f"""
            SELECT {self.selected}
            FROM tasks_app_task
            WHERE id = ANY(%s::bigint[]) AND available_at_ms <= (SELECT {self.clock}) AND {IS_RUNNING} AND NOT EXISTS (
                WITH RECURSIVE priorities(priority) AS (
                    SELECT max(priority) FROM tasks_app_task WHERE "group" = %s AND priority > %s
                    UNION ALL
                    SELECT (SELECT max(priority) FROM tasks_app_task
                            WHERE "group" = %s AND priority < priorities.priority AND priority > %s)
                    FROM priorities
                    WHERE priorities.priority IS NOT NULL
                )
                SELECT FROM priorities, LATERAL (
                    SELECT FROM tasks_app_task
                    WHERE "group" = %s AND priority = priorities.priority AND available_at_ms <= (SELECT {self.clock})
                    LIMIT 1
                ) AS available
                WHERE priorities.priority IS NOT NULL
            )
            FOR UPDATE SKIP LOCKED
            """,
            [self.list_of(ids), group, group, priority, group, priority, group],
        )

    def _read_pool(self, group: str) -> Statement:
        return Statement(
            f"""
            SELECT priority, array_agg(id), min(available_at_ms)
            FROM ({self._available}) AS candidates
            GROUP BY priority
            ORDER BY priority DESC
            """,
            [group, group, group, group, self._pools.mark_of(group)],
        )

    def _look_behind_locks(self, demands: Mapping[str, Demand], seen: Seen) -> Steps[None]:
        """Where others had locked what was chosen: choose again among what they have not.

        Only there, because it reads many rows. A claim would wait for another client's transaction otherwise.
        """
        short = {group for group, demand in demands.items() if len(seen.candidates[group]) < demand.limit}
        for group in short:
            self._pools.forget(group)
        more = sorted((yield from self.groups_with_more(short, seen)))
        seen.exhausted = short.difference(more)
        if not more:
            return
        found = yield [self._lock_others(group, demands[group], seen.candidates[group]) for group in more]
        for group, rows in zip(more, found, strict=True):
            seen.candidates[group] += best_first(rows, demands[group])

    def _lock_others(self, group: str, demand: Demand, locked: Sequence[TaskRecord]) -> Statement:
        # Rows are locked one by one until there are enough: none is locked that is not needed.
        return Statement(
            f"""
            SELECT {self.selected}
            FROM tasks_app_task
            WHERE id = ANY(ARRAY(
                SELECT id
                FROM tasks_app_task
                WHERE id = ANY(ARRAY(SELECT id FROM ({self._available}) AS candidates)) AND id <> ALL(%s::bigint[])
                ORDER BY priority DESC, {order_of(demand)}
                LIMIT %s
                FOR UPDATE SKIP LOCKED
            ))
            """,
            [
                *(group, group, group, group, NO_MARK_MS),
                self.list_of(task.id for task in locked),
                demand.limit - len(locked),
            ],
        )

    @property
    def _available(self) -> str:
        """A query for the longest available tasks of a group, of each priority.

        Its parameters: the group, four times, and the available time at which the scan starts.
        """
        # The time is a subquery that is evaluated once: an index scan can't be bounded by a volatile function.
        # Priority and time are compared together, because only `task_claim` has them in this order: as long as
        # PostgreSQL knows nothing of the table, it would as soon read the whole group by `task_listing`.
        return f"""
            WITH RECURSIVE priorities(priority) AS (
                SELECT max(priority) FROM tasks_app_task WHERE "group" = %s AND {IS_RUNNING}
                UNION ALL
                SELECT (SELECT max(priority) FROM tasks_app_task
                        WHERE "group" = %s AND priority < priorities.priority)
                FROM priorities
                WHERE priorities.priority IS NOT NULL
            )
            SELECT id, available_at_ms, priority
            FROM priorities, LATERAL (
                SELECT id, available_at_ms
                FROM tasks_app_task
                WHERE "group" = %s
                AND (priority, available_at_ms) >= (priorities.priority, %s)
                AND (priority, available_at_ms) <= (priorities.priority, (SELECT {self.clock}))
                ORDER BY priority, available_at_ms, id
                LIMIT {CANDIDATES}
            ) AS longest_available
            WHERE priorities.priority IS NOT NULL
        """

    def _jump_after_lost_log(self) -> Steps[None]:
        """Jump ahead when the end of the log may be lost, and with it the sequence's last steps.

        PostgreSQL empties an unlogged table after a crash, on a promoted standby and
        in a restored copy, and only then: an empty table says that it happened.
        """
        yield [Statement("LOCK TABLE tasks_app_log_intact IN EXCLUSIVE MODE")]
        [[(is_log_intact,)]] = yield [Statement("SELECT EXISTS (SELECT FROM tasks_app_log_intact)")]
        if not is_log_intact:
            yield [
                # The jump itself must not be lost in the next crash.
                Statement("SET LOCAL synchronous_commit = on"),
                Statement("SELECT setval('tasks_app_ids', nextval('tasks_app_ids') + %s::bigint)", [ID_JUMP]),
                Statement("SELECT setval('tasks_app_commits', nextval('tasks_app_commits') + %s::bigint)", [ID_JUMP]),
                Statement("INSERT INTO tasks_app_log_intact VALUES (true)"),
            ]

    def write(self, written: Written) -> Steps[Sequence[int]]:
        self._pools.lower(written.drafts)
        parts = list(self._parts(written))
        # One statement, so that the ids cost no trip of their own and the trail knows them.
        sql = f"WITH {', '.join(sql for sql, _ in parts)} {self.insertion if written.drafts else 'SELECT WHERE false'}"
        [rows] = yield [Statement(sql, [value for _, values in parts for value in values])]
        return [task_id for (task_id,) in rows]

    def _parts(self, written: Written) -> Iterator[tuple[str, Sequence[Any]]]:
        """What the statement consists of, with the parameters: only what there is, as also an empty part costs time."""
        if written.drafts:
            yield self.drafts, self._columns(COLUMNS[1:], [row_of(draft)[1:] for draft in written.drafts])
        if written.removed:
            yield self.removed, [self.list_of(written.removed)]
        if written.ended:
            yield (
                self.trail if written.drafts else self.trail_of_ends,
                self._columns(ENDED_COLUMNS, written.ended),
            )
        if written.kept:
            yield self.kept if written.drafts else self.kept_alone, self._columns(ANSWERED_COLUMNS, written.kept)
        if written.deltas:
            yield self.counted, self._columns(DELTA_COLUMNS, written.deltas)
        if written.items:
            yield self.itemised, self._columns(ITEM_COLUMNS, written.items)
        if any(draft.payload for draft in written.drafts):
            yield self.stored, []
        if written.payloads_gone:
            yield self.let_go, [self.list_of(written.payloads_gone)]

    def election(self) -> Statement:
        # Of a transaction, not of a session: a pooler in between may hand sessions round.
        return Statement(
            """
            SELECT CASE
                WHEN set_config('idle_in_transaction_session_timeout', %s, true) IS NOT NULL
                THEN pg_try_advisory_xact_lock(%s)
            END
            """,
            [f"{ELECTED_SILENCE_S}s", HOUSEKEEPING_LOCK],
        )

    def take(self, table: str, selected: str, grouped_by: str) -> Steps[Sequence[Row]]:
        # In one statement: rows that others commit meanwhile are neither in it nor deleted.
        [rows] = yield [
            Statement(
                f"""
                WITH taken AS (DELETE FROM {table} RETURNING *)
                SELECT {grouped_by}, {selected} FROM taken GROUP BY {grouped_by}
                """
            )
        ]
        return rows

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row], ending: str = "") -> Sequence[Statement]:
        sql = f"""
            INSERT INTO {table} ({", ".join(quoted(columns))})
            SELECT * FROM unnest({_arrays(columns)})
            {ending}
        """
        return [Statement(sql, self._columns(columns, rows))] if rows else []

    def joined(self, column: str) -> str:
        return f"string_agg({column}, ' ')"

    def _columns(self, columns: Sequence[str], rows: Sequence[Row]) -> list[Any]:
        values = zip(*rows, strict=True) if rows else [()] * len(columns)
        return [
            self.array(POSTGRESQL_TYPES.get(name, "bigint"), column)
            for name, column in zip(columns, values, strict=True)
        ]

    def array(self, type_name: str, values: Sequence[Any]) -> Any:
        """A parameter that holds the values."""
        return list(values)

    def is_contention(self, error: Exception) -> bool:
        return _sqlstate(error) in (
            "40P01", "40001", "55P03",  # Deadlock, serialization failure, lock timeout.
            "57014",  # A statement that waited for several locks timed out.
            "23505",  # Another process has just kept an answer under the same key: it is found now.
        )  # fmt: skip

    def is_disconnected(self, error: BaseException) -> bool:
        state = _sqlstate(error)
        # 25P03: it was silent for too long.
        return state is None or state.startswith(("08", "57")) or state == "25P03"

    @contextmanager
    def bookkeeping(self) -> Iterator[None]:
        with transaction.atomic(using=self.using):
            self.rows("SET LOCAL synchronous_commit = off")
            yield

    @contextmanager
    def confirmation(self) -> Iterator[None]:
        with connections[self.using].cursor() as cursor:
            # Not the wrapper's: this one hears of the transaction that is about to begin on it.
            connection = cursor.connection
        doubts = Doubts()
        connection.add_notice_handler(doubts.hear)
        try:
            yield
        finally:
            connection.remove_notice_handler(doubts.hear)
        if doubts.are_there:
            raise CommitUnknown(UNCONFIRMED)


def _at_once(*settings: str) -> Statement:
    """Statements without parameters, in one round trip."""
    return Statement("; ".join(settings))


def _is_log_intact(numbers: Sequence[Row]) -> bool:
    return all(is_intact for _, is_intact, _ in numbers)


def _sqlstate(error: BaseException) -> str | None:
    return getattr(error, "sqlstate", None) or getattr(error.__cause__, "sqlstate", None)
