"""The differences between the databases, and what they have in common."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from django.conf import settings
from django.db import connections

from taskstore.types.groups import LATE_MS
from taskstore.types.tasks import NOBODY

from ..core.operations import HeldKey, Key, Operation, Query, Supply
from . import batches
from .claim_pools import CANDIDATES, NO_MARK_MS, Queried, queried_by
from .group_patterns import BEARS_SOME
from .limits import within_limits
from .rows import (
    COLUMNS,
    ITEM_ORIGIN,
    ITEM_UNIQUE,
    KEPT_PAYLOAD_COLUMNS,
    OWN_DATA,
    RECENT_COLUMNS,
    VALUE_COLUMNS,
    Row,
    Statement,
    Steps,
    T,
    quoted,
    record_of,
)
from .transaction_values import Seen, Written

if TYPE_CHECKING:
    from .plain_sets import Sets

PATIENCE_S = 4.5  # How long an operation waits for what somebody else holds: the refusal is there within five seconds.
UNCONFIRMED = "the database did not confirm the COMMIT, so it is unknown whether the change was made"
ID_JUMP = 2**32  # Far beyond any id that a lost end of the log may have given out.

# A paused group has no priorities, so that claims find nothing in it. Looked at once a scan.
IS_RUNNING = 'NOT EXISTS (SELECT 1 FROM tasks_app_pausedgroup WHERE "group" = %s)'

# Tasks that queries may take though their time has not come by the store's clock; see rules.is_held.
IS_NOT_HELD = f"leased_since_ms = 0 OR owner = {NOBODY}"


class Again(Exception):
    """An operation could not be decided, or its turn did not come: let go of the locks and try again."""


def is_opportunistic() -> bool:
    return getattr(settings, "TASKSTORE_DURABILITY", "strict") == "opportunistic"


class Dialect(ABC):
    """Describes a database: what the transaction, searches, the server and backups need from it.

    `waits`: for rows that others have locked.
    """

    name: ClassVar[str]  # For files and messages. Nobody decides by it.
    serves_many: ClassVar[bool]  # Whether several server processes may use the same database.
    collation: ClassVar[str | None] = None  # Orders text by code point; None: the database does so anyway.
    like: ClassVar[str]  # LIKE that takes capitals for small letters.
    patience_s: ClassVar[float] = PATIENCE_S
    # In the order of COLUMNS, for `record_of`.
    selected: ClassVar[str] = ", ".join(OWN_DATA if name == "data" else f'"{name}"' for name in COLUMNS)
    clock: ClassVar[str]  # An expression: the time in milliseconds.
    time_of: ClassVar[str]  # An expression: what a DateTimeField holds, of one parameter: seconds since the Epoch.
    newest_id: ClassVar[str]  # A query for the largest id that was given out. The trail may not know it any more.
    newest_commit: ClassVar[str]  # And for the largest number of a commit.
    limits_version: ClassVar[str]  # An expression: how often limits have been changed.
    limits_changed: ClassVar[str]  # A statement: every transaction reads the limits again, if there ever were any.
    hurry: ClassVar[Sequence[str]]  # Statements after which the session waits a second for others, at most.
    is_key_named: ClassVar[str]
    later_of: ClassVar[str]  # A function: the greater of two numbers.
    names: ClassVar[str]  # A table with the column `name`, of one parameter: `list_of_names(names)`.
    contains: ClassVar[str]  # A condition: the group's name contains the one parameter, small ASCII letters.
    is_not_ascii: ClassVar[str]  # A condition: the group's name has other characters, too.
    label_value: ClassVar[str]  # An expression: the value of the label that is the one parameter; empty without it.
    is_listed: ClassVar[str]  # A condition that takes one parameter: `list_of(ids)`.
    has_history_days: ClassVar[bool] = False  # Whether the trail has a table for each day (history_partitions.py).

    def __init__(self, using: str, *, waits: bool) -> None:
        self.using = using
        self.waits = waits
        self.began_s = time.monotonic()
        self.is_alone = True  # Whether its transactions are those of its operations, and no caller's.

    @property
    def file(self) -> Path | None:
        """The file that is the database; None where a server keeps it."""
        return None

    def own_connection(self, timeout_s: int) -> Any:
        """A connection without the pool, not opened yet, which gives up after this time."""
        return connections[self.using].copy()

    def flaw(self, connection: Any) -> str:
        """Why the database on this open connection can't hold a store, and the remedy; empty when it can."""
        del connection  # Only some databases come in kinds.
        return ""

    def share_claims(self, writers: int, own_class: int) -> None:
        """Prefer tasks that the other writers of this database leave alone, where there are others."""
        del writers, own_class  # Only some databases serve several.

    @property
    def left_s(self) -> float:
        """How long the operation for which this was made may go on waiting."""
        return self.patience_s - (time.monotonic() - self.began_s)

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

    def adding_up(self) -> AbstractContextManager[Any]:
        """For a statement that reads the numbers of many groups."""
        return nullcontext()

    def now_ms(self) -> int:
        [(now_ms,)] = self.rows(f"SELECT {self.clock}")
        return int(now_ms)

    def sets_of(self, operations: Sequence[Operation]) -> Sets | None:
        """How to do some of them without reading what they change; None: there is no such way."""
        return None

    def tasks_of(self, ids: Iterable[int], clause: str = "") -> Statement:
        sql = f"SELECT {self.selected} FROM tasks_app_task WHERE {self.is_listed} {clause}"
        return Statement(sql, [self.list_of(ids)])

    def payloads(self, ids: Iterable[int]) -> Statement:
        return Statement(f"SELECT id, data FROM tasks_app_payload WHERE {self.is_listed}", [self.list_of(ids)])

    def payload(self, payload: int) -> bytes | None:
        """The data of a payload, which may be long; None when it is gone."""
        rows = self.rows(*self.payloads([payload]))
        return bytes(rows[0][1]) if rows else None

    def kept_answers(self, keys: Iterable[str]) -> Statement:
        sql = f"SELECT key, digest, answer, ids FROM tasks_app_keptanswer WHERE {self.is_key_named}"
        return Statement(sql, [self.list_of_names(keys)])

    @abstractmethod
    def held_keys(self, keys: Sequence[Key]) -> Statement:
        """Those of the keys that are held or kept, in the order of KEY_COLUMNS."""

    def note_held(self, rows: Sequence[Row], seen: Seen) -> Steps[None]:
        """Note these keys, and the living tasks that hold them: as they are now, nobody locks them."""
        held = [HeldKey(*row) for row in rows]
        seen.keys = {(each.group, each.key): each for each in held}
        if not (origins := sorted({each.origin for each in held if not each.ended})):
            return
        is_of_chain = self.is_listed.replace("id", "origin", 1)
        later = f"SELECT {self.selected} FROM tasks_app_task WHERE {is_of_chain} AND origin <> id"
        found = yield [self.tasks_of(origins), Statement(later, [self.list_of(origins)])]
        # Where a chain goes on between the two statements, the second one has the newer task.
        seen.holders = {task.origin: task for rows in found for task in map(record_of, rows) if task.unique}

    def note_key_groups(self, written: Written) -> Steps[None]:
        """Complete the items of bulk operations by the groups of the keys, which the rows of tasks do not have."""
        origins = [row[ITEM_ORIGIN] for row in written.items if row[ITEM_UNIQUE]]
        if origins:
            is_of_chain = self.is_listed.replace("id", "origin", 1)
            sql = f'SELECT origin, "group" FROM tasks_app_uniquekey WHERE {is_of_chain} AND ended = 0'
            [rows] = yield [Statement(sql, [self.list_of(origins)])]
            groups: dict[int, str] = dict(rows)
            written.items = [(*row[:-1], groups.get(row[ITEM_ORIGIN], "")) for row in written.items]

    def freeing(self, written: Written) -> Sequence[Statement]:
        """Statements after which the chains that end have let go of their keys, and nobody has those that are taken.

        Data is only marked: whoever is told of a task reads its data after the commit.
        """
        statements = list[Statement]()
        if written.kept_payloads:
            rows = [(payload, *until) for payload, until in sorted(written.kept_payloads.items())]
            table = "tasks_app_keptpayload"
            change = f"{{name}} = {self.later_of}({table}.{{name}}, excluded.{{name}})"
            clause = on_conflict(KEPT_PAYLOAD_COLUMNS, 1, change)
            statements += self.insert(table, KEPT_PAYLOAD_COLUMNS, rows, clause)
        if written.freed:
            is_of_chain = self.is_listed.replace("id", "origin", 1)
            origins = self.list_of([row[0] for row in written.freed])
            statements.append(
                Statement(
                    f"DELETE FROM tasks_app_uniquekey WHERE {is_of_chain} AND ended = 0 AND until_ms <= %s",
                    [origins, written.now_ms],
                )
            )
            statements.append(self.keep_keys(written.freed))
        if written.taken:
            statements.append(self.drop_kept([(group, key) for group, key, *_ in written.taken]))
        return [*statements, *self._limiting(written), *(batches.written(written, self) if written.batches else ())]

    def _limiting(self, written: Written) -> Iterator[Statement]:
        """What is kept for the limits of groups."""
        if written.unlimited:
            sql = f"DELETE FROM tasks_app_limitedtask WHERE {self.is_listed}"
            yield Statement(sql, [self.list_of(written.unlimited)])
        if written.looked_at:
            sql = f"DELETE FROM tasks_app_limitedvalue WHERE {self.is_listed}"
            yield Statement(sql, [self.list_of(written.looked_at)])
        if written.values:
            yield from self.insert("tasks_app_limitedvalue", VALUE_COLUMNS, sorted(written.values))
        for row in written.ahead:
            yield Statement("UPDATE tasks_app_recentclaim SET again_ms = %s WHERE id = %s", row)
        if written.forgotten:
            sql = f"DELETE FROM tasks_app_recentclaim WHERE {self.is_listed}"
            yield Statement(sql, [self.list_of(written.forgotten)])
        yield from self.add("tasks_app_recentclaim", RECENT_COLUMNS, written.claims, 3)

    @abstractmethod
    def keep_keys(self, freed: Sequence[Row]) -> Statement:
        """Note how the chains ended whose keys are kept from others for a time. `freed`: FREED_COLUMNS."""

    @abstractmethod
    def drop_kept(self, keys: Sequence[Key]) -> Statement:
        """Delete those of the keys whose chains have ended."""

    def probe(self) -> Steps[None]:
        """Write a row that is gone at the end of the transaction: to find out whether anything can be written."""
        key = f"probe/{uuid4()}"  # No holder of a key has this name.
        sql = "INSERT INTO tasks_app_keptanswer (key, digest, at_ms, answer, ids) VALUES (%s, '', 0, '', '')"
        yield [Statement(sql, [key]), Statement("DELETE FROM tasks_app_keptanswer WHERE key = %s", [key])]

    def by_code_point(self, text: str) -> str:
        """An expression: the text, compared by code point."""
        return f'({text}) COLLATE "{self.collation}"' if self.collation else f"({text})"

    def bears(self, name: str, value: str | None) -> tuple[str, tuple[str, ...]]:
        """A condition, and its parameters: the task has this label; `value` None: whatever its value."""
        sql, parameters = self._has_label(name, value)
        return f"{BEARS_SOME} AND {sql}", parameters

    def label(self, name: str) -> str:
        """An expression: the value of this label, which is one of the store's own; empty text without it."""
        return f"CASE WHEN {BEARS_SOME} THEN coalesce({self._label(name)}, '') ELSE '' END"

    @abstractmethod
    def _has_label(self, name: str, value: str | None) -> tuple[str, tuple[str, ...]]: ...

    @abstractmethod
    def _label(self, name: str) -> str: ...

    @abstractmethod
    def holds(self, data: str) -> str:
        """A condition: the data, an expression, holds the bytes that are the one parameter."""

    @abstractmethod
    def lock(self, number: int) -> Sequence[Statement]:
        """Wait until no other transaction has locked this number, and lock it until this one ends."""

    @abstractmethod
    def lock_each(self, numbers: Sequence[int], shared: Sequence[bool]) -> Statement:
        """Lock these numbers until the end of the transaction, some shared with others. A row for each: whether it is.

        Where this waits for locks, each of them is.
        """

    @abstractmethod
    def batch_ids(self, number: int) -> Statement:
        """So many ids for new batches, a row for each."""

    @abstractmethod
    def lock_tasks(self, ids: Iterable[int], seen: Seen) -> Statement:
        """Lock and read those of the tasks that nobody else has locked. Ids that were drawn before are not used."""

    @abstractmethod
    def change_limits(self, wait_ms: int) -> tuple[Sequence[Statement], Sequence[Statement]]:
        """Return the statements before a change of limits, once no other transaction uses them, and those after it.

        Transactions that begin meanwhile wait, too. Whatever waits longer than `wait_ms` for a lock fails.
        """

    @abstractmethod
    def jump_ids(self) -> None:
        """After an unclean end in opportunistic mode: the disk may have lost ids that a client has seen."""

    @abstractmethod
    def flush(self) -> None:
        """Bring to the disk what was committed in opportunistic mode. Outside of any transaction."""

    @abstractmethod
    def go_on_after(self, name: str, number: int) -> Statement:
        """From now on the `ids`, or the numbers of `commits`, are larger than this one, which is above 0."""

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
        """Context for a statement whose rows are read in parts."""

    def bookkeeping(self) -> AbstractContextManager[Any]:
        """Context for writes that may be lost: they wait for no disk and no standby."""
        return nullcontext()

    def confirmation(self) -> AbstractContextManager[Any]:
        """Context for a transaction of our own. Raises CommitUnknown when its COMMIT may not last."""
        return nullcontext()

    def patience(self) -> Iterable[Statement]:
        """Statements after which a transaction of our own waits for locks of others no longer than it may."""
        return ()

    @abstractmethod
    def preparation(self, operations: Sequence[Operation]) -> Iterable[Statement]:
        """What holds for a transaction of our own that does these, and what they name, locked where there are locks.

        Each statement is made when its turn has come: the patience goes down meanwhile.
        """

    @abstractmethod
    def look(self, operations: Sequence[Operation]) -> Steps[Seen]:
        """Lock and read what the operations name, and tasks for the claims, as many as they ask for."""

    def groups_with_more(self, groups: set[str], seen: Seen) -> Steps[set[str]]:
        """Those of the groups that hold available tasks beside the candidates that were seen."""
        if not groups:
            return set()
        # By the time of this look: what took the place of a locked task may be newer than the transaction's time,
        # and where it was locked then, it was too new to be taken.
        names, parameters = self.with_starts(groups)
        taken = [t.id for group in groups for t in seen.candidates[group] if t.available_at_ms <= seen.now_ms]
        [rows] = yield [
            Statement(
                f"""
                SELECT name
                FROM {names}
                WHERE (
                    SELECT 1 FROM tasks_app_task
                    WHERE "group" = name AND available_at_ms BETWEEN start_ms AND (SELECT {self.clock})
                        AND NOT {self.is_listed}
                    LIMIT 1
                ) = 1 AND NOT EXISTS (SELECT 1 FROM tasks_app_pausedgroup WHERE "group" = name)
                """,
                [*parameters, self.list_of(taken)],
            )
        ]
        return {name for (name,) in rows}

    def earliest(self, group: str, asked: Queried, from_ms: int = NO_MARK_MS, clause: str = "") -> Statement:
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
            {clause}
            """,
            [group, from_ms, asked.latest_ms, group, asked.tasks],
        )

    def first_of(self, group: str) -> Statement:
        """The task of the group that is available first, or will be; also in a paused one."""
        sql = f'SELECT {self.selected} FROM tasks_app_task WHERE "group" = %s ORDER BY available_at_ms, id LIMIT 1'
        return Statement(sql, [group])

    def earliest_besides(self, queries: Iterable[Query], seen: Seen) -> Steps[dict[str, tuple[int, int]]]:
        """When the first task becomes available that queries may take and that was not seen, and the time; by group."""
        asked = queried_by(queries)
        if not asked:
            return {}
        found = yield [
            Statement(
                f"""
                SELECT available_at_ms, {self.clock}
                FROM tasks_app_task
                WHERE "group" = %s AND (available_at_ms, id) >= (%s, 0)
                    AND available_at_ms <= (SELECT {self.later_of}({self.clock}, %s))
                    AND (available_at_ms <= (SELECT {self.clock}) OR {IS_NOT_HELD}) AND {IS_RUNNING}
                    AND NOT {self.is_listed}
                ORDER BY available_at_ms, id
                LIMIT 1
                """,
                [*(group, NO_MARK_MS, latest.latest_ms, group), self.list_of(task.id for task in seen.earliest[group])],
            )
            for group, latest in asked.items()
        ]
        return {group: rows[0] for group, rows in zip(asked, found, strict=True) if rows}

    def with_starts(self, groups: Iterable[str]) -> tuple[str, Sequence[Any]]:
        """Return a table of `name` and `start_ms`, from which on to look for available tasks, and its parameters."""
        return f"(SELECT name, {NO_MARK_MS} AS start_ms FROM {self.names}) AS names", [self.list_of_names(groups)]

    def supply_of(self, groups: Sequence[str], depends: Iterable[int], owners: Iterable[int]) -> Steps[Supply]:
        """Find the claimable tasks of these groups, which of these ids are missing, and which owners are late."""
        names, parameters = self.with_starts(groups)
        rows, gone, late = yield [
            Statement(
                f"""
                SELECT name, (
                    SELECT count(*)
                    FROM (
                        SELECT 1 FROM tasks_app_task
                        WHERE "group" = name AND available_at_ms BETWEEN start_ms AND clock.now_ms
                        LIMIT {CANDIDATES}
                    ) AS available
                ), (
                    SELECT min(available_at_ms) - clock.now_ms FROM tasks_app_task
                    WHERE "group" = name AND available_at_ms > clock.now_ms
                )
                FROM (SELECT {self.clock} AS now_ms) AS clock, {names}
                WHERE NOT EXISTS (SELECT 1 FROM tasks_app_pausedgroup WHERE "group" = name)
                """,
                parameters,
            ),
            Statement(
                f"""
                SELECT name
                FROM {self.names}
                WHERE NOT EXISTS (SELECT 1 FROM tasks_app_task WHERE id = CAST(name AS bigint))
                """,
                [self.list_of_names(map(str, depends))],
            ),
            Statement(
                f"""
                SELECT id FROM tasks_app_client
                WHERE id IN (SELECT CAST(names.name AS bigint) FROM {self.names})
                    AND seen_at_ms <= (SELECT {self.clock}) - {LATE_MS}
                """,
                [self.list_of_names(map(str, owners))],
            ),
        ]
        supply = Supply(
            available={name: count for name, count, _ in rows if count},
            next_in_ms={name: in_ms for name, _, in_ms in rows if in_ms is not None},
            gone=frozenset(int(name) for (name,) in gone),
            late=frozenset(client_id for (client_id,) in late),
        )
        return (yield from within_limits(supply, self))

    def new_ids(self, number: int) -> Steps[Sequence[int]]:
        """Draw so many ids: rising, never used before, and larger than those of all that is locked.

        They are for drafts of which the look did not know, or not when it drew the ids.
        """
        raise RuntimeError(f"the look has drawn too few ids for {number} tasks")

    @abstractmethod
    def write(self, written: Written) -> Steps[None]:
        """Delete, insert, and keep the trail."""

    @abstractmethod
    def election(self) -> Statement:
        """One row with one value: whether this transaction is the one that keeps house now."""

    def oldest_transaction(self) -> tuple[int, str]:
        """For how many ms the oldest transaction has kept deleted rows from being removed, and whose it is. 0: none."""
        return 0, ""

    def count_anew(self) -> Steps[None]:
        """Let the database count tables that have filled since it counted them."""
        yield from ()

    @abstractmethod
    def take(self, table: str, selected: str, grouped_by: str) -> Steps[Sequence[Row]]:
        """Delete all rows of a table. Returns what is selected of them, a row for each group of them."""

    def replace(self, table: str, columns: Sequence[str], rows: Sequence[Row], key: int) -> Sequence[Statement]:
        """Insert the rows, in place of those that have the same values in the first `key` columns."""
        return self.insert(table, columns, rows, on_conflict(columns, key, "{name} = excluded.{name}"))

    def add(self, table: str, columns: Sequence[str], rows: Sequence[Row], key: int) -> Sequence[Statement]:
        """Insert the rows; where there is one with the same values in the first `key` columns, add the others to it."""
        change = f"{{name}} = {table}.{{name}} + excluded.{{name}}"
        return self.insert(table, columns, rows, on_conflict(columns, key, change)) if rows else ()

    @abstractmethod
    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row], clause: str = "") -> Sequence[Statement]:
        """Insert the rows, no two of which are in conflict. The clause says what to do about those that are there."""

    @abstractmethod
    def joined(self, column: str) -> str:
        """An aggregate: the texts of the column, with spaces between them."""

    @abstractmethod
    def is_contention(self, error: Exception) -> bool:
        """Whether the transaction lost a race that it may win when it is tried again."""

    def has_waited(self, error: BaseException | None) -> bool:
        """Whether the transaction has waited in vain for a lock that all transactions need, for as long as it may."""
        return False

    @abstractmethod
    def leaves_outcome_unknown(self, error: BaseException) -> bool:
        """Whether it is unknown what the database did last."""


def on_conflict(columns: Sequence[str], key: int, change: str) -> str:
    names = quoted(columns)
    changed = ", ".join(change.format(name=name) for name in names[key:])
    return f"ON CONFLICT ({', '.join(names[:key])}) DO UPDATE SET {changed}"
