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
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import astuple, dataclass, field
from enum import Enum
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, IntegrityError, InterfaceError, OperationalError, connections, transaction

from . import kept_answers, retention
from .candidate_pools import CANDIDATES, NO_MARK_MS, Pools
from .errors import CommitRefused, CommitUnknown, KeyReused, StoreBusy, StoreUnavailable
from .operations import NOBODY, Claim, Commit, Effect, Operation, Order, Query, Refusal, Supply, TaskRecord
from .payloads import OWN_ID, PAYLOAD_BYTES, whole_data
from .rules import World, decide, is_held
from .tally import COUNTERS, NUMBERS, deltas_of, text_of

PATIENCE_S = 5.0  # How long an operation waits for rows that somebody else's transaction holds.
HOUSEKEEPING_LOCK = 0x7A5C_5703  # Any number that nobody else takes a lock by.
ID_JUMP = 2**32  # Far beyond any id that a lost end of the log may have given out.

COLUMNS = TaskRecord._fields
# What the trail keeps of a task that ended; then how it ended.
KEPT_COLUMNS = tuple(name for name in COLUMNS if name not in ("data", "data_type", "labels", "payload"))
# An answer to keep; then the places of its tasks among the drafts.
KEPT_ANSWER_COLUMNS = ("key", "digest", "at_ms", "answer")
ANSWERED_COLUMNS = (*KEPT_ANSWER_COLUMNS, "first", "last")
# By how much a batch changes the numbers of a group; the minute is of its time.
DELTA_COLUMNS = ("group", "minute", *NUMBERS, *COUNTERS)
# What a bulk operation keeps of a task, for its undo.
ITEM_COLUMNS = (
    *("operation", "origin", "task", "outcome", "why", "commit"),
    *("group", "available_at_ms", "leased_since_ms", "error", "labels", "priority", "claims", "created_at_ms"),
    *("data", "data_type"),
)
MINUTE_MS = 60_000
ENDING_COLUMNS = ("ended_at_ms", "ended_by_commit", "ended_by", "ending", "operator", "reason", "successor")
ENDED_COLUMNS = (*KEPT_COLUMNS, *ENDING_COLUMNS)

DATA = COLUMNS.index("data")
LABELS = COLUMNS.index("labels")
ORIGIN = COLUMNS.index("origin")
MADE_BY_COMMIT, PAYLOAD = COLUMNS.index("made_by_commit"), COLUMNS.index("payload")  # The last two.

# A paused group has no priorities, so that claims find nothing in it. Looked at once a scan.
IS_RUNNING = 'NOT EXISTS (SELECT 1 FROM tasks_app_pausedgroup WHERE "group" = %s)'

# Tasks that queries may take though their time has not come by the store's clock; see rules.is_held.
IS_NOT_HELD = f"leased_since_ms = 0 OR owner = {NOBODY}"

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


Decided = list[TaskRecord] | Refusal | KeyReused
Outcome = Decided | Undecided


@dataclass(slots=True)
class Seen:
    """What a transaction found when it looked."""

    now_ms: int
    named: Mapping[int, TaskRecord]
    candidates: dict[str, list[TaskRecord]]  # By group, locked, the best first.
    commits: Sequence[int]  # A number for each operation, should it come to a commit.
    kept: Mapping[str, tuple[str, Decided]]  # By key: the digest of the request, and its answer.
    locked: set[int] = field(default_factory=set)  # Named tasks that are there, but locked by others.
    exhausted: set[str] = field(default_factory=set)  # Groups that hold nothing to claim beside the candidates.
    earliest: dict[str, list[TaskRecord]] = field(default_factory=dict)  # By group, locked for queries, in their order.
    first: dict[str, list[TaskRecord]] = field(default_factory=dict)  # By group, one or none, for those that only read.


@dataclass(slots=True)
class Written:
    """The rows that the effects of a batch come to, before they have ids."""

    removed: list[int] = field(default_factory=list)
    drafts: list[TaskRecord] = field(default_factory=list)
    ended: list[Row] = field(default_factory=list)  # KEPT_COLUMNS, ENDING_COLUMNS; successor: a place in drafts.
    payloads_gone: list[int] = field(default_factory=list)
    kept: list[Row] = field(default_factory=list)  # KEPT_ANSWER_COLUMNS; the last two bound its places in drafts.
    deltas: list[Row] = field(default_factory=list)  # DELTA_COLUMNS
    items: list[Row] = field(default_factory=list)  # ITEM_COLUMNS

    def __bool__(self) -> bool:
        return bool(self.removed or self.drafts or self.kept)


@dataclass(slots=True)
class Plan:
    """What a transaction has decided and is about to write."""

    outcomes: Sequence[Effect | Outcome]
    written: Written
    now_ms: int

    def supply(self) -> Supply:
        """What it adds that can be claimed, now or later."""
        available, next_in_ms = Counter[str](), dict[str, int]()
        for draft in self.written.drafts:
            in_ms = draft.available_at_ms - self.now_ms
            if in_ms <= 0:
                available[draft.group] += 1
            else:
                next_in_ms[draft.group] = min(in_ms, next_in_ms.get(draft.group, in_ms))
        return Supply(available=available, next_in_ms=next_in_ms, gone=frozenset(self.written.removed))

    def outcomes_with(self, ids: Sequence[int]) -> list[Outcome]:
        """What to answer, now that the drafts have ids."""
        drafts = self.written.drafts
        tasks = (_with_id(draft, task_id) for draft, task_id in zip(drafts, ids, strict=True))
        return [
            list(islice(tasks, len(outcome.drafts))) if isinstance(outcome, Effect) else outcome
            for outcome in self.outcomes
        ]


def transact(operations: Sequence[Operation], dialect: Dialect) -> Steps[list[Outcome]]:
    """The steps of one transaction, from its first look to its last write, for operations in order."""
    plan = yield from look_and_decide(operations, dialect)
    ids = (yield from dialect.write(plan.written)) if plan.written else ()
    return plan.outcomes_with(ids)


def look_and_decide(operations: Sequence[Operation], dialect: Dialect) -> Steps[Plan]:
    """Lock and read what the operations need, and say what comes of each."""
    seen = yield from dialect.look(operations)
    outcomes: list[Effect | Outcome | None] = [_known(operation, seen) for operation in operations]
    _put_off_repeated_keys(operations, outcomes)
    open_places = [place for place, outcome in enumerate(outcomes) if outcome is None]
    world = World(seen.now_ms, seen.named, seen.candidates, seen.earliest)
    answers = decide([operations[place] for place in open_places], world)
    for place, answer in zip(open_places, answers, strict=True):
        outcomes[place] = answer
    known = cast("list[Effect | Outcome]", outcomes)
    yield from _doubt_empty_claims(operations, known, seen, dialect)
    return Plan(known, _written(operations, known, seen), seen.now_ms)


def _known(operation: Operation, seen: Seen) -> Outcome | None:
    """What is known about an operation without deciding: it was answered before, or it can't be decided now."""
    if operation.key and operation.key.key in seen.kept:
        digest, answer = seen.kept[operation.key.key]
        return answer if digest == operation.key.digest else KeyReused("this key came with another request before")
    if seen.first and isinstance(operation, Query) and operation.only_reads:
        return _read(operation, seen)
    return Undecided.LOCKED if _names_locked(operation, seen.locked) else None


def _read(query: Query, seen: Seen) -> list[TaskRecord]:
    """What it finds, as it was before the batch."""
    tasks = [task for group in query.reachable for task in seen.first[group]]
    return [task for task in tasks if task.available_at_ms <= (query.at_ms or seen.now_ms)]


def _put_off_repeated_keys(operations: Sequence[Operation], outcomes: list[Effect | Outcome | None]) -> None:
    """Of two operations with one key in a batch the second will find the first one's answer in the next."""
    seen_keys: set[str] = set()
    for place, operation in enumerate(operations):
        if operation.key and outcomes[place] is None:
            if operation.key.key in seen_keys:
                outcomes[place] = Undecided.CONTENDED
            seen_keys.add(operation.key.key)


def _names_locked(operation: Operation, locked: set[int]) -> bool:
    return bool(locked) and not locked.isdisjoint((*_changed_ids([operation]), *operation.depends))


def _doubt_empty_claims(
    operations: Sequence[Operation],
    outcomes: list[Effect | Outcome],
    seen: Seen,
    dialect: Dialect,
) -> Steps[None]:
    """A claim may say "nothing" only when there was nothing that skipped locks could hide."""
    found_nothing = {
        place: operation
        for place, (operation, outcome) in enumerate(zip(operations, outcomes, strict=True))
        if isinstance(operation, Claim) and _is_empty(outcome)
    }
    if not found_nothing:
        return
    drafts = [draft for outcome in outcomes if isinstance(outcome, Effect) for draft in outcome.drafts]
    queries = {place: query for place, query in found_nothing.items() if isinstance(query, Query)}
    if queries:
        yield from _doubt_empty_queries(queries, drafts, outcomes, seen, dialect)
    empty = {place: claim.reachable for place, claim in found_nothing.items() if place not in queries}
    if not empty:
        return
    filling = {draft.group for draft in drafts if draft.available_at_ms <= seen.now_ms}
    asked = {group for groups in empty.values() for group in groups}
    filling |= yield from dialect.groups_with_more(asked - filling - seen.exhausted, seen)
    for place, groups in empty.items():
        if not filling.isdisjoint(groups):
            outcomes[place] = Undecided.CONTENDED


def _is_empty(outcome: Effect | Outcome) -> bool:
    return not outcome.drafts if isinstance(outcome, Effect) else outcome == []


def _doubt_empty_queries(
    queries: Mapping[int, Query],
    drafts: Iterable[TaskRecord],
    outcomes: list[Effect | Outcome],
    seen: Seen,
    dialect: Dialect,
) -> Steps[None]:
    """The same for queries, each of which has a moment of its own."""
    added = _earliest_by_group(draft for draft in drafts if not is_held(draft, seen.now_ms))
    hidden = yield from dialect.earliest_besides([query for query in queries.values() if not query.only_reads], seen)
    for place, query in queries.items():
        known = [added] if query.only_reads else [added, hidden]
        times_ms = [times[group] for times in known for group in query.reachable if group in times]
        if times_ms and min(times_ms) <= (query.at_ms or seen.now_ms):
            outcomes[place] = Undecided.CONTENDED


def _earliest_by_group(tasks: Iterable[TaskRecord]) -> dict[str, int]:
    earliest: dict[str, int] = {}
    for task in tasks:
        earliest[task.group] = min(task.available_at_ms, earliest.get(task.group, task.available_at_ms))
    return earliest


def _written(operations: Sequence[Operation], outcomes: Sequence[Effect | Outcome], seen: Seen) -> Written:
    written = Written(deltas=_deltas([outcome for outcome in outcomes if isinstance(outcome, Effect)], seen.now_ms))
    history = retention.kept()
    for operation, outcome, commit in zip(operations, outcomes, seen.commits, strict=True):
        first = len(written.drafts)
        if isinstance(outcome, Effect):
            _add_rows(outcome, commit, seen.now_ms, written, history)
            if outcome.operator and outcome.operator.bulk:
                written.items += _items(outcome, outcome.operator.bulk, commit)
        if operation.key and operation.key.key not in seen.kept and _is_worth_keeping(operation, outcome):
            text = kept_answers.text_of(outcome if isinstance(outcome, Refusal) else written.drafts[first:])
            written.kept.append((*astuple(operation.key), seen.now_ms, text, first, len(written.drafts)))
    return written


def _deltas(effects: Sequence[Effect], now_ms: int) -> list[Row]:
    return [
        (group, now_ms // MINUTE_MS, *delta.numbers, *map(text_of, delta.counters))
        for group, delta in deltas_of(effects, now_ms).items()
    ]


def _is_worth_keeping(operation: Operation, outcome: Effect | Outcome) -> bool:
    if isinstance(operation, Claim) and isinstance(outcome, Effect):
        return bool(outcome.drafts)  # Who found nothing asks again because it hopes for something.
    return isinstance(outcome, Effect | Refusal)


def _add_rows(effect: Effect, commit: int, now_ms: int, written: Written, history: str) -> None:
    operator, reason = (effect.operator.name, effect.operator.reason) if effect.operator else ("", "")
    first = len(written.drafts)
    written.drafts += [_numbered(draft, commit) for draft in effect.drafts]
    for task, ending, place in effect.removals:
        written.removed.append(task.id)
        if task.payload and (place is None or effect.drafts[place].payload != task.payload):
            written.payloads_gone.append(task.payload)
        if history == retention.OFF or (place is not None and history == retention.FINISHED):
            continue
        successor = None if place is None else first + place
        written.ended.append((*_kept(task), now_ms, commit, effect.owner, ending.value, operator, reason, successor))


def _items(effect: Effect, operation: int, commit: int) -> Iterator[Row]:
    """What the effect of a commit of the bulk operation has done, and to what."""
    replacing = {removal.successor for removal in effect.removals}
    for task, _, successor in effect.removals:
        yield _item(task, operation, commit, keeps_data=successor is None)
    for place, draft in enumerate(effect.drafts):
        if place not in replacing:  # It comes back: there was nothing that it replaces.
            yield _item(draft, operation, commit, keeps_data=False)


def _item(task: TaskRecord, operation: int, commit: int, *, keeps_data: bool) -> Row:
    return (
        *(operation, task.origin, task.id, "done", "", commit),
        *(task.group, task.available_at_ms, task.leased_since_ms, task.error, json.dumps(dict(task.labels))),
        *(task.priority, task.claims, task.created_at_ms),
        *((task.data, task.data_type) if keeps_data else (b"", "")),
    )


# Not `_replace` or `_make`, which take three times as long; three records are made for each claim.
_made: Callable[[Row], TaskRecord] = partial(tuple.__new__, TaskRecord)

# What of a task's row the trail keeps.
_kept = itemgetter(*map(COLUMNS.index, KEPT_COLUMNS))


def _numbered(draft: TaskRecord, commit: int) -> TaskRecord:
    payload = draft.payload if len(draft.data) < PAYLOAD_BYTES else draft.payload or OWN_ID
    return _made((*draft[:MADE_BY_COMMIT], commit, payload))


def _with_id(draft: TaskRecord, task_id: int) -> TaskRecord:
    payload = task_id if draft.payload == OWN_ID else draft.payload
    return _made((task_id, *draft[1:ORIGIN], draft.origin or task_id, *draft[ORIGIN + 1 : PAYLOAD], payload))


def _row(task: TaskRecord) -> Row:
    """The values in the order of COLUMNS, as the database takes them."""
    labels = json.dumps(dict(task.labels)) if task.labels else "{}"
    data = b"" if task.payload > 0 else task.data
    return (*task[:DATA], data, *task[DATA + 1 : LABELS], labels, *task[LABELS + 1 :])


def _record(row: Row) -> TaskRecord:
    labels = json.loads(row[LABELS]) if row[LABELS] != "{}" else {}
    return _made((*row[:LABELS], labels, *row[LABELS + 1 :]))


def _keys(operations: Iterable[Operation]) -> list[str]:
    return [operation.key.key for operation in operations if operation.key]


def _kept_by_key(rows: Iterable[Row]) -> Mapping[str, tuple[str, Decided]]:
    return {
        key: (digest, kept_answers.answer_in(answer, [int(task_id) for task_id in ids.split(",") if task_id]))
        for key, digest, answer, ids in rows
    }


def _changed_ids(operations: Iterable[Operation]) -> set[int]:
    return {task_id for operation in operations if isinstance(operation, Commit) for task_id in operation.changed_ids}


def _depended_ids(operations: Iterable[Operation]) -> set[int]:
    return {task_id for operation in operations for task_id in operation.depends}


def granted(answer: Decided) -> list[TaskRecord]:
    """The new tasks. Raises CommitRefused or KeyReused when that is the answer."""
    if isinstance(answer, Refusal):
        raise CommitRefused(answer)
    if isinstance(answer, KeyReused):
        raise answer
    return answer


# ---- Within Django: the caller's transaction, or one of our own


def run(operations: Sequence[Operation], using: str = DEFAULT_DB_ALIAS) -> list[Decided]:
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
        except (_Again, OperationalError, InterfaceError, IntegrityError) as error:
            if isinstance(error, IntegrityError) and not dialect.is_contention(error):
                raise
            if not (isinstance(error, _Again) or dialect.is_contention(error)):
                raise StoreUnavailable("the database can't be reached or can't write: try again later") from error
            if time.monotonic() + pause_s > deadline:
                raise StoreBusy("the tasks are locked by another transaction: try again later") from error
        time.sleep(pause_s)
    raise AssertionError("the pauses never end")


class _Again(Exception):
    """An operation could not be decided, or its turn did not come: let go of the locks and try again."""


def _transaction(operations: Sequence[Operation], dialect: Dialect) -> list[Decided]:
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


def _decided(outcomes: Iterable[Outcome]) -> list[Decided]:
    decided: list[Decided] = []
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
    rows = rows_at_once(
        ["name"],
        """
        WITH RECURSIVE names(name) AS (
            SELECT min("group") FROM tasks_app_task
            UNION ALL
            SELECT (SELECT min("group") FROM tasks_app_task WHERE "group" > names.name)
            FROM names
            WHERE names.name IS NOT NULL
        )
        SELECT name FROM names WHERE name IS NOT NULL
        """,
        using=using,
    )
    return sorted(name for (name,) in rows)


def rows_at_once(
    columns: Sequence[str], sql: str, parameters: Sequence[Any] = (), *, using: str = DEFAULT_DB_ALIAS
) -> Sequence[Row]:
    """The rows of a query of many, with text and integers in these columns, in no particular order."""
    return dialect_of(using).rows_at_once(columns, sql, parameters)


def now_ms(using: str = DEFAULT_DB_ALIAS) -> int:
    """The time by the database's clock."""
    return dialect_of(using).now_ms()


def newest_id(using: str = DEFAULT_DB_ALIAS) -> int:
    """The largest id that was given out; 0 in a store that was never used."""
    dialect = dialect_of(using)
    [(newest,)] = dialect.rows(dialect.newest_id)
    return int(newest)


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

    # In the order of COLUMNS, each task with its data.
    selected: ClassVar[str] = ", ".join(
        whole_data("tasks_app_task") if name == "data" else f'"{name}"' for name in COLUMNS
    )
    clock: ClassVar[str]  # An expression: the time in milliseconds.
    time_of: ClassVar[str]  # An expression: what a DateTimeField holds, of one parameter: seconds since the Epoch.
    newest_id: ClassVar[str]  # A query for the largest id that was given out. The trail may not know it any more.
    hurry: ClassVar[Sequence[str]]  # Statements after which the session waits a second for others, at most.
    is_key_named: ClassVar[str]
    later_of: ClassVar[str]  # A function: the greater of two numbers.
    names: ClassVar[str]  # A table with the column `name`, of one parameter: `list_of_names(names)`.
    is_listed: ClassVar[str]  # A condition that takes one parameter: `list_of(ids)`.
    has_history_days: ClassVar[bool] = False  # Whether the trail has a table for each day (history_days.py).

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

    def rows_at_once(self, columns: Sequence[str], sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
        return self.rows(sql, parameters)

    def now_ms(self) -> int:
        [(now_ms,)] = self.rows(f"SELECT {self.clock}")
        return int(now_ms)

    def tasks_of(self, ids: Iterable[int], ending: str = "") -> Statement:
        sql = f"SELECT {self.selected} FROM tasks_app_task WHERE {self.is_listed} {ending}"
        return Statement(sql, [self.list_of(ids)])

    def kept_answers(self, keys: Iterable[str]) -> Statement:
        sql = f"SELECT key, digest, answer, ids FROM tasks_app_keptanswer WHERE {self.is_key_named}"
        return Statement(sql, [self.list_of_names(keys)])

    @abstractmethod
    def list_of_names(self, names: Iterable[str]) -> Any:
        """The names as one parameter."""

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

    def groups_with_more(self, groups: set[str], seen: Seen) -> Steps[set[str]]:
        """Those of the groups that hold available tasks beside the candidates that were seen."""
        if not groups:
            return set()
        taken = [task.id for group in groups for task in seen.candidates[group]]
        [rows] = yield [
            Statement(
                f"""
                SELECT name
                FROM {self.names}
                WHERE EXISTS (
                    SELECT 1 FROM tasks_app_task
                    WHERE "group" = name AND available_at_ms <= %s AND NOT {self.is_listed}
                ) AND NOT EXISTS (SELECT 1 FROM tasks_app_pausedgroup WHERE "group" = name)
                """,
                [self.list_of_names(groups), seen.now_ms, self.list_of(taken)],
            )
        ]
        return {name for (name,) in rows}

    def earliest(self, group: str, asked: Queried, from_ms: int = NO_MARK_MS, ending: str = "") -> Statement:
        """The longest available tasks of the group, as many as queries take: up to the latest of their moments."""
        # Time and id are compared together, because only `task_listing` has them in this order.
        return Statement(
            f"""
            SELECT {self.selected}
            FROM tasks_app_task
            WHERE "group" = %s AND (available_at_ms, id) >= (%s, 0)
                AND available_at_ms <= (SELECT {self.later_of}({self.clock}, %s))
                AND (available_at_ms <= (SELECT {self.clock}) OR {IS_NOT_HELD}) AND {IS_RUNNING}
            ORDER BY available_at_ms, id
            LIMIT %s
            {ending}
            """,
            [group, from_ms, asked.latest_ms, group, asked.tasks],
        )

    def first_of(self, group: str) -> Statement:
        """The task of the group that is available first, or will be; also in a paused one."""
        sql = f'SELECT {self.selected} FROM tasks_app_task WHERE "group" = %s ORDER BY available_at_ms, id LIMIT 1'
        return Statement(sql, [group])

    def earliest_besides(self, queries: Iterable[Query], seen: Seen) -> Steps[dict[str, int]]:
        """When the first task becomes available that queries may take and that was not seen, by group."""
        asked = _queried(queries)
        if not asked:
            return {}
        found = yield [
            Statement(
                f"""
                SELECT available_at_ms
                FROM tasks_app_task
                WHERE "group" = %s AND (available_at_ms, id) >= (%s, 0) AND available_at_ms <= %s
                    AND (available_at_ms <= %s OR {IS_NOT_HELD}) AND {IS_RUNNING} AND NOT {self.is_listed}
                ORDER BY available_at_ms, id
                LIMIT 1
                """,
                [
                    *(group, NO_MARK_MS, max(seen.now_ms, latest.latest_ms), seen.now_ms, group),
                    self.list_of(task.id for task in seen.earliest[group]),
                ],
            )
            for group, latest in asked.items()
        ]
        return {group: rows[0][0] for group, rows in zip(asked, found, strict=True) if rows}

    def supply_of(self, groups: Sequence[str], depends: Iterable[int]) -> Steps[Supply]:
        """What there is to claim in these groups, and which of these ids are not there."""
        rows, gone = yield [
            Statement(
                f"""
                SELECT name, (
                    SELECT count(*)
                    FROM (
                        SELECT 1 FROM tasks_app_task
                        WHERE "group" = name AND available_at_ms <= clock.now_ms
                        LIMIT {CANDIDATES}
                    ) AS available
                ), (
                    SELECT min(available_at_ms) - clock.now_ms FROM tasks_app_task
                    WHERE "group" = name AND available_at_ms > clock.now_ms
                )
                FROM (SELECT {self.clock} AS now_ms) AS clock, {self.names}
                WHERE NOT EXISTS (SELECT 1 FROM tasks_app_pausedgroup WHERE "group" = name)
                """,
                [self.list_of_names(groups)],
            ),
            Statement(
                f"""
                SELECT name
                FROM {self.names}
                WHERE NOT EXISTS (SELECT 1 FROM tasks_app_task WHERE id = CAST(name AS bigint))
                """,
                [self.list_of_names(map(str, depends))],
            ),
        ]
        return Supply(
            available={name: count for name, count, _ in rows if count},
            next_in_ms={name: in_ms for name, _, in_ms in rows if in_ms is not None},
            gone=frozenset(int(name) for (name,) in gone),
        )

    @abstractmethod
    def write(self, written: Written) -> Steps[Sequence[int]]:
        """Delete, insert, and keep the trail. Returns the ids of the drafts: rising, never used before."""

    @abstractmethod
    def election(self) -> Statement:
        """One row with one value: whether this transaction is the one that keeps house now."""

    @abstractmethod
    def take(self, table: str, selected: str, grouped_by: str) -> Steps[Sequence[Row]]:
        """Delete all rows of a table. Returns what is selected of them, a row for each group of them."""

    def replace(self, table: str, columns: Sequence[str], rows: Sequence[Row], key: int) -> Sequence[Statement]:
        """Insert the rows, in place of those that have the same values in the first `key` columns."""
        return self.insert(table, columns, rows, _on_conflict(columns, key, "{name} = excluded.{name}"))

    def add(self, table: str, columns: Sequence[str], rows: Sequence[Row], key: int) -> Sequence[Statement]:
        """Insert the rows; where there is one with the same values in the first `key` columns, add the others to it."""
        return self.insert(
            table, columns, rows, _on_conflict(columns, key, f"{{name}} = {table}.{{name}} + excluded.{{name}}")
        )

    @abstractmethod
    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row], ending: str = "") -> Sequence[Statement]:
        """Insert the rows, no two of which are in conflict. The ending says what to do about those that are there."""

    @abstractmethod
    def joined(self, column: str) -> str:
        """An aggregate: the texts of the column, with spaces between them."""

    @abstractmethod
    def is_contention(self, error: Exception) -> bool:
        """Whether the transaction lost a race that it may win when it is tried again."""

    @abstractmethod
    def is_disconnected(self, error: Exception) -> bool:
        """Whether it is unknown what the database did last."""


def _best_first(rows: Iterable[Row], demand: Demand) -> list[TaskRecord]:
    """The tasks that were locked for claims: by priority, then as the claims asked."""
    tasks = [_record(row) for row in rows]
    tasks.sort(key=lambda _: random.random())  # Half the time of `shuffle`.
    if demand.oldest:
        tasks.sort(key=lambda task: (task.available_at_ms, task.id))
    tasks.sort(key=lambda task: -task.priority)
    return tasks


@dataclass(slots=True)
class Demand:
    """How many tasks of a group the claims of a batch ask for. `oldest`: in order, if one asks for that."""

    limit: int = 0
    oldest: bool = False


@dataclass(slots=True)
class Queried:
    """What the queries of a batch ask of a group: so many tasks to take, available at the latest of their moments."""

    tasks: int = 0
    latest_ms: int = 0
    is_read: bool = False  # One of them only reads.


def _queried(operations: Iterable[Operation]) -> Mapping[str, Queried]:
    queried: dict[str, Queried] = defaultdict(Queried)
    for query in [operation for operation in operations if isinstance(operation, Query)]:
        for group in query.reachable:
            asked = queried[group]
            asked.is_read |= query.only_reads
            asked.tasks += 0 if query.only_reads else query.limit
            asked.latest_ms = max(asked.latest_ms, query.at_ms)
    return queried


def _demands(operations: Iterable[Operation]) -> Mapping[str, Demand]:
    demands: dict[str, Demand] = defaultdict(Demand)
    for operation in operations:
        if isinstance(operation, Claim) and not isinstance(operation, Query):
            for group in operation.reachable:
                demands[group].limit += operation.limit
                demands[group].oldest |= operation.order is Order.OLDEST
    # No group is always the first whose turn it is.
    return dict(random.sample(list(demands.items()), len(demands)))


def _order(demand: Demand) -> str:
    return "available_at_ms, id" if demand.oldest else "random()"


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


def _quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]


def _arrays(columns: Sequence[str]) -> str:
    return ", ".join(f"%s::{POSTGRESQL_TYPES.get(name, 'bigint')}[]" for name in columns)


class PostgreSQL(Dialect):
    hurry = ("SET lock_timeout = '1s'", "SET statement_timeout = '1s'")
    selected = Dialect.selected.replace('"labels"', "labels::text")
    clock = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    time_of = "to_timestamp(%s::bigint)"
    newest_id = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM tasks_app_ids"
    is_listed = "id = ANY(%s::bigint[])"
    is_key_named = "key = ANY(%s::text[])"
    later_of = "greatest"
    has_history_days = True
    names = "unnest(%s::text[]) AS names(name)"
    # The parts of the statement that writes a batch. Drafts are numbered first, all others may ask for the numbers:
    # by their place in an array, as a join would compare each with each, hash and merge joins being switched off.
    drafts = f"""
        drafts AS MATERIALIZED (
            SELECT nextval('tasks_app_ids') AS id, place, {", ".join(_quoted(COLUMNS[1:]))}
            FROM unnest({_arrays(COLUMNS[1:])}) WITH ORDINALITY AS draft({", ".join(_quoted(COLUMNS[1:]))}, place)
        )
    """
    removed = f"removed AS (DELETE FROM tasks_app_task WHERE {is_listed})"
    trail = f"""
        trail AS (
            INSERT INTO tasks_app_endedtask ({", ".join(_quoted(ENDED_COLUMNS))})
            SELECT {", ".join(_quoted(ENDED_COLUMNS[:-1]))}, ids[successor + 1]
            FROM unnest({_arrays(ENDED_COLUMNS)}) AS gone({", ".join(_quoted(ENDED_COLUMNS))}),
                (SELECT array_agg(id ORDER BY place) AS ids FROM drafts) AS numbered
        )
    """
    trail_of_ends = f"""
        trail AS (
            INSERT INTO tasks_app_endedtask ({", ".join(_quoted(ENDED_COLUMNS))})
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
            INSERT INTO tasks_app_countdelta ({", ".join(_quoted(DELTA_COLUMNS))})
            SELECT * FROM unnest({_arrays(DELTA_COLUMNS)})
        )
    """
    itemised = f"""
        itemised AS (
            INSERT INTO tasks_app_bulkitem ({", ".join(_quoted(ITEM_COLUMNS))})
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
        INSERT INTO tasks_app_task ({", ".join(_quoted(COLUMNS))})
        SELECT id, {", ".join(DRAFTED.get(name, f'"{name}"') for name in COLUMNS[1:])}
        FROM drafts
        ORDER BY place
        RETURNING id
    """

    def __init__(self, using: str, *, waits: bool) -> None:
        super().__init__(using, waits=waits)
        self._pools = Pools()

    def list_of(self, ids: Iterable[int]) -> Any:
        return self.array("bigint", list(ids))

    def list_of_names(self, names: Iterable[str]) -> Any:
        return self.array("text", list(names))

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
        queried = _queried(operations)
        taken_from = {group: asked for group, asked in queried.items() if asked.tasks}
        read = [group for group, asked in queried.items() if asked.is_read]
        depended = _depended_ids(operations) - changed
        skip = "" if self.waits else "SKIP LOCKED"
        self._pools.begin([*demands, *queried])
        to_read = [group for group, demand in demands.items() if self._pools.must_read(group, demand.limit)]
        keys = _keys(operations)
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
        named = {task.id: task for rows in islice(found, bool(changed) + bool(depended)) for task in map(_record, rows)}
        candidates = {group: _best_first(next(found), demand) for group, demand in demands.items()}
        for group in to_read:
            self._pools.note(group, next(found), (task.id for task in candidates[group]))
        earliest = {group: [*map(_record, next(found))] for group in taken_from}
        for group, tasks in earliest.items():
            self._pools.note_earliest(group, tasks, queried[group].tasks)
        first = {group: [*map(_record, next(found))] for group in read}
        kept = next(found) if keys else ()
        numbers = next(found)
        if not _is_log_intact(numbers):
            yield from self._jump_after_lost_log()
            [numbers] = yield [self._time_and_numbers(len(operations))]
        missing = (changed | depended) - named.keys()
        seen = Seen(
            *(numbers[0][0], named, candidates, [number for *_, number in numbers], _kept_by_key(kept)),
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
                SELECT id FROM ({self._available}) AS candidates ORDER BY priority DESC, {_order(demand)} LIMIT %s
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
                WHERE id = ANY(ARRAY(SELECT id FROM ({self._available}) AS candidates)) AND id <> ALL(%s::bigint[])
                ORDER BY priority DESC, {_order(demand)}
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
            yield self.drafts, self._columns(COLUMNS[1:], [_row(draft)[1:] for draft in written.drafts])
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
        return Statement("SELECT pg_try_advisory_xact_lock(%s)", [HOUSEKEEPING_LOCK])

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
            INSERT INTO {table} ({", ".join(_quoted(columns))})
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
            "23505",  # Another process has just kept an answer under the same key: it is found now.
        )  # fmt: skip

    def is_disconnected(self, error: Exception) -> bool:
        state = _sqlstate(error)
        return state is None or state.startswith(("08", "57"))


def _is_log_intact(numbers: Sequence[Row]) -> bool:
    return all(is_intact for _, is_intact, _ in numbers)


def _sqlstate(error: BaseException) -> str | None:
    return getattr(error, "sqlstate", None) or getattr(error.__cause__, "sqlstate", None)


class SQLite(Dialect):
    """One writer at a time: no row locks, because BEGIN IMMEDIATE has locked the whole database."""

    hurry = ("PRAGMA busy_timeout = 1000",)
    clock = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
    time_of = "datetime(%s, 'unixepoch')"
    newest_id = "SELECT value FROM tasks_app_counters WHERE name = 'ids'"
    is_listed = "id IN (SELECT value FROM json_each(%s))"
    is_key_named = "key IN (SELECT value FROM json_each(%s))"
    later_of = "max"
    names = "(SELECT value AS name FROM json_each(%s)) AS names"

    _turns: ClassVar[dict[str, threading.Lock]] = defaultdict(threading.Lock)

    def list_of(self, ids: Iterable[int]) -> Any:
        return json.dumps(list(ids))

    def list_of_names(self, names: Iterable[str]) -> Any:
        return json.dumps(list(names))

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

    def preparation(self) -> Sequence[Statement]:
        return ()  # Durability is a property of the connection here: PRAGMA synchronous, in the settings.

    def look(self, operations: Sequence[Operation]) -> Steps[Seen]:
        named = _changed_ids(operations) | _depended_ids(operations)
        [[(now_ms,)]] = yield [Statement(f"SELECT {self.clock}")]
        commits = yield from self._next("commits", len(operations))
        tasks: Sequence[Row] = ()
        if named:
            [tasks] = yield [self.tasks_of(named)]
        kept: Sequence[Row] = ()
        if keys := _keys(operations):
            [kept] = yield [self.kept_answers(keys)]
        candidates = {}
        for group, demand in _demands(operations).items():
            candidates[group] = yield from self._candidates(group, demand, now_ms)
        seen = Seen(now_ms, {row[0]: _record(row) for row in tasks}, candidates, commits, _kept_by_key(kept))
        for group, asked in _queried(operations).items():
            [earliest] = yield [self.earliest(group, asked)]
            seen.earliest[group] = [*map(_record, earliest)]
            if asked.is_read:
                [first] = yield [self.first_of(group)]
                seen.first[group] = [*map(_record, first)]
        return seen

    def _candidates(self, group: str, demand: Demand, now_ms: int) -> Steps[list[TaskRecord]]:
        chosen: list[int] = []
        # Level by level, because there is nearly always one level only.
        [[(priority,)]] = yield [
            Statement(f'SELECT max(priority) FROM tasks_app_task WHERE "group" = %s AND {IS_RUNNING}', [group, group])
        ]
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

    def _next(self, name: str, count: int) -> Steps[range]:
        # Not AUTOINCREMENT: its sequence starts again when Django rebuilds an empty table.
        [[(last,)]] = yield [
            Statement("UPDATE tasks_app_counters SET value = value + %s WHERE name = %s RETURNING value", [count, name])
        ]
        return range(last - count + 1, last + 1)

    def write(self, written: Written) -> Steps[Sequence[int]]:
        ids = yield from self._next("ids", len(written.drafts))
        tasks = [_row(_with_id(draft, task_id)) for draft, task_id in zip(written.drafts, ids, strict=True)]
        payloads = [
            (task_id, draft.data) for draft, task_id in zip(written.drafts, ids, strict=True) if draft.payload == OWN_ID
        ]
        ended = [(*row[:-1], None if row[-1] is None else ids[row[-1]]) for row in written.ended]
        kept = [(*row[:-2], ",".join(map(str, ids[row[-2] : row[-1]]))) for row in written.kept]
        yield [
            Statement(f"DELETE FROM tasks_app_task WHERE {self.is_listed}", [self.list_of(written.removed)]),
            *self._let_go(written.payloads_gone),
            *_insertions("tasks_app_payload", ("id", "data"), payloads),
            *_insertions("tasks_app_task", COLUMNS, tasks),
            *_insertions("tasks_app_endedtask", ENDED_COLUMNS, ended),
            *_insertions("tasks_app_keptanswer", (*KEPT_ANSWER_COLUMNS, "ids"), kept),
            *_insertions("tasks_app_countdelta", DELTA_COLUMNS, written.deltas),
            *_insertions("tasks_app_bulkitem", ITEM_COLUMNS, written.items),
        ]
        return ids

    def _let_go(self, payloads: Sequence[int]) -> Iterator[Statement]:
        if payloads:
            yield Statement(f"DELETE FROM tasks_app_payload WHERE {self.is_listed}", [self.list_of(payloads)])

    def election(self) -> Statement:
        # Differs because one process only has the file open for serving.
        return Statement("SELECT 1")

    def take(self, table: str, selected: str, grouped_by: str) -> Steps[Sequence[Row]]:
        # Differs because a DELETE can't be read from here; nobody else writes meanwhile.
        [rows] = yield [Statement(f"SELECT {grouped_by}, {selected} FROM {table} GROUP BY {grouped_by}")]
        if rows:
            yield [Statement(f"DELETE FROM {table}")]
        return rows

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row], ending: str = "") -> Sequence[Statement]:
        return list(_insertions(table, columns, rows, ending))

    def joined(self, column: str) -> str:
        return f"group_concat({column}, ' ')"

    def is_contention(self, error: Exception) -> bool:
        return "locked" in str(error)

    def is_disconnected(self, error: Exception) -> bool:
        return False  # It is in this process: a COMMIT that fails has not happened.


def _on_conflict(columns: Sequence[str], key: int, change: str) -> str:
    names = _quoted(columns)
    changed = ", ".join(change.format(name=name) for name in names[key:])
    return f"ON CONFLICT ({', '.join(names[:key])}) DO UPDATE SET {changed}"


def _insertions(table: str, columns: Sequence[str], rows: Sequence[Row], ending: str = "") -> Iterator[Statement]:
    places = ", ".join(["%s"] * len(columns))
    sql = f"INSERT INTO {table} ({', '.join(_quoted(columns))}) VALUES "
    # SQLite takes 32 766 parameters a statement.
    most = 32_000 // len(columns)
    for start in range(0, len(rows), most):
        chunk = rows[start : start + most]
        yield Statement(
            f"{sql}{', '.join([f'({places})'] * len(chunk))} {ending}", [value for row in chunk for value in row]
        )


DIALECTS: Mapping[str, type[Dialect]] = {"postgresql": PostgreSQL, "sqlite": SQLite}


def jump_ids_of_sqlite(using: str = DEFAULT_DB_ALIAS) -> None:
    """After an unclean end in opportunistic mode: the disk may have lost ids that a client has seen."""
    _advance_for_certain(ID_JUMP, using)


def flush_sqlite(using: str = DEFAULT_DB_ALIAS) -> None:
    """Bring to the disk what was committed in opportunistic mode. Outside of any transaction."""
    # One commit that waits for the disk takes all before it along. It has to change something, else it writes nothing.
    _advance_for_certain(1, using)


def hurry(using: str = DEFAULT_DB_ALIAS) -> None:
    """This thread's connection waits a moment for others, and no longer: the process is about to end."""
    with connections[using].cursor() as cursor:
        for statement in dialect_of(using).hurry:
            cursor.execute(statement)


def _advance_for_certain(by: int, using: str) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("UPDATE tasks_app_counters SET value = value + %s", [by])
    # The next connection has again what the settings say.
    connections[using].close()
