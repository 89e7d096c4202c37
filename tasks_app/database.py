"""One transaction of the store, and all that differs between PostgreSQL and SQLite.

The transaction is written once, as steps that say which statements to send and are told
what came back. Whoever drives them owns the connection: here it is Django's, within the
caller's transaction or one of our own.

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
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, NamedTuple, TypeVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections, transaction

from .errors import CommitUnknown, StoreBusy, StoreUnavailable
from .operations import Claim, Commit, Effect, Operation, Order, Refusal, TaskRecord
from .rules import World, decide

PATIENCE_S = 5.0  # How long an operation waits for rows that somebody else's transaction holds.
CANDIDATES = 1_000  # A claim chooses among this many of the longest available, so that none starves.
ID_JUMP = 2**32  # Far beyond any id that a lost end of the log may have given out.

COLUMNS = TaskRecord._fields
# What the trail keeps of a task that ended; then how it ended.
KEPT_COLUMNS = tuple(name for name in COLUMNS if name not in ("data", "data_type", "labels"))
ENDING_COLUMNS = ("ended_at_ms", "ended_by_commit", "ended_by", "ending", "operator", "reason", "successor")

LABELS = COLUMNS.index("labels")

Row = tuple[Any, ...]
T = TypeVar("T")


class Statement(NamedTuple):
    """SQL with %s where the parameters go."""

    sql: str
    parameters: Sequence[Any] = ()


# Says which statements to send together, and is told the rows that each gave.
Steps = Generator[Sequence[Statement], Sequence[Sequence[Row]], T]


class Undecided(Enum):
    """What can't be said yet about an operation, because of other transactions. Nothing was changed."""

    LOCKED = "a task that it names is locked"
    CONTENDED = "there is something to claim, but all of it is locked or just being added"


Outcome = list[TaskRecord] | Refusal | Undecided


@dataclass(slots=True)
class Seen:
    """What a transaction found when it looked."""

    now_ms: int
    named: Mapping[int, TaskRecord]
    candidates: dict[str, list[TaskRecord]]  # By group, locked, the best first.
    locked: set[int] = field(default_factory=set)  # Named tasks that are there, but locked by others.
    exhausted: set[str] = field(default_factory=set)  # Groups that hold nothing to claim beside the candidates.


@dataclass(slots=True)
class Written:
    """The rows that the effects of a batch come to, before they have ids."""

    removed: list[int] = field(default_factory=list)
    drafts: list[TaskRecord] = field(default_factory=list)
    ended: list[Row] = field(default_factory=list)  # KEPT_COLUMNS, ENDING_COLUMNS; successor: a place in drafts.


def transact(operations: Sequence[Operation], dialect: Dialect) -> Steps[list[Outcome]]:
    """The steps of one transaction, from its first look to its last write, for operations in order."""
    seen = yield from dialect.look(operations)
    decided = [operation for operation in operations if not _names_locked(operation, seen.locked)]
    answers = iter(decide(decided, World(seen.now_ms, seen.named, seen.candidates)))
    outcomes: list[Effect | Refusal | Undecided] = [
        Undecided.LOCKED if _names_locked(operation, seen.locked) else next(answers) for operation in operations
    ]
    yield from _doubt_empty_claims(operations, outcomes, seen, dialect)
    return (yield from _write(outcomes, seen.now_ms, dialect))


def _names_locked(operation: Operation, locked: set[int]) -> bool:
    return bool(locked) and not locked.isdisjoint((*_changed_ids([operation]), *operation.depends))


def _doubt_empty_claims(
    operations: Sequence[Operation],
    outcomes: list[Effect | Refusal | Undecided],
    seen: Seen,
    dialect: Dialect,
) -> Steps[None]:
    """A claim may say "nothing" only when there was nothing that skipped locks could hide."""
    empty = {
        place: operation.group
        for place, (operation, outcome) in enumerate(zip(operations, outcomes, strict=True))
        if isinstance(operation, Claim) and operation.is_in_scope and isinstance(outcome, Effect) and not outcome.drafts
    }
    if not empty:
        return
    effects = [outcome for outcome in outcomes if isinstance(outcome, Effect)]
    filling = {draft.group for effect in effects for draft in effect.drafts if draft.available_at_ms <= seen.now_ms}
    filling |= yield from dialect.groups_with_more(set(empty.values()) - filling - seen.exhausted, seen)
    for place, group in empty.items():
        if group in filling:
            outcomes[place] = Undecided.CONTENDED


def _write(outcomes: Sequence[Effect | Refusal | Undecided], now_ms: int, dialect: Dialect) -> Steps[list[Outcome]]:
    effects = [outcome for outcome in outcomes if isinstance(outcome, Effect)]
    commits = yield from dialect.number_commits(sum(1 for effect in effects if effect.removals or effect.drafts))
    written = Written()
    for effect in effects:
        if effect.removals or effect.drafts:
            _add_rows(effect, next(commits), now_ms, written)
    ids: Iterator[int] = iter(())
    if written.removed or written.drafts:
        ids = iter((yield from dialect.write(written)))
    made = [_with_id(draft, next(ids)) for draft in written.drafts]
    tasks = iter(made)
    return [[next(tasks) for _ in outcome.drafts] if isinstance(outcome, Effect) else outcome for outcome in outcomes]


def _add_rows(effect: Effect, commit: int, now_ms: int, written: Written) -> None:
    operator, reason = (effect.operator.name, effect.operator.reason) if effect.operator else ("", "")
    first = len(written.drafts)
    written.drafts += [draft._replace(made_by_commit=commit) for draft in effect.drafts]
    for task, ending, place in effect.removals:
        written.removed.append(task.id)
        successor = None if place is None else first + place
        written.ended.append((*_kept(task), now_ms, commit, effect.owner, ending.value, operator, reason, successor))


def _kept(task: TaskRecord) -> Row:
    return tuple(value for name, value in zip(COLUMNS, task, strict=True) if name in KEPT_COLUMNS)


def _with_id(draft: TaskRecord, task_id: int) -> TaskRecord:
    return draft._replace(id=task_id, origin=draft.origin or task_id)


def _row(task: TaskRecord) -> Row:
    """The values in the order of COLUMNS, as the database takes them."""
    labels = json.dumps(dict(task.labels)) if task.labels else "{}"
    return (*task[:LABELS], labels, *task[LABELS + 1 :])


def _record(row: Row) -> TaskRecord:
    task = TaskRecord._make(row)
    labels = json.loads(row[LABELS]) if row[LABELS] != "{}" else {}
    return task._replace(labels=labels, leased=bool(task.leased))


def _changed_ids(operations: Iterable[Operation]) -> set[int]:
    return {task_id for operation in operations if isinstance(operation, Commit) for task_id in operation.changed_ids}


def _depended_ids(operations: Iterable[Operation]) -> set[int]:
    return {task_id for operation in operations for task_id in operation.depends}


# ---- Within Django: the caller's transaction, or one of our own


def run(operations: Sequence[Operation], using: str = DEFAULT_DB_ALIAS) -> list[list[TaskRecord] | Refusal]:
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
        except (_Again, OperationalError, InterfaceError) as error:
            if not (isinstance(error, _Again) or dialect.is_contention(error)):
                raise StoreUnavailable("the database can't be reached or can't write: try again later") from error
            if time.monotonic() + pause_s > deadline:
                raise StoreBusy("the tasks are locked by another transaction: try again later") from error
        time.sleep(pause_s)
    raise AssertionError("the pauses never end")


class _Again(Exception):
    """An operation could not be decided, or its turn did not come: let go of the locks and try again."""


def _transaction(operations: Sequence[Operation], dialect: Dialect) -> list[list[TaskRecord] | Refusal]:
    is_ours = not connections[dialect.using].in_atomic_block
    is_written = False
    try:
        # Within the caller's transaction this is a savepoint, so that trying again lets go of the locks.
        with dialect.turn() if is_ours else nullcontext(), transaction.atomic(using=dialect.using):
            if is_ours:
                dialect.send(dialect.preparation())
            outcomes = _decided(dialect.drive(transact(operations, dialect)))
            is_written = True
        return outcomes
    except (OperationalError, InterfaceError) as error:
        if is_ours and is_written and dialect.is_disconnected(error):
            raise CommitUnknown("the connection to the database was lost during COMMIT") from error
        raise


def _decided(outcomes: Iterable[Outcome]) -> list[list[TaskRecord] | Refusal]:
    decided: list[list[TaskRecord] | Refusal] = []
    for outcome in outcomes:
        if isinstance(outcome, Undecided):
            raise _Again
        decided.append(outcome)
    return decided


def _growing_pauses() -> Iterator[float]:
    pause_s = 0.001
    while True:
        # Random, so that two that ran into each other do not meet again.
        yield pause_s * random.uniform(0.5, 1.5)
        pause_s = min(pause_s * 2, 0.1)


def read(ids: Sequence[int], using: str = DEFAULT_DB_ALIAS) -> list[TaskRecord]:
    """The tasks of these ids that exist, in no particular order."""
    dialect = dialect_of(using)
    return [_record(row) for row in dialect.rows(*dialect.tasks_of(ids))] if ids else []


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


def reading(using: str = DEFAULT_DB_ALIAS) -> AbstractContextManager[Any]:
    """What surrounds a statement whose rows are read bit by bit."""
    return dialect_of(using).reading()


def dialect_of(using: str, *, waits: bool = True) -> Dialect:
    return DIALECTS[connections[using].vendor](using, waits=waits)


def is_opportunistic() -> bool:
    return getattr(settings, "TASKSTORE_DURABILITY", "strict") == "opportunistic"


# ---- The two databases


class Dialect(ABC):
    """What the transaction needs from a database. `waits`: for rows that others have locked."""

    selected: ClassVar[str] = ", ".join(f'"{name}"' for name in COLUMNS)
    clock: ClassVar[str]  # An expression: the time in milliseconds.
    listed: ClassVar[str]  # `id IN <this>` takes one parameter: `list_of(ids)`.

    def __init__(self, using: str, *, waits: bool) -> None:
        self.using = using
        self.waits = waits

    def drive(self, steps: Steps[T]) -> T:
        """Run the steps on Django's connection."""
        answers: Sequence[Sequence[Row]] | None = None
        try:
            while True:
                statements = next(steps) if answers is None else steps.send(answers)
                answers = [self.rows(*statement) for statement in statements]
        except StopIteration as stop:
            result: T = stop.value
            return result

    def send(self, statements: Iterable[Statement]) -> None:
        for statement in statements:
            self.rows(*statement)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        with connections[self.using].cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall()) if cursor.description else []

    def now_ms(self) -> int:
        [(now_ms,)] = self.rows(f"SELECT {self.clock}")
        return int(now_ms)

    def tasks_of(self, ids: Iterable[int], ending: str = "") -> Statement:
        sql = f"SELECT {self.selected} FROM tasks_app_task WHERE id IN {self.listed} {ending}"
        return Statement(sql, [self.list_of(ids)])

    @abstractmethod
    def list_of(self, ids: Iterable[int]) -> Any:
        """The ids as one parameter."""

    @abstractmethod
    def turn(self) -> AbstractContextManager[Any]:
        """Wait for this thread's turn to write, where the database has none that is fair."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Any]:
        """What surrounds a statement whose rows are read bit by bit."""

    @abstractmethod
    def preparation(self) -> Sequence[Statement]:
        """What holds for a transaction of our own."""

    @abstractmethod
    def look(self, operations: Sequence[Operation]) -> Steps[Seen]:
        """Lock and read what the operations name, and tasks for the claims, as many as they ask for."""

    @abstractmethod
    def groups_with_more(self, groups: set[str], seen: Seen) -> Steps[set[str]]:
        """Those of the groups that hold available tasks beside the candidates that were seen."""

    @abstractmethod
    def number_commits(self, count: int) -> Steps[Iterator[int]]:
        """New numbers for commits."""

    @abstractmethod
    def write(self, written: Written) -> Steps[Sequence[int]]:
        """Delete, insert, and keep the trail. Returns the ids of the drafts: rising, never used before."""

    @abstractmethod
    def is_contention(self, error: Exception) -> bool:
        """Whether the transaction lost a race that it may win when it is tried again."""

    @abstractmethod
    def is_disconnected(self, error: Exception) -> bool:
        """Whether it is unknown what the database did last."""


def _best_first(rows: Iterable[Row], demand: Demand) -> list[TaskRecord]:
    """The tasks that were locked for claims: by priority, then as the claims asked."""
    tasks = [_record(row) for row in rows]
    random.shuffle(tasks)
    if demand.oldest:
        tasks.sort(key=lambda task: (task.available_at_ms, task.id))
    tasks.sort(key=lambda task: -task.priority)
    return tasks


@dataclass(slots=True)
class Demand:
    """How many tasks of a group the claims of a batch ask for. `oldest`: in order, if one asks for that."""

    limit: int = 0
    oldest: bool = False


def _demands(operations: Iterable[Operation]) -> Mapping[str, Demand]:
    demands: dict[str, Demand] = defaultdict(Demand)
    for operation in operations:
        if isinstance(operation, Claim) and operation.is_in_scope:
            demands[operation.group].limit += operation.limit
            demands[operation.group].oldest |= operation.order is Order.OLDEST
    return demands


def _order(demand: Demand) -> str:
    return "available_at_ms, id" if demand.oldest else "random()"


class PostgreSQL(Dialect):
    selected = Dialect.selected.replace('"labels"', "labels::text")
    clock = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    listed = "(SELECT unnest(%s::bigint[]))"
    types: ClassVar[Mapping[str, str]] = {
        "data": "bytea",
        "labels": "jsonb",
        "leased": "boolean",
        "priority": "smallint",
        "claims": "integer",
    } | dict.fromkeys(("group", "data_type", "error", "ending", "operator", "reason"), "text")

    def list_of(self, ids: Iterable[int]) -> Any:
        return list(ids)

    def turn(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def reading(self) -> AbstractContextManager[Any]:
        # A cursor outside of a transaction makes the server copy the whole result, and fails behind pgbouncer.
        return transaction.atomic(using=self.using)

    def preparation(self) -> Sequence[Statement]:
        statements = [Statement(f"SET LOCAL lock_timeout = '{int(PATIENCE_S * 1000)}ms'")]
        if is_opportunistic():
            statements.append(Statement("SET LOCAL synchronous_commit = off"))
        return statements

    def look(self, operations: Sequence[Operation]) -> Steps[Seen]:
        changed, demands = _changed_ids(operations), _demands(operations)
        depended = _depended_ids(operations) - changed
        skip = "" if self.waits else "SKIP LOCKED"
        # Each kind in one statement, in id order: two commits that share tasks would deadlock otherwise.
        # Depends are shared, so that a task which every commit depends on serialises nobody.
        statements = [
            *([self.tasks_of(changed, f"ORDER BY id FOR UPDATE {skip}")] if changed else []),
            *([self.tasks_of(depended, f"ORDER BY id FOR KEY SHARE {skip}")] if depended else []),
            *(self._lock_candidates(group, demand) for group, demand in demands.items()),
            # The time comes last: a lease that ran out while this waited for locks has run out.
            Statement(f"SELECT {self.clock}, EXISTS (SELECT FROM tasks_app_log_intact)"),
        ]
        *locked, [(now_ms, is_log_intact)] = yield statements
        if not is_log_intact:
            yield from self._jump_after_lost_log()
        names = locked[: len(locked) - len(demands)]
        named = {task.id: task for rows in names for task in map(_record, rows)}
        candidates = {
            group: _best_first(rows, demand)
            for (group, demand), rows in zip(demands.items(), locked[len(names) :], strict=True)
        }
        missing = (changed | depended) - named.keys()
        seen = Seen(now_ms, named, candidates)
        yield from self._look_behind_locks(demands, seen)
        if missing and not self.waits:
            [rows] = yield [Statement("SELECT id FROM tasks_app_task WHERE id = ANY(%s)", [list(missing)])]
            seen.locked = {task_id for (task_id,) in rows}
        return seen

    def _lock_candidates(self, group: str, demand: Demand) -> Statement:
        # The ids are looked up by an index-only scan and locked by number: the planner
        # would join the whole table otherwise.
        return Statement(
            f"""
            SELECT {self.selected}
            FROM tasks_app_task
            WHERE id = ANY(ARRAY({self._available} ORDER BY priority DESC, {_order(demand)} LIMIT %s))
            FOR UPDATE SKIP LOCKED
            """,
            [group, group, group, demand.limit],
        )

    def _look_behind_locks(self, demands: Mapping[str, Demand], seen: Seen) -> Steps[None]:
        """Where others had locked what was chosen: choose again among what they have not.

        Only there, because it reads many rows. A claim would wait for another client's transaction otherwise.
        """
        short = {group for group, demand in demands.items() if len(seen.candidates[group]) < demand.limit}
        more = sorted((yield from self.groups_with_more(short, seen)))
        seen.exhausted = short.difference(more)
        if not more:
            return
        found = yield [self._lock_others(group, demands[group], seen.candidates[group]) for group in more]
        for group, rows in zip(more, found, strict=True):
            seen.candidates[group] += _best_first(rows, demands[group])

    def _lock_others(self, group: str, demand: Demand, locked: Sequence[TaskRecord]) -> Statement:
        # Rows are locked one by one until there are enough: none is locked that is not needed.
        return Statement(
            f"""
            SELECT {self.selected}
            FROM tasks_app_task
            WHERE id = ANY(ARRAY(
                SELECT id
                FROM tasks_app_task
                WHERE id = ANY(ARRAY({self._available})) AND id <> ALL(%s::bigint[])
                ORDER BY priority DESC, {_order(demand)}
                LIMIT %s
                FOR UPDATE SKIP LOCKED
            ))
            """,
            [group, group, group, [task.id for task in locked], demand.limit - len(locked)],
        )

    @property
    def _available(self) -> str:
        """A query for the ids of the longest available tasks of a group, of each priority; takes the group thrice."""
        # The time is a subquery that is evaluated once: an index scan can't be bounded by a volatile function.
        return f"""
            WITH RECURSIVE priorities(priority) AS (
                SELECT max(priority) FROM tasks_app_task WHERE "group" = %s
                UNION ALL
                SELECT (SELECT max(priority) FROM tasks_app_task
                        WHERE "group" = %s AND priority < priorities.priority)
                FROM priorities
                WHERE priorities.priority IS NOT NULL
            )
            SELECT candidates.id
            FROM priorities, LATERAL (
                SELECT id, available_at_ms
                FROM tasks_app_task
                WHERE "group" = %s
                AND priority = priorities.priority
                AND available_at_ms <= (SELECT {self.clock})
                ORDER BY available_at_ms, id
                LIMIT {CANDIDATES}
            ) AS candidates
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

    def groups_with_more(self, groups: set[str], seen: Seen) -> Steps[set[str]]:
        if not groups:
            return set()
        taken = [task.id for group in groups for task in seen.candidates[group]]
        [rows] = yield [
            Statement(
                """
                SELECT name
                FROM unnest(%s::text[]) AS name
                WHERE EXISTS (
                    SELECT FROM tasks_app_task
                    WHERE "group" = name AND available_at_ms <= %s AND id <> ALL(%s::bigint[])
                )
                """,
                [list(groups), seen.now_ms, taken],
            )
        ]
        return {name for (name,) in rows}

    def number_commits(self, count: int) -> Steps[Iterator[int]]:
        if not count:
            return iter(())
        [rows] = yield [Statement("SELECT nextval('tasks_app_commits') FROM generate_series(1, %s)", [count])]
        return (number for (number,) in rows)

    def write(self, written: Written) -> Steps[Sequence[int]]:
        kept, ending = ", ".join(f'"{name}"' for name in KEPT_COLUMNS), ", ".join(ENDING_COLUMNS[:-1])
        # One statement, so that the ids cost no trip of their own and the trail knows them.
        [rows] = yield [
            Statement(
                f"""
                WITH drafts AS MATERIALIZED (
                    SELECT nextval('tasks_app_ids') AS id, place, {", ".join(_quoted(COLUMNS[1:]))}
                    FROM unnest({self._arrays(COLUMNS[1:])})
                    WITH ORDINALITY AS draft({", ".join(_quoted(COLUMNS[1:]))}, place)
                ), removed AS (
                    DELETE FROM tasks_app_task WHERE id = ANY(%s)
                ), trail AS (
                    INSERT INTO tasks_app_endedtask ({kept}, {ending}, successor)
                    SELECT {", ".join(f"gone.{name}" for name in _quoted((*KEPT_COLUMNS, *ENDING_COLUMNS[:-1])))},
                        drafts.id
                    FROM unnest({self._arrays((*KEPT_COLUMNS, *ENDING_COLUMNS))})
                        AS gone({", ".join(_quoted((*KEPT_COLUMNS, *ENDING_COLUMNS)))})
                    LEFT JOIN drafts ON drafts.place = gone.successor + 1
                )
                INSERT INTO tasks_app_task ({", ".join(_quoted(COLUMNS))})
                SELECT id, {", ".join(_quoted(COLUMNS[1:])).replace('"origin"', "coalesce(nullif(origin, 0), id)")}
                FROM drafts
                ORDER BY place
                RETURNING id
                """,
                [
                    *_columns([_row(draft)[1:] for draft in written.drafts], len(COLUMNS) - 1),
                    written.removed,
                    *_columns(written.ended, len(KEPT_COLUMNS) + len(ENDING_COLUMNS)),
                ],
            )
        ]
        return [task_id for (task_id,) in rows]

    def _arrays(self, columns: Sequence[str]) -> str:
        return ", ".join(f"%s::{self.types.get(name, 'bigint')}[]" for name in columns)

    def is_contention(self, error: Exception) -> bool:
        return _sqlstate(error) in ("40P01", "40001", "55P03")  # Deadlock, serialization failure, lock timeout.

    def is_disconnected(self, error: Exception) -> bool:
        state = _sqlstate(error)
        return state is None or state.startswith(("08", "57"))


def _quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]


def _columns(rows: Sequence[Row], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def _sqlstate(error: BaseException) -> str | None:
    return getattr(error, "sqlstate", None) or getattr(error.__cause__, "sqlstate", None)


class SQLite(Dialect):
    """One writer at a time: no row locks, because BEGIN IMMEDIATE has locked the whole database."""

    clock = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
    listed = "(SELECT value FROM json_each(%s))"

    _turns: ClassVar[dict[str, threading.Lock]] = defaultdict(threading.Lock)

    def list_of(self, ids: Iterable[int]) -> Any:
        return json.dumps(list(ids))

    @contextmanager
    def turn(self) -> Iterator[None]:
        # SQLite's own wait sleeps and looks again, and lets some threads starve.
        turn = self._turns[self.using]
        if not turn.acquire(timeout=PATIENCE_S):
            raise _Again
        try:
            yield
        finally:
            turn.release()

    def reading(self) -> AbstractContextManager[Any]:
        # Differs because a transaction here is a writer's: it would keep all others waiting.
        return nullcontext()

    def preparation(self) -> Sequence[Statement]:
        return ()  # Durability is a property of the connection here: PRAGMA synchronous, in the settings.

    def look(self, operations: Sequence[Operation]) -> Steps[Seen]:
        named = _changed_ids(operations) | _depended_ids(operations)
        [[(now_ms,)]] = yield [Statement(f"SELECT {self.clock}")]
        tasks: Sequence[Row] = ()
        if named:
            [tasks] = yield [self.tasks_of(named)]
        candidates = {}
        for group, demand in _demands(operations).items():
            candidates[group] = yield from self._candidates(group, demand, now_ms)
        return Seen(now_ms, {row[0]: _record(row) for row in tasks}, candidates)

    def _candidates(self, group: str, demand: Demand, now_ms: int) -> Steps[list[TaskRecord]]:
        chosen: list[int] = []
        # Level by level, because there is nearly always one level only.
        [[(priority,)]] = yield [Statement('SELECT max(priority) FROM tasks_app_task WHERE "group" = %s', [group])]
        while priority is not None and len(chosen) < demand.limit:
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
            [[(priority,)]] = yield [
                Statement(
                    'SELECT max(priority) FROM tasks_app_task WHERE "group" = %s AND priority < %s',
                    [group, priority],
                )
            ]
        [rows] = yield [self.tasks_of(chosen)]
        return _best_first(rows, demand)

    def groups_with_more(self, groups: set[str], seen: Seen) -> Steps[set[str]]:
        return set()  # No lock was skipped: there is one writer.
        yield  # Makes these steps, though there are none.

    def number_commits(self, count: int) -> Steps[Iterator[int]]:
        return (yield from self._next("commits", count))

    def _next(self, name: str, count: int) -> Steps[Iterator[int]]:
        # Not AUTOINCREMENT: its sequence starts again when Django rebuilds an empty table.
        if not count:
            return iter(())
        [[(last,)]] = yield [
            Statement("UPDATE tasks_app_counters SET value = value + %s WHERE name = %s RETURNING value", [count, name])
        ]
        return iter(range(last - count + 1, last + 1))

    def write(self, written: Written) -> Steps[Sequence[int]]:
        ids = list((yield from self._next("ids", len(written.drafts))))
        tasks = [_row(_with_id(draft, task_id)) for draft, task_id in zip(written.drafts, ids, strict=True)]
        ended = [(*row[:-1], None if row[-1] is None else ids[row[-1]]) for row in written.ended]
        yield [
            Statement(f"DELETE FROM tasks_app_task WHERE id IN {self.listed}", [self.list_of(written.removed)]),
            *_insertions("tasks_app_task", COLUMNS, tasks),
            *_insertions("tasks_app_endedtask", (*KEPT_COLUMNS, *ENDING_COLUMNS), ended),
        ]
        return ids

    def is_contention(self, error: Exception) -> bool:
        return "locked" in str(error)

    def is_disconnected(self, error: Exception) -> bool:
        return False  # It is in this process: a COMMIT that fails has not happened.


def _insertions(table: str, columns: Sequence[str], rows: Sequence[Row]) -> Iterator[Statement]:
    places = ", ".join(["%s"] * len(columns))
    sql = f"INSERT INTO {table} ({', '.join(_quoted(columns))}) VALUES "
    # SQLite takes 32 766 parameters a statement.
    most = 32_000 // len(columns)
    for start in range(0, len(rows), most):
        chunk = rows[start : start + most]
        yield Statement(sql + ", ".join([f"({places})"] * len(chunk)), [value for row in chunk for value in row])


DIALECTS: Mapping[str, type[Dialect]] = {"postgresql": PostgreSQL, "sqlite": SQLite}


def jump_ids_of_sqlite(using: str = DEFAULT_DB_ALIAS) -> None:
    """After an unclean end in opportunistic mode: the disk may have lost ids that a client has seen."""
    _advance_for_certain(ID_JUMP, using)


def flush_sqlite(using: str = DEFAULT_DB_ALIAS) -> None:
    """Bring to the disk what was committed in opportunistic mode. Outside of any transaction."""
    # One commit that waits for the disk takes all before it along. It has to change something, else it writes nothing.
    _advance_for_certain(1, using)


def _advance_for_certain(by: int, using: str) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("UPDATE tasks_app_counters SET value = value + %s", [by])
    # The next connection has again what the settings say.
    connections[using].close()
