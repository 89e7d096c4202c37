"""PostgreSQL: row locks in one order, and what it takes beside them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from django.db import connections, transaction

from taskstore.errors import CommitUnknown
from taskstore.types.tasks import FIELDS

from ..core.operations import Key, Operation, TaskRecord
from ..core.tally import COUNTERS
from .claim_pools import (
    Demand,
    Known,
    best_first,
    changed_ids,
    demands_of,
    depended_ids,
    drafts_of,
    kept_by_key,
    keys_of,
    named_keys,
    queried_by,
)
from .dialect import ID_JUMP, UNCONFIRMED, Dialect, is_opportunistic
from .limits import known as known_limits
from .postgresql_arrays import Doubts, literal, numbers_in
from .postgresql_claims import Candidates
from .rows import FREED_COLUMNS, KEY_COLUMNS, Last, Questions, Row, Statement, Steps, quoted, record_of, row_of
from .transaction_values import Seen, Written

Array = Callable[[str, Sequence[Any]], Any]  # Of a type's name and values, the parameter that holds them.

# The types of columns that are not bigint.
POSTGRESQL_TYPES: Mapping[str, str] = {field.name: field.column for field in FIELDS} | dict.fromkeys(
    (
        *("ending", "operator", "reason", "key", "digest", "answer", "ids", "outcome", "why", "ended_in"),
        *("unique_group", "value", "name", "mark", "problem", "path", *COUNTERS),
        *("level", "holder", "words", "groups", "reach", "adds", "lost"),
    ),
    "text",
)


def arrays(columns: Sequence[str]) -> str:
    return ", ".join(f"%s::{POSTGRESQL_TYPES.get(name, 'bigint')}[]" for name in columns)


IS_LISTED = "id = ANY(%s::bigint[])"
# Where plans expect fewer than 50 rows, and more than 500 are there.
COUNTED_WHILE_EMPTY = r"""
    SELECT relname::text FROM pg_class
    WHERE relname LIKE 'tasks\_app\_%%' AND relkind = 'r' AND pg_table_is_visible(oid)
        AND CASE WHEN relpages = 0 THEN reltuples <= 0
            ELSE reltuples / relpages * pg_relation_size(oid) < 50 * current_setting('block_size')::int END
        AND pg_stat_get_live_tuples(oid) > 500
"""


def insertion_of(table: str, columns: Sequence[str], rows: Sequence[Row], clause: str, array: Array) -> Statement:
    sql = f"""
        INSERT INTO {table} ({", ".join(quoted(columns))})
        SELECT * FROM unnest({arrays(columns)})
        {clause}
    """
    return Statement(sql, _values(columns, rows, array))


def _values(columns: Sequence[str], rows: Sequence[Row], array: Array) -> list[Any]:
    values = zip(*rows, strict=True) if rows else [()] * len(columns)
    return [array(POSTGRESQL_TYPES.get(name, "bigint"), column) for name, column in zip(columns, values, strict=True)]


HOUSEKEEPING_LOCK = 0x7A5C_5703  # Any number that nobody else takes a lock by.
KEYS_LOCK = 0x7A5C_5704  # Shared by whoever locks single keys (contract.md, unique adds).
MOST_KEYS = 500
# An expression: how often limits have been changed. From then on nobody changes them until the transaction ends: "FOR
# KEY SHARE" locks the table, in which it looks at nothing: PostgreSQL 14 to 18 do so with kept plans, too. An advisory
# lock would cost all transactions more.
LIMITS_VERSION = """
    (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM tasks_app_limits
    WHERE NOT EXISTS (SELECT FROM tasks_app_log_intact WHERE false FOR KEY SHARE))
"""
SLICE_BYTES = 2**20
LEAST_MS = 50  # 0 would be for ever.
# A process that stops amid a transaction, with its machine or by a debugger, holds up others no longer than this.
SILENCE_S = 60
# And one that was elected to do what only one does, no longer than this: then another process is.
ELECTED_SILENCE_S = 4


class PostgreSQL(Candidates):
    name = "postgresql"
    serves_many = True
    collation = "C"
    like = "ILIKE"
    hurry = ("SET lock_timeout = '1s'", "SET statement_timeout = '1s'")
    selected = Dialect.selected.replace('"labels"', "labels::text").replace("SELECT size", "SELECT int8send(size)")
    clock = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    time_of = "to_timestamp(%s::bigint)"
    newest_id = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM tasks_app_ids"
    newest_commit = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM tasks_app_commits"
    label_value = "coalesce(labels ->> %s, '')"
    is_listed = IS_LISTED
    limits_version = LIMITS_VERSION
    limits_changed = "SELECT nextval('tasks_app_limits') FROM tasks_app_limits WHERE is_called"
    is_key_named = "key = ANY(%s::text[])"
    later_of = "greatest"
    has_history_days = True
    names = "unnest(%s::text[]) AS names(name)"
    contains = """strpos(lower("group"), %s) > 0"""
    is_not_ascii = """octet_length("group") > char_length("group")"""

    def own_connection(self, timeout_s: int) -> Any:
        connection = super().own_connection(timeout_s)
        connection.settings_dict["OPTIONS"].pop("pool", None)
        connection.settings_dict["OPTIONS"].setdefault("connect_timeout", timeout_s)
        return connection

    def flaw(self, connection: Any) -> str:
        encoding = connection.connection.info.parameter_status("server_encoding")
        if encoding == "UTF8":
            return ""
        return (
            f"its encoding is {encoding}, which lacks characters of tasks: create one with "
            "`createdb --template=template0 --encoding=UTF8 --locale=C.UTF-8 NAME`"
        )

    def _has_label(self, name: str, value: str | None) -> tuple[str, tuple[str, ...]]:
        if value is None:
            return "labels ? %s", (name,)
        return "labels @> CAST(%s AS jsonb)", (json.dumps({name: value}),)

    def _label(self, name: str) -> str:
        return f"labels ->> '{name}'"

    def holds(self, data: str) -> str:
        return f"position(CAST(%s AS bytea) IN {data}) > 0"

    def lock(self, number: int) -> Sequence[Statement]:
        # Of a transaction, not of a session: a pooler in between may hand sessions round.
        return [Statement("SELECT pg_advisory_xact_lock(%s)", [number])]

    def lock_each(self, numbers: Sequence[int], shared: Sequence[bool]) -> Statement:
        lock = "CASE WHEN is_shared = 1 THEN pg{0}_advisory_xact_lock_shared(number){1} "
        lock += "ELSE pg{0}_advisory_xact_lock(number){1} END"
        if self.waits:
            is_locked = f"{lock.format('', '::text')} IS NOT NULL"
        else:
            # A moment later once more: whoever has it is about to commit.
            attempt = lock.format("_try", "")
            is_locked = f"CASE WHEN {attempt} THEN true ELSE pg_sleep(0.002)::text IS NOT NULL AND {attempt} END"
        sql = f"SELECT {is_locked} FROM unnest(%s::bigint[], %s::smallint[]) AS each(number, is_shared)"
        return Statement(sql, [self.list_of(numbers), self.array("smallint", [int(each) for each in shared])])

    def batch_ids(self, number: int) -> Statement:
        return Statement("SELECT nextval('tasks_app_batches') FROM generate_series(1, %s)", [number])

    def lock_tasks(self, ids: Iterable[int], seen: Seen) -> Statement:
        seen.ids = ()  # A successor's must be larger than the id that it replaces.
        return self.tasks_of(ids, "FOR UPDATE SKIP LOCKED")

    def change_limits(self, wait_ms: int) -> tuple[Sequence[Statement], Sequence[Statement]]:
        before = [
            Statement("SELECT set_config('tasks_app.lock_timeout', current_setting('lock_timeout'), true)"),
            Statement(f"SET LOCAL lock_timeout = {wait_ms}"),
            Statement("LOCK TABLE tasks_app_log_intact IN EXCLUSIVE MODE"),  # The table that LIMITS_VERSION locks.
            Statement("SELECT nextval('tasks_app_limits')"),
        ]
        # The transaction may be a caller's, and go on.
        restored = "SELECT set_config('lock_timeout', current_setting('tasks_app.lock_timeout'), true)"
        return before, [Statement(restored)]

    def payload(self, payload: int) -> bytes | None:
        # Differs because libpq's buffers never shrink: they would stay twice as large as the longest data.
        data = bytearray()
        sql = "SELECT substring(data FROM %s FOR %s) FROM tasks_app_payload WHERE id = %s"
        while True:
            rows = self.rows(sql, [len(data) + 1, SLICE_BYTES, payload])
            if not rows:
                return None
            data += rows[0][0]
            if len(rows[0][0]) < SLICE_BYTES:
                return bytes(data)

    def jump_ids(self) -> None:
        pass  # The next look finds out by itself: see _jump_after_lost_log.

    def flush(self) -> None:
        pass  # The database's own server brings it to the disk within a second.

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

    @contextmanager
    def reading(self) -> Iterator[None]:
        # A cursor outside of a transaction makes the server copy the whole result, and fails behind pgbouncer.
        # When it is closed over a connection that broke, Django lets the driver's own error pass.
        with transaction.atomic(using=self.using), connections[self.using].wrap_database_errors:
            yield

    @contextmanager
    def adding_up(self) -> Iterator[None]:
        # To compile such a statement takes seconds, ten times as long as to do it.
        with transaction.atomic(using=self.using):
            self.rows("SET LOCAL jit = off")
            yield

    def patience(self, more: str = "") -> Iterator[Statement]:
        # The time that went by until there was a connection counts, too.
        silence = f"SET LOCAL idle_in_transaction_session_timeout = '{SILENCE_S}s'"
        yield _at_once(self._limit("lock"), silence, *([more] if more else []))

    def preparation(self, operations: Sequence[Operation]) -> Iterator[Statement]:
        yield from self.patience("SET LOCAL synchronous_commit = off" if is_opportunistic() and self.is_alone else "")
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
        changed = changed_ids(operations)
        depended = depended_ids(operations)
        limits, keys = known_limits(self.using), keys_of(operations)
        demands, queried = demands_of(operations, limits), queried_by(operations, limits)
        self.pools.begin([*demands, *queried])
        to_read = [group for group, demand in demands.items() if self.pools.must_read(group, demand.limit)]
        known = self.pools.take_known(demands)
        ids = changed.union(*[each for _, each in known.values()])
        skip = "" if self.waits else "SKIP LOCKED"
        asked = Questions()
        # Each kind in one statement, in id order: two commits that share tasks would deadlock otherwise.
        # Depends are shared, so that a task which every commit depends on serialises nobody.
        locks = [(ids, "FOR UPDATE"), (depended - ids, "FOR KEY SHARE")]
        rows = [asked.ask(self.tasks_of(each, f"ORDER BY id {lock} {skip}")) for each, lock in locks if each]
        chosen = {
            group: asked.ask(self._lock_chosen(group, demand))
            for group, demand in demands.items()
            if group not in known
        }
        pools = {group: asked.ask(self.read_pool(group, demands[group].limit)) for group in to_read}
        earliest = {group: asked.ask(self._lock_earliest(group, each)) for group, each in queried.items() if each.tasks}
        first = {group: asked.ask(self.first_of(group)) for group, each in queried.items() if each.is_read}
        named_now = named_keys(operations)
        # By statements of their own: what the second one sees was committed before the locks were there.
        is_locked = asked.ask(self._lock_keys(named_now)) if named_now else []
        held = asked.ask(self.held_keys(named_now)) if named_now else []
        # The time comes last: a lease that ran out while this waited for locks has run out. And ids are drawn when all
        # is locked, so that each is larger than those of what it replaces.
        at_last = self._time_and_numbers(operations, known, demands, keys)
        numbers = asked.ask(at_last)
        yield from asked.answered()
        [(now_ms, is_log_intact, limits_version, commits, new_ids, may_be_unusual, are_kept)] = numbers
        if not is_log_intact:
            yield from self._jump_after_lost_log()
            [[(now_ms, _, limits_version, commits, new_ids, may_be_unusual, are_kept)]] = yield [at_last]
        unusual = {name for (name,) in (yield [self._unusual(self._parameters_of(known))])[0]} if may_be_unusual else ()
        kept = (yield [self.kept_answers(keys)])[0] if are_kept else ()
        named = {task.id: task for each in rows for task in map(record_of, each)}
        candidates = {group: best_first(each, demands[group]) for group, each in chosen.items()}
        for group, (_, each) in known.items():
            there = [task for task_id in each if (task := named.get(task_id)) and task.available_at_ms <= now_ms]
            candidates[group] = [] if group in unusual else there
        seen = Seen(
            now_ms=now_ms,
            named=named,
            candidates=candidates,
            commits=numbers_in(commits),
            kept=kept_by_key(kept),
            earliest={group: [*map(record_of, each)] for group, each in earliest.items()},
            first={group: [*map(record_of, each)] for group, each in first.items()},
            ids=numbers_in(new_ids),
            limits_version=limits_version,
        )
        for group, levels in pools.items():
            self.note_pool(group, levels, (task.id for task in seen.candidates[group]))
        for group, tasks in seen.earliest.items():
            self.pools.note_earliest(group, tasks, queried[group].tasks)
        if named_now:
            seen.contended = frozenset(key for key, (is_ours,) in zip(named_now, is_locked, strict=True) if not is_ours)
            yield from self.note_held(held, seen)
        yield from self._look_behind_locks(demands, seen)
        missing = () if self.waits else (changed | depended) - seen.named.keys()
        if missing:
            yield from self._note_locked(missing, seen)
        return seen

    def _lock_keys(self, keys: Sequence[Key]) -> Statement:
        """Lock the keys until the end of the transaction. Tells for each in turn whether it could be locked.

        Advisory locks, because there is no row yet: whoever inserts one that another transaction is about to insert
        waits until that ends, and all operations of the batch with it. Nobody locks more than MOST_KEYS one by one,
        as the database has room for some thousand locks only.
        """
        numbers = [_number_of(key) for key in keys]
        is_exclusive = len(numbers) > MOST_KEYS
        mode = "" if is_exclusive else "_shared"
        each = "true" if is_exclusive else "{} IS NOT NULL"
        if self.waits:
            every = f"pg_advisory_xact_lock{mode}({KEYS_LOCK}) IS NOT NULL"
            each = each.format("pg_advisory_xact_lock(number)")
        else:
            every = f"pg_try_advisory_xact_lock{mode}({KEYS_LOCK})"
            each = each.format("pg_try_advisory_xact_lock(number)").replace(" IS NOT NULL", "")
        sql = f"""
            WITH every AS MATERIALIZED (SELECT {every} AS is_locked)
            SELECT CASE WHEN (SELECT is_locked FROM every) THEN {each} ELSE false END
            FROM unnest(%s::bigint[]) AS locks(number)
        """
        return Statement(sql, [self.list_of(numbers)])

    def held_keys(self, keys: Sequence[Key]) -> Statement:
        sql = f"""
            SELECT {", ".join(quoted(KEY_COLUMNS))}
            FROM unnest(%s::text[], %s::text[]) AS named("group", key)
            JOIN tasks_app_uniquekey USING ("group", key)
        """
        return Statement(sql, self._columns_of(keys))

    def keep_keys(self, freed: Sequence[Row]) -> Statement:
        sql = f"""
            UPDATE tasks_app_uniquekey AS kept
            SET ended = gone.ended, ending = gone.ending, ended_in = gone.ended_in
            FROM unnest({arrays(FREED_COLUMNS)}) AS gone({", ".join(FREED_COLUMNS)})
            WHERE kept.origin = gone.origin AND kept.ended = 0
        """
        columns = zip(("bigint", "bigint", "text", "text"), zip(*freed, strict=True), strict=True)
        return Statement(sql, [self.array(type_name, values) for type_name, values in columns])

    def drop_kept(self, keys: Sequence[Key]) -> Statement:
        sql = """
            DELETE FROM tasks_app_uniquekey AS kept
            USING unnest(%s::text[], %s::text[]) AS named("group", key)
            WHERE kept."group" = named."group" AND kept.key = named.key AND kept.ended > 0
        """
        return Statement(sql, self._columns_of(keys))

    def _columns_of(self, keys: Sequence[Key]) -> list[Any]:
        groups, names = zip(*keys, strict=True)
        return [self.array("text", groups), self.array("text", names)]

    def _note_locked(self, missing: Iterable[int], seen: Seen) -> Steps[None]:
        """Note which of the named tasks that were passed over are there, but locked by others."""
        sql = f"SELECT id FROM tasks_app_task WHERE {self.is_listed}"
        [locked] = yield [Statement(sql, [self.list_of(missing)])]
        seen.locked = {task_id for (task_id,) in locked}

    def _time_and_numbers(
        self,
        operations: Sequence[Operation],
        known: Mapping[str, Known],
        demands: Mapping[str, Demand],
        keys: Sequence[str],
    ) -> Statement:
        """The time, numbers for commits, and ids for drafts.

        And whether groups are perhaps not as they are known, and whether requests with these keys are repeated.
        """
        drafts, replaced, owners = (0, (), ()) if self.waits else drafts_of(operations)
        drafts += sum([demands[group].limit for group in known])
        # None is drawn where the rules will refuse a commit that needs some: ids are not skipped without need.
        refused = f"""
            EXISTS (
                SELECT FROM unnest(%s::bigint[], %s::bigint[]) AS replaced(task_id, commit_owner)
                WHERE NOT EXISTS (
                    SELECT FROM tasks_app_task
                    WHERE id = task_id AND (available_at_ms <= (SELECT {self.clock}) OR owner = commit_owner)
                )
            )
        """
        unusual = """
            EXISTS (
                SELECT FROM unnest(%s::text[], %s::smallint[]) AS known(name, known)
                WHERE EXISTS (SELECT FROM tasks_app_pausedgroup WHERE "group" = name)
                    OR (SELECT max(priority) FROM tasks_app_task WHERE "group" = name AND priority > known) IS NOT NULL
            )
        """
        sql = f"""
            SELECT {self.clock}, EXISTS (SELECT FROM tasks_app_log_intact), {LIMITS_VERSION},
                array_send(ARRAY(SELECT nextval('tasks_app_commits') FROM generate_series(1, %s))),
                array_send(ARRAY(
                    SELECT nextval('tasks_app_ids')
                    FROM generate_series(1, {f"CASE WHEN {refused} THEN 0 ELSE %s END" if replaced else "%s"})
                )),
                {unusual if known else "false"},
                {f"EXISTS (SELECT FROM tasks_app_keptanswer WHERE {self.is_key_named})" if keys else "false"}
        """
        parameters: list[Any] = [len(operations)]
        if replaced:
            parameters += [self.list_of(replaced), self.list_of(owners)]
        parameters.append(drafts)
        if known:
            parameters += self._parameters_of(known)
        if keys:
            parameters.append(self.list_of_names(keys))
        return Statement(sql, parameters)

    def _parameters_of(self, known: Mapping[str, Known]) -> Sequence[Any]:
        """The groups, and the priority of each."""
        return self.array("text", list(known)), self.array("smallint", [priority for priority, _ in known.values()])

    def _jump_after_lost_log(self) -> Steps[None]:
        """Jump ahead when the end of the log may be lost, and with it the sequence's last steps.

        PostgreSQL empties an unlogged table after a crash, on a promoted standby and
        in a restored copy, and only then: an empty table says that it happened.
        """
        yield [Statement("LOCK TABLE tasks_app_log_intact IN SHARE ROW EXCLUSIVE MODE")]
        [[(is_log_intact,)]] = yield [Statement("SELECT EXISTS (SELECT FROM tasks_app_log_intact)")]
        if not is_log_intact:
            yield [
                # The jump itself must not be lost in the next crash.
                Statement("SET LOCAL synchronous_commit = on"),
                *(
                    Statement(f"SELECT setval('{name}', nextval('{name}') + %s::bigint)", [ID_JUMP])
                    for name in ("tasks_app_ids", "tasks_app_commits", "tasks_app_batches")
                ),
                Statement("INSERT INTO tasks_app_log_intact VALUES (true)"),
            ]

    def new_ids(self, number: int) -> Steps[Sequence[int]]:
        [rows] = yield [Statement("SELECT nextval('tasks_app_ids') FROM generate_series(1, %s)", [number])]
        return [task_id for (task_id,) in rows]

    def write(self, written: Written) -> Steps[None]:
        for draft in written.drafts:
            self.pools.lower(draft.group, draft.available_at_ms)
        sql = f"DELETE FROM tasks_app_task WHERE {IS_LISTED}"
        changes = [Statement(sql, [self.list_of(written.removed)])] if written.removed else []
        for table, columns, rows in written.insertions(self.row_of):
            changes += self.insert(table, columns, rows)
        # Together: each statement that is sent costs as much as what it does to a few rows.
        parts = ", ".join([f"change{number} AS ({sql})" for number, (sql, _) in enumerate(changes)])
        together = Statement(f"WITH {parts} SELECT", [value for _, values in changes for value in values])
        yield Last([*self.freeing(written), *([together] if changes else ())])

    def row_of(self, task: TaskRecord) -> Row:
        """The row of a task for `insert`."""
        return row_of(task)

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

    def oldest_transaction(self) -> tuple[int, str]:
        # Of other roles only a member of pg_read_all_stats is told since when theirs are open.
        rows = self.rows(
            """
            SELECT CAST(extract(epoch FROM clock_timestamp() - began) * 1000 AS bigint), whose
            FROM (
                SELECT xact_start AS began, concat(usename, ', ', application_name, ', process ', pid) AS whose
                FROM pg_stat_activity
                WHERE datname = current_database() AND backend_type = 'client backend'
                    AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
                UNION ALL
                SELECT prepared, concat(owner, ', prepared transaction ', gid)
                FROM pg_prepared_xacts WHERE database = current_database()
            ) AS transactions
            WHERE began IS NOT NULL ORDER BY began LIMIT 1
            """
        )
        return rows[0] if rows else (0, "")

    def count_anew(self) -> Steps[None]:
        # To PostgreSQL, all indexes of a table that was empty when it was counted are the same, and it reads any of
        # them from end to end. By itself it counts again only after a minute.
        [found] = yield [Statement(COUNTED_WHILE_EMPTY)]
        if found:
            yield [Statement(f"ANALYZE (SKIP_LOCKED) {', '.join([table for (table,) in found])}")]

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row], clause: str = "") -> Sequence[Statement]:
        return [insertion_of(table, columns, rows, clause, self.array)] if rows else []

    def joined(self, column: str) -> str:
        return f"string_agg({column}, ' ')"

    def array(self, type_name: str, values: Sequence[Any]) -> Any:
        """A parameter that holds the values."""
        return literal(type_name, values)

    def is_contention(self, error: Exception) -> bool:
        return _sqlstate(error) in (
            "40P01", "40001", "55P03",  # Deadlock, serialization failure, lock timeout.
            "57014",  # A statement that waited for several locks timed out.
            "42804",  # A migration has just added a column: the next connection knows it (plain.py).
            "23505",  # Another process has just kept an answer under the same key: it is found now.
        )  # fmt: skip

    def has_waited(self, error: BaseException | None) -> bool:
        return error is not None and _sqlstate(error) == "55P03"

    def leaves_outcome_unknown(self, error: BaseException) -> bool:
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


def _number_of(key: Key) -> int:
    """The number of the lock of a key. Another key with the same number only waits longer."""
    digest = hashlib.blake2b(f"{len(key[0])} {key[0]}{key[1]}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _sqlstate(error: BaseException) -> str | None:
    return getattr(error, "sqlstate", None) or getattr(error.__cause__, "sqlstate", None)
