"""One transaction of the store, and all that differs between PostgreSQL and SQLite.

SQL instead of the ORM, because row locks of two strengths in one order, ids that
are never used twice, and inserts of ten thousand rows at once can't be said in it.
"""

from __future__ import annotations

import json
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from typing import Any, ClassVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, OperationalError, connections, transaction

from .errors import CommitUnknown, StoreBusy, StoreUnavailable
from .operations import Claim, Commit, Effect, Operation, Order, Refusal, TaskRecord
from .rules import Answer, World, decide

PATIENCE_S = 5.0  # How long an operation waits for rows that somebody else's transaction holds.
CANDIDATES = 1_000  # A claim chooses among this many of the longest available, so that none starves.
ID_JUMP = 2**32  # Far beyond any id that a lost end of the log may have given out.

COLUMNS = tuple(field.name for field in fields(TaskRecord))
ENDED_COLUMNS = (
    *(name for name in COLUMNS if name not in ("data", "data_type", "labels")),
    "ended_at_ms",
    "ended_by_commit",
    "ended_by",
    "ending",
    "successor",
    "operator",
    "reason",
)

Outcome = list[TaskRecord] | Refusal


def run(operations: Sequence[Operation], using: str = DEFAULT_DB_ALIAS) -> list[Outcome]:
    """Do the operations in order in one transaction, which joins the caller's if there is one.

    Returns for each its new tasks, or why it was refused. Raises StoreBusy when rows
    stay locked, StoreUnavailable when the database can't be reached, CommitUnknown when the
    connection died during COMMIT.
    """
    dialect = dialect_of(using)
    deadline = time.monotonic() + PATIENCE_S
    for pause_s in _growing_pauses():
        try:
            return _transaction(operations, dialect)
        except (_Contended, OperationalError) as error:
            if not (isinstance(error, _Contended) or dialect.is_contention(error)):
                raise StoreUnavailable("the database can't be reached or can't write: try again later") from error
            if time.monotonic() + pause_s > deadline:
                raise StoreBusy("the tasks are locked by another transaction: try again later") from error
        time.sleep(pause_s)
    raise AssertionError("the pauses never end")


def read(ids: Sequence[int], using: str = DEFAULT_DB_ALIAS) -> list[TaskRecord]:
    """The tasks of these ids that exist, in no particular order."""
    dialect = dialect_of(using)
    return dialect.tasks(f"WHERE id IN {dialect.listed}", [dialect.list_of(ids)]) if ids else []


def group_names(using: str = DEFAULT_DB_ALIAS) -> list[str]:
    """The names of the groups that hold a task, sorted by code point."""
    # One index probe a group, where DISTINCT would read the whole index.
    rows = dialect_of(using).rows(
        """
        WITH RECURSIVE names(name) AS (
            SELECT min("group") FROM tasks_app_task
            UNION ALL
            SELECT (SELECT min("group") FROM tasks_app_task WHERE "group" > names.name)
            FROM names
            WHERE names.name IS NOT NULL
        )
        SELECT name FROM names WHERE name IS NOT NULL
        """
    )
    return [name for (name,) in rows]


def now_ms(using: str = DEFAULT_DB_ALIAS) -> int:
    """The time by the database's clock."""
    return dialect_of(using).now_ms()


def dialect_of(using: str) -> Dialect:
    return DIALECTS[connections[using].vendor](using)


class _Contended(Exception):
    """Everything that a claim could take is locked by others: it can't be said yet whether there is nothing."""


def _transaction(operations: Sequence[Operation], dialect: Dialect) -> list[Outcome]:
    is_ours = not connections[dialect.using].in_atomic_block
    is_written = False
    try:
        # Within the caller's transaction this is a savepoint, so that trying again lets go of the locks.
        with (
            dialect.turn() if is_ours else nullcontext(),
            transaction.atomic(using=dialect.using),
        ):
            if is_ours:
                dialect.prepare()
            outcomes = _read_decide_write(operations, dialect)
            is_written = True
        return outcomes
    except OperationalError as error:
        if is_ours and is_written and dialect.is_disconnected(error):
            raise CommitUnknown("the connection to the database was lost during COMMIT") from error
        raise


def _read_decide_write(operations: Sequence[Operation], dialect: Dialect) -> list[Outcome]:
    named = dialect.lock(_changed_ids(operations), _depended_ids(operations))
    # After the locks: a lease that ran out while this waited for them has run out.
    now_ms = dialect.now_ms()
    candidates = {
        place: _candidates(operation, now_ms, dialect)
        for place, operation in enumerate(operations)
        if isinstance(operation, Claim)
    }
    answers = decide(operations, World(now_ms, named, candidates))
    return _write(answers, now_ms, dialect)


def _changed_ids(operations: Iterable[Operation]) -> set[int]:
    return {task_id for operation in operations if isinstance(operation, Commit) for task_id in operation.changed_ids}


def _depended_ids(operations: Iterable[Operation]) -> set[int]:
    return {task_id for operation in operations for task_id in operation.depends}


def _candidates(claim: Claim, now_ms: int, dialect: Dialect) -> list[TaskRecord]:
    """Locked tasks for a claim, the best first; empty only when nothing was available."""
    locked: list[TaskRecord] = []
    was_contended = False
    for ids in _ids_by_priority(claim.group, now_ms, dialect):
        if claim.order is Order.RANDOM:
            random.shuffle(ids)
        while ids and len(locked) < claim.limit:
            missing = claim.limit - len(locked)
            chosen, ids = ids[:missing], ids[missing:]
            taken = dialect.lock_free(chosen)
            was_contended |= len(taken) < len(chosen)
            locked += taken
        if len(locked) == claim.limit:
            break
    if was_contended and not locked:
        raise _Contended
    return locked


def _ids_by_priority(group: str, now_ms: int, dialect: Dialect) -> Iterator[list[int]]:
    """The ids of the longest available tasks, a list for each priority present, the highest first."""
    [(priority,)] = dialect.rows('SELECT max(priority) FROM tasks_app_task WHERE "group" = %s', [group])
    while priority is not None:
        rows = dialect.rows(
            """
            SELECT id
            FROM tasks_app_task
            WHERE "group" = %s AND priority = %s AND available_at_ms <= %s
            ORDER BY available_at_ms, id
            LIMIT %s
            """,
            [group, priority, now_ms, CANDIDATES],
        )
        yield [task_id for (task_id,) in rows]
        [(priority,)] = dialect.rows(
            'SELECT max(priority) FROM tasks_app_task WHERE "group" = %s AND priority < %s',
            [group, priority],
        )


def _write(answers: Sequence[Answer], now_ms: int, dialect: Dialect) -> list[Outcome]:
    effects = [answer for answer in answers if isinstance(answer, Effect) and (answer.removals or answer.drafts)]
    ids = dialect.next_ids(sum(len(effect.drafts) for effect in effects))
    commits = dialect.next_commits(len(effects))
    made: dict[int, list[TaskRecord]] = {}
    ended: list[tuple[Any, ...]] = []
    for effect, commit in zip(effects, commits, strict=True):
        tasks = [_with_id(draft, next(ids), commit) for draft in effect.drafts]
        made[id(effect)] = tasks
        ended += _ended_rows(effect, tasks, commit, now_ms)
    dialect.delete([row[0] for row in ended])
    dialect.insert(
        "tasks_app_task",
        COLUMNS,
        [_row(task) for tasks in made.values() for task in tasks],
    )
    dialect.insert("tasks_app_endedtask", ENDED_COLUMNS, ended)
    return [answer if isinstance(answer, Refusal) else made.get(id(answer), []) for answer in answers]


def _with_id(draft: TaskRecord, task_id: int, commit: int) -> TaskRecord:
    return replace(draft, id=task_id, origin=draft.origin or task_id, made_by_commit=commit)


def _row(task: TaskRecord) -> tuple[Any, ...]:
    return tuple(json.dumps(dict(task.labels)) if name == "labels" else getattr(task, name) for name in COLUMNS)


def _ended_rows(effect: Effect, tasks: Sequence[TaskRecord], commit: int, now_ms: int) -> Iterator[tuple[Any, ...]]:
    operator, reason = (effect.operator.name, effect.operator.reason) if effect.operator else ("", "")
    for removal in effect.removals:
        successor = None if removal.successor is None else tasks[removal.successor].id
        kept = (getattr(removal.task, name) for name in ENDED_COLUMNS[:-7])
        yield (
            *kept,
            now_ms,
            commit,
            effect.owner,
            removal.ending.value,
            successor,
            operator,
            reason,
        )


def _growing_pauses() -> Iterator[float]:
    pause_s = 0.001
    while True:
        # Random, so that two that ran into each other do not meet again.
        yield pause_s * random.uniform(0.5, 1.5)
        pause_s = min(pause_s * 2, 0.1)


class Dialect(ABC):
    """What the transaction needs from a database. One lives as long as one operation."""

    listed: ClassVar[str]  # `id IN <this>` takes one parameter: `list_of(ids)`.

    def __init__(self, using: str) -> None:
        self.using = using

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall())

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql, parameters)

    def tasks(self, condition: str, parameters: Sequence[Any]) -> list[TaskRecord]:
        return [
            _record(row) for row in self.rows(f"SELECT {self.selected} FROM tasks_app_task {condition}", parameters)
        ]

    def delete(self, ids: Sequence[int]) -> None:
        if ids:
            self.execute(
                f"DELETE FROM tasks_app_task WHERE id IN {self.listed}",
                [self.list_of(ids)],
            )

    selected: ClassVar[str] = ", ".join(f'"{name}"' for name in COLUMNS)

    @abstractmethod
    def turn(self) -> AbstractContextManager[Any]:
        """Wait for this thread's turn to write, where the database has none that is fair."""

    @abstractmethod
    def prepare(self) -> None:
        """Set what holds for a transaction of our own."""

    @abstractmethod
    def now_ms(self) -> int:
        """The time by the database's clock."""

    @abstractmethod
    def list_of(self, ids: Iterable[int]) -> Any:
        """The ids as one parameter."""

    @abstractmethod
    def lock(self, changed: set[int], depended: set[int]) -> dict[int, TaskRecord]:
        """Those of the tasks that exist: `changed` for this transaction alone, `depended` against removal."""

    @abstractmethod
    def lock_free(self, ids: Sequence[int]) -> list[TaskRecord]:
        """Those of the tasks that exist and that nobody else has locked, in the order of the ids, locked."""

    @abstractmethod
    def next_ids(self, count: int) -> Iterator[int]:
        """New ids, rising, larger than every id that was visible when the transaction began."""

    @abstractmethod
    def next_commits(self, count: int) -> Iterator[int]:
        """New numbers for commits."""

    @abstractmethod
    def insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows, any number of them."""

    @abstractmethod
    def is_contention(self, error: Exception) -> bool:
        """Whether the transaction lost a race that it may win when it is tried again."""

    @abstractmethod
    def is_disconnected(self, error: Exception) -> bool:
        """Whether it is unknown what the database did last."""


class PostgreSQL(Dialect):
    listed = "(SELECT unnest(%s::bigint[]))"
    selected = Dialect.selected.replace('"labels"', "labels::text")
    types: ClassVar[Mapping[str, str]] = {
        "data": "bytea",
        "labels": "jsonb",
        "leased": "boolean",
        "priority": "smallint",
        "claims": "integer",
    } | dict.fromkeys(("group", "data_type", "error", "ending", "operator", "reason"), "text")

    def turn(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def prepare(self) -> None:
        self.execute(f"SET LOCAL lock_timeout = '{int(PATIENCE_S * 1000)}ms'")
        if is_opportunistic():
            self.execute("SET LOCAL synchronous_commit = off")

    def now_ms(self) -> int:
        [(now_ms,)] = self.rows("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint")
        return int(now_ms)

    def list_of(self, ids: Iterable[int]) -> Any:
        return list(ids)

    def lock(self, changed: set[int], depended: set[int]) -> dict[int, TaskRecord]:
        # Each kind in one statement, in id order: two commits that share tasks would deadlock otherwise.
        # Depends are shared, so that a task which every commit depends on serialises nobody.
        found: list[TaskRecord] = []
        if changed:
            found += self.tasks(f"WHERE id IN {self.listed} ORDER BY id FOR UPDATE", [list(changed)])
        if depended - changed:
            found += self.tasks(
                f"WHERE id IN {self.listed} ORDER BY id FOR KEY SHARE",
                [list(depended - changed)],
            )
        return {task.id: task for task in found}

    def lock_free(self, ids: Sequence[int]) -> list[TaskRecord]:
        locked = self.tasks("WHERE id = ANY(%s) FOR UPDATE SKIP LOCKED", [list(ids)])
        place = {task_id: place for place, task_id in enumerate(ids)}
        return sorted(locked, key=lambda task: place[task.id])

    def next_ids(self, count: int) -> Iterator[int]:
        if count:
            self._jump_after_lost_log()
        return self._next("tasks_app_ids", count)

    def next_commits(self, count: int) -> Iterator[int]:
        return self._next("tasks_app_commits", count)

    def _next(self, sequence: str, count: int) -> Iterator[int]:
        if not count:
            return iter(())
        rows = self.rows(f"SELECT nextval('{sequence}') FROM generate_series(1, %s)", [count])
        return (number for (number,) in rows)

    def _jump_after_lost_log(self) -> None:
        """Jump ahead when the end of the log may be lost, and with it the sequence's last steps.

        PostgreSQL empties an unlogged table after a crash, on a promoted standby and
        in a restored copy, and only then: an empty table says that it happened.
        """
        if self.rows("SELECT FROM tasks_app_log_intact"):
            return
        self.execute("LOCK TABLE tasks_app_log_intact IN EXCLUSIVE MODE")
        if self.rows("SELECT FROM tasks_app_log_intact"):
            return
        # The jump itself must not be lost in the next crash.
        self.execute("SET LOCAL synchronous_commit = on")
        for sequence in ("tasks_app_ids", "tasks_app_commits"):
            self.rows(f"SELECT setval('{sequence}', nextval('{sequence}') + %s)", [ID_JUMP])
        self.execute("INSERT INTO tasks_app_log_intact VALUES (true)")

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        if not rows:
            return
        names = ", ".join(f'"{name}"' for name in columns)
        arrays = ", ".join(f"%s::{self.types.get(name, 'bigint')}[]" for name in columns)
        values = [list(column) for column in zip(*rows, strict=True)]
        self.execute(f"INSERT INTO {table} ({names}) SELECT * FROM unnest({arrays})", values)

    def is_contention(self, error: Exception) -> bool:
        return _sqlstate(error) in (
            "40P01",
            "40001",
            "55P03",
        )  # Deadlock, serialization failure, lock timeout.

    def is_disconnected(self, error: Exception) -> bool:
        state = _sqlstate(error)
        return state is None or state.startswith(("08", "57"))


def _sqlstate(error: Exception) -> str | None:
    return getattr(error.__cause__, "sqlstate", None)


class SQLite(Dialect):
    """One writer at a time: no row locks, because BEGIN IMMEDIATE has locked the whole database."""

    listed = "(SELECT value FROM json_each(%s))"

    _turns: ClassVar[dict[str, threading.Lock]] = defaultdict(threading.Lock)

    def turn(self) -> AbstractContextManager[Any]:
        # SQLite's own wait sleeps and looks again, and lets some threads starve.
        return self._turns[self.using]

    def prepare(self) -> None:
        """Durability is a property of the connection here: PRAGMA synchronous, in the settings."""

    def now_ms(self) -> int:
        [(now_ms,)] = self.rows("SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)")
        return int(now_ms)

    def list_of(self, ids: Iterable[int]) -> Any:
        return json.dumps(list(ids))

    def lock(self, changed: set[int], depended: set[int]) -> dict[int, TaskRecord]:
        named = changed | depended
        found = self.tasks(f"WHERE id IN {self.listed}", [self.list_of(named)]) if named else []
        return {task.id: task for task in found}

    def lock_free(self, ids: Sequence[int]) -> list[TaskRecord]:
        found = self.lock(set(ids), set())
        return [found[task_id] for task_id in ids]

    def next_ids(self, count: int) -> Iterator[int]:
        return self._next("ids", count)

    def next_commits(self, count: int) -> Iterator[int]:
        return self._next("commits", count)

    def _next(self, name: str, count: int) -> Iterator[int]:
        # Not AUTOINCREMENT: its sequence starts again when Django rebuilds an empty table.
        if not count:
            return iter(())
        [(last,)] = self.rows(
            "UPDATE tasks_app_counters SET value = value + %s WHERE name = %s RETURNING value",
            [count, name],
        )
        return iter(range(last - count + 1, last + 1))

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        names = ", ".join(f'"{name}"' for name in columns)
        places = ", ".join(["%s"] * len(columns))
        with connections[self.using].cursor() as cursor:
            cursor.executemany(f"INSERT INTO {table} ({names}) VALUES ({places})", rows)

    def is_contention(self, error: Exception) -> bool:
        return "locked" in str(error)

    def is_disconnected(self, error: Exception) -> bool:
        return False  # It is in this process: a COMMIT that fails has not happened.


DIALECTS: Mapping[str, type[Dialect]] = {"postgresql": PostgreSQL, "sqlite": SQLite}


def jump_ids_of_sqlite(using: str = DEFAULT_DB_ALIAS) -> None:
    """After an unclean end in opportunistic mode: the disk may have lost ids that a client has seen."""
    with connections[using].cursor() as cursor:
        cursor.execute("UPDATE tasks_app_counters SET value = value + %s", [ID_JUMP])


def is_opportunistic() -> bool:
    return getattr(settings, "TASKSTORE_DURABILITY", "strict") == "opportunistic"


def _record(row: tuple[Any, ...]) -> TaskRecord:
    values = dict(zip(COLUMNS, row, strict=True))
    values["labels"] = json.loads(values["labels"])
    values["leased"] = bool(values["leased"])
    return TaskRecord(**values)
