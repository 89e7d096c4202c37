"""SQLite: one writer at a time, statement by statement."""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

from django.db import connections

from ..core.operations import Key, Operation, TaskRecord
from .claim_pools import (
    CANDIDATES,
    NO_MARK_MS,
    Demand,
    Pools,
    changed_ids,
    demands_of,
    depended_ids,
    kept_by_key,
    keys_of,
    named_keys,
    queried_by,
)
from .dialect import ID_JUMP, IS_RUNNING, Again, Dialect
from .limits import known as known_limits
from .rows import KEY_COLUMNS, Last, Row, Statement, Steps, quoted, record_of, row_of
from .transaction_values import Seen, Written
from .turns import turns

LARGEST_ID = 2**63 - 1
# A condition: the key is one of those that the one parameter lists.
IS_NAMED_KEY = (
    """("group", key) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(%s))"""
)
FEW = 100  # Rows that are inserted one by one.
LEAST_WAIT_MS = 50


class Each(list[Row]):
    """Parameters of a statement that is done once for each of these rows."""


class SQLite(Dialect):
    """One writer at a time: no row locks, because BEGIN IMMEDIATE has locked the whole database."""

    name = "sqlite"
    serves_many = False
    like = "LIKE"
    hurry = ("PRAGMA busy_timeout = 1000",)
    clock = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
    time_of = "datetime(%s, 'unixepoch')"
    newest_id = "SELECT value FROM tasks_app_counters WHERE name = 'ids'"
    newest_commit = "SELECT value FROM tasks_app_counters WHERE name = 'commits'"
    label_value = "coalesce((SELECT value FROM json_each(labels) WHERE key = %s), '')"
    limits_version = "(SELECT value FROM tasks_app_counters WHERE name = 'limits')"
    limits_changed = "UPDATE tasks_app_counters SET value = value + 1 WHERE name = 'limits' AND value > 0"
    is_listed = "id IN (SELECT value FROM json_each(%s))"
    is_key_named = "key IN (SELECT value FROM json_each(%s))"
    later_of = "max"
    names = "(SELECT value AS name FROM json_each(%s)) AS names"
    contains = """instr(lower("group"), %s) > 0"""
    is_not_ascii = """"group" GLOB '*[^' || char(1) || '-' || char(127) || ']*'"""

    # The largest id that this process has given out, perhaps in a transaction that was rolled back.
    _given_out: ClassVar[dict[str, int]] = defaultdict(int)

    def __init__(self, using: str, *, waits: bool) -> None:
        super().__init__(using, waits=waits)
        self._pools = Pools()

    @property
    def file(self) -> Path:
        return Path(connections[self.using].settings_dict["NAME"])

    def _has_label(self, name: str, value: str | None) -> tuple[str, tuple[str, ...]]:
        # First the cheap question: whether the labels, as the store writes them, hold the text of this one.
        if value is None:
            is_there = "EXISTS (SELECT 1 FROM json_each(labels) WHERE key = %s)"
            return f"instr(labels, %s) > 0 AND {is_there}", (f"{json.dumps(name)}:", name)
        is_there = "EXISTS (SELECT 1 FROM json_each(labels) WHERE key = %s AND value = %s)"
        return f"instr(labels, %s) > 0 AND {is_there}", (f"{json.dumps(name)}: {json.dumps(value)}", name, value)

    def _label(self, name: str) -> str:
        return f"json_extract(labels, '$.{name}')"

    def holds(self, data: str) -> str:
        return f"instr({data}, %s) > 0"

    def lock(self, number: int) -> Sequence[Statement]:
        return ()  # One transaction writes at a time: who began to write has the lock, or is told to begin again.

    def lock_each(self, numbers: Sequence[int], shared: Sequence[bool]) -> Statement:
        return Statement("SELECT 1 FROM json_each(%s)", [self.list_of(numbers)])  # As above.

    def batch_ids(self, number: int) -> Statement:
        last = "SELECT value FROM tasks_app_counters WHERE name = 'batches'"
        return Statement(f"SELECT ({last}) + value FROM json_each(%s)", [self.list_of(range(1, number + 1))])

    def lock_tasks(self, ids: Iterable[int], seen: Seen) -> Statement:
        return self.tasks_of(ids)

    def change_limits(self, wait_ms: int) -> tuple[Sequence[Statement], Sequence[Statement]]:
        return [Statement("UPDATE tasks_app_counters SET value = value + 1 WHERE name = 'limits'")], ()

    def jump_ids(self) -> None:
        self._advance_for_certain(ID_JUMP)

    def flush(self) -> None:
        # One commit that waits for the disk takes all before it along. It has to change something, or writes nothing.
        self._advance_for_certain(1)

    def _advance_for_certain(self, by: int) -> None:
        with connections[self.using].cursor() as cursor:
            cursor.execute("PRAGMA synchronous = FULL")
            cursor.execute("UPDATE tasks_app_counters SET value = value + %s", [by])
        # The next connection has again what the settings say.
        connections[self.using].close()

    def go_on_after(self, name: str, number: int) -> Statement:
        sql = "UPDATE tasks_app_counters SET value = max(value, %s) WHERE name = %s"
        return Statement(sql, [number, name])

    def list_of(self, ids: Iterable[int]) -> Any:
        return json.dumps(list(ids))

    def list_of_names(self, names: Iterable[str]) -> Any:
        return json.dumps(list(names))

    @contextmanager
    def turn(self) -> Iterator[None]:
        turn, began_s = turns[self.using], time.monotonic()
        if not turn.acquire(self.patience_s):
            raise Again
        left_s = self.patience_s - (time.monotonic() - began_s)
        is_late = left_s < self.patience_s * 3 / 4
        try:
            if is_late:  # Another program may have the file, and whoever has waited in the queue does not wait as long.
                self.rows(f"PRAGMA busy_timeout = {max(LEAST_WAIT_MS, int(left_s * 1_000))}")
            yield
        finally:
            turn.release()
            if is_late:
                usual_s = connections[self.using].settings_dict["OPTIONS"].get("timeout", 5)
                self.rows(f"PRAGMA busy_timeout = {int(usual_s * 1_000)}")

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        if not isinstance(parameters, Each):
            return super().rows(sql, parameters)
        with connections[self.using].cursor() as cursor:
            cursor.executemany(sql, parameters)
        return []

    def rows_at_once(self, columns: Sequence[str], sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
        # Differs because Python's lock is let go for each row here: beside an event loop that is busy
        # five thousand rows took two seconds, as one text a tenth of one.
        names = ", ".join(f'"{name}"' for name in columns)
        [(text,)] = self.rows(f"SELECT json_group_array(json_array({names})) FROM ({sql})", parameters)
        rows: list[Row] = json.loads(text)
        return rows

    def reading(self) -> AbstractContextManager[Any]:
        # Differs because a transaction here is a writer's: it would keep all others waiting.
        return nullcontext()

    def preparation(self, operations: Sequence[Operation]) -> Sequence[Statement]:
        return ()  # Durability is a property of the connection here: PRAGMA synchronous, in the settings.

    def look(self, operations: Sequence[Operation]) -> Steps[Seen]:
        [[(now_ms, last_commit, last_id, limits_version)]] = yield [
            Statement(
                # Not AUTOINCREMENT: its sequence starts again when Django rebuilds an empty table.
                f"""
                UPDATE tasks_app_counters
                SET value = value + %s
                WHERE name = 'commits'
                RETURNING {self.clock}, value, ({self.newest_id}),
                    {self.limits_version}
                """,
                [len(operations)],
            )
        ]
        commits = range(last_commit - len(operations) + 1, last_commit + 1)
        kept: Sequence[Row] = ()
        if keys := keys_of(operations):
            [kept] = yield [self.kept_answers(keys)]
        named, candidates = yield from self._named_and_candidates(operations, now_ms)
        seen = Seen(now_ms, named, candidates, commits, kept_by_key(kept), limits_version=limits_version)
        # Nobody else writes until this transaction ends, which says then how far the ids were used up.
        seen.ids = range(max(last_id, self._given_out[self.using]) + 1, LARGEST_ID + 1)
        if names := named_keys(operations):
            [held] = yield [self.held_keys(names)]
            yield from self.note_held(held, seen)
        for group, asked in queried_by(operations, known_limits(self.using)).items():
            [earliest] = yield [self.earliest(group, asked)]
            seen.earliest[group] = [*map(record_of, earliest)]
            if asked.is_read:
                [first] = yield [self.first_of(group)]
                seen.first[group] = [*map(record_of, first)]
        return seen

    def _named_and_candidates(
        self, operations: Sequence[Operation], now_ms: int
    ) -> Steps[tuple[dict[int, TaskRecord], dict[str, list[TaskRecord]]]]:
        """Read the tasks that the operations name and those that they may claim, all of them by their ids at once."""
        demands = demands_of(operations, known_limits(self.using))
        self._pools.begin(demands)
        highest: dict[str, int | None] = {}  # Priority by group; None: nothing goes out.
        chosen: dict[str, list[int]] = {}
        from_pools: set[str] = set()
        for group, demand in demands.items():
            [[(highest[group],)]] = yield [
                Statement(
                    f'SELECT max(priority) FROM tasks_app_task WHERE "group" = %s AND {IS_RUNNING}', [group, group]
                )
            ]
            known = None if demand.oldest else self._pools.take(group, demand.limit)
            if known and known[0] == highest[group]:
                chosen[group] = known[1]
                from_pools.add(group)
            else:
                chosen[group] = yield from self._choose(group, demand, highest[group], now_ms)
        ids = changed_ids(operations).union(depended_ids(operations), *chosen.values())
        tasks = yield from self._read(ids)
        for group in from_pools:
            # One of them may have ended since they were read, or the clock have been put back.
            if not all(task_id in tasks and tasks[task_id].available_at_ms <= now_ms for task_id in chosen[group]):
                self._pools.forget(group)
                chosen[group] = yield from self._choose(group, demands[group], highest[group], now_ms)
                tasks |= yield from self._read(chosen[group])
        return tasks, {group: [tasks[task_id] for task_id in ids] for group, ids in chosen.items()}

    def _read(self, ids: Collection[int]) -> Steps[dict[int, TaskRecord]]:
        if not ids:
            return {}
        [rows] = yield [self.tasks_of(ids)]
        return {row[0]: record_of(row) for row in rows}

    def _choose(self, group: str, demand: Demand, priority: int | None, now_ms: int) -> Steps[list[int]]:
        """Choose tasks of the group to be claimed, the best first. `priority`: the highest; None: nothing goes out."""
        chosen: list[int] = []
        must_note = self._pools.must_read(group, demand.limit)
        # Level by level, because there is nearly always one level only.
        while priority is not None:
            [rows] = yield [
                Statement(
                    """
                    SELECT id
                    FROM tasks_app_task
                    WHERE "group" = %s AND priority = %s AND available_at_ms <= %s
                    ORDER BY available_at_ms, id
                    LIMIT %s
                    """,
                    [group, priority, now_ms, CANDIDATES],
                )
            ]
            ids = [task_id for (task_id,) in rows]
            missing = demand.limit - len(chosen)
            chosen += ids[:missing] if demand.oldest else random.sample(ids, min(missing, len(ids)))
            if must_note:  # Of the highest priority only: what the next claims get.
                self._pools.note(group, [(priority, ids, NO_MARK_MS)], chosen)
                must_note = False
            if len(chosen) >= demand.limit:
                break
            [[(priority,)]] = yield [
                Statement(
                    'SELECT max(priority) FROM tasks_app_task WHERE "group" = %s AND priority < %s', [group, priority]
                )
            ]
        return chosen

    def write(self, written: Written) -> Steps[None]:
        statements = [Statement(f"DELETE FROM tasks_app_task WHERE {self.is_listed}", [self.list_of(written.removed)])]
        if written.drafts:
            newest = self._given_out[self.using] = written.drafts[-1].id
            statements.append(self.go_on_after("ids", newest))
        statements += self.freeing(written)
        for table, columns, rows in written.insertions(row_of):
            statements += _insertions(table, columns, rows)
        yield Last(statements)

    def held_keys(self, keys: Sequence[Key]) -> Statement:
        sql = f"SELECT {', '.join(quoted(KEY_COLUMNS))} FROM tasks_app_uniquekey WHERE {IS_NAMED_KEY}"
        return Statement(sql, [json.dumps(keys)])

    def keep_keys(self, freed: Sequence[Row]) -> Statement:
        sql = "UPDATE tasks_app_uniquekey SET ended = %s, ending = %s, ended_in = %s WHERE origin = %s AND ended = 0"
        return Statement(sql, Each([(*end, origin) for origin, *end in freed]))

    def drop_kept(self, keys: Sequence[Key]) -> Statement:
        return Statement(f"DELETE FROM tasks_app_uniquekey WHERE {IS_NAMED_KEY} AND ended > 0", [json.dumps(keys)])

    def election(self) -> Statement:
        # Differs because one process only has the file open for serving.
        return Statement("SELECT 1")

    def take(self, table: str, selected: str, grouped_by: str) -> Steps[Sequence[Row]]:
        # Differs because a DELETE can't be read from here; nobody else writes meanwhile.
        [rows] = yield [Statement(f"SELECT {grouped_by}, {selected} FROM {table} GROUP BY {grouped_by}")]
        if rows:
            yield [Statement(f"DELETE FROM {table}")]
        return rows

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row], clause: str = "") -> Sequence[Statement]:
        return list(_insertions(table, columns, rows, clause))

    def joined(self, column: str) -> str:
        return f"group_concat({column}, ' ')"

    def is_contention(self, error: Exception) -> bool:
        return "locked" in str(error)

    def leaves_outcome_unknown(self, error: BaseException) -> bool:
        return False  # It is in this process: a COMMIT that fails has not happened.


def _insertions(table: str, columns: Sequence[str], rows: Sequence[Row], clause: str = "") -> Iterator[Statement]:
    if not rows:
        return
    places = ", ".join(["%s"] * len(columns))
    sql = f"INSERT INTO {table} ({', '.join(quoted(columns))}) VALUES "
    if len(rows) <= FEW:
        # Always the same text, which is compiled once.
        yield Statement(f"{sql}({places}) {clause}", Each(rows))
        return
    # More in one step: Python's lock is let go for each, so that beside a busy event loop each row may cost a turn.
    # SQLite takes 32 766 parameters a statement.
    most = 32_000 // len(columns)
    for start in range(0, len(rows), most):
        chunk = rows[start : start + most]
        yield Statement(
            f"{sql}{', '.join([f'({places})'] * len(chunk))} {clause}", [value for row in chunk for value in row]
        )
