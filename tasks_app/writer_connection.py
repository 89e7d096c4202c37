"""The writer's connection to the database: a batch of operations, one transaction, few round trips."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import connections

from .database import (
    PATIENCE_S,
    SILENCE_S,
    UNCONFIRMED,
    Dialect,
    Outcome,
    Plan,
    PostgreSQL,
    Row,
    SQLite,
    Statement,
    Steps,
    T,
    is_opportunistic,
    look_and_decide,
)
from .errors import CommitUnknown, StoreBusy, StoreUnavailable, takes_no_changes
from .operations import Operation, Supply
from .postgresql_arrays import packed
from .tally import Work

if TYPE_CHECKING:
    from .postgresql_pipeline import Pipeline

COMMIT = Statement("COMMIT")
ANSWERED_S = 15  # A batch that takes longer waits for a standby that has gone, or for a server that has stopped.
FORGOTTEN_S = 1.0  # After so long without a failing try it is another lock.


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of a batch, what it left to claim, and how much it did."""

    outcomes: Sequence[Outcome]
    supply: Supply
    work: Work


class WriterConnection(ABC):
    """Opened when it is needed, and again after it broke."""

    dialect: Dialect

    def __init__(self, using: str, *, is_durable: bool = True) -> None:
        self.using = using
        self.is_durable = is_durable  # Whether what it commits has to be on the disk when it says so.
        # The writer and whoever looks for waiting claims take turns.
        self._turn = asyncio.Lock()

    async def run(self, operations: Sequence[Operation]) -> Answered:
        """Do the operations in order in one transaction.

        Raises StoreUnavailable when the database can't be reached, CommitUnknown when it did not confirm the COMMIT.
        """
        async with self._turn:
            return await self._run(operations)

    async def supply_of(self, groups: Sequence[str], depends: Iterable[int]) -> Supply:
        """What there is to claim in these groups, and which of these ids are not there."""
        async with self._turn:
            return await self._read(self.dialect.supply_of(groups, depends))

    async def change(self, steps: Steps[T]) -> T:
        """Run steps that change something, in one transaction."""
        async with self._turn:
            return await self._change(steps)

    @abstractmethod
    async def _run(self, operations: Sequence[Operation]) -> Answered: ...

    @abstractmethod
    async def _read(self, steps: Steps[T]) -> T:
        """Run steps that change nothing."""

    @abstractmethod
    async def _change(self, steps: Steps[T]) -> T: ...

    @abstractmethod
    async def close(self) -> None: ...


def connection_to(using: str, *, is_durable: bool = True) -> WriterConnection:
    kind = PostgreSQLConnection if connections[using].vendor == "postgresql" else SQLiteConnection
    return kind(using, is_durable=is_durable)


class PackingPostgreSQL(PostgreSQL):
    """Sends arrays packed."""

    def array(self, type_name: str, values: Sequence[Any]) -> Any:
        return packed(type_name, values)


class PostgreSQLConnection(WriterConnection):
    """Two round trips a batch, each a pipeline: look, then write and commit."""

    def __init__(self, using: str, *, is_durable: bool = True) -> None:
        super().__init__(using, is_durable=is_durable)
        self.dialect = PackingPostgreSQL(using, waits=False)
        self._connection: Pipeline | None = None

    # Plans that are made while the table is empty would stay scans of the whole table; what is switched
    # off makes them look so dear that PostgreSQL would compile them each time. And for a few ids it would
    # make a plan of their own each time, which takes longer than to carry it out.
    opening = (
        Statement("BEGIN"),
        Statement(
            """
            SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
                set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
                set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true),
                set_config('synchronous_commit', %s, true), set_config('statement_timeout', %s, true),
                set_config('idle_in_transaction_session_timeout', %s, true)
            """
        ),
    )

    async def _run(self, operations: Sequence[Operation]) -> Answered:
        connection = await self._connected()
        async with self._failures():
            plan = await self._drive(connection, look_and_decide(operations, self.dialect), self._opening(), ANSWERED_S)
        ids = await self._write(connection, plan)
        return Answered(plan.outcomes_with(ids), plan.supply(), plan.written.work)

    async def _write(self, connection: Pipeline, plan: Plan) -> Sequence[int]:
        if not plan.written:
            async with self._failures():
                await connection.run([COMMIT], ANSWERED_S)
            return ()
        writing = self.dialect.write(plan.written)
        async with self._failures(CommitUnknown(UNCONFIRMED)):
            *answers, _ = await connection.run([*next(writing), COMMIT], ANSWERED_S)
        return _end_of(writing, answers)

    def _opening(self) -> Sequence[Statement]:
        begin, configure = self.opening
        limit = f"{SILENCE_S}s"
        return [begin, Statement(configure.sql, ["off" if is_opportunistic() else "on", limit, limit])]

    async def _change(self, steps: Steps[T]) -> T:
        connection = await self._connected()
        durability = "on" if self.is_durable and not is_opportunistic() else "off"
        opening = [
            Statement("BEGIN"),
            Statement("SELECT set_config('synchronous_commit', %s, true)", [durability]),
            Statement("SELECT set_config('idle_in_transaction_session_timeout', %s, true)", [f"{SILENCE_S}s"]),
        ]
        async with self._failures():
            result = await self._drive(connection, steps, opening)
            await connection.run([COMMIT])
        return result

    async def _read(self, steps: Steps[T]) -> T:
        connection = await self._connected()
        async with self._failures():
            return await self._drive(connection, steps)

    @asynccontextmanager
    async def _failures(self, meaning: StoreUnavailable | None = None) -> AsyncIterator[None]:
        """Whatever goes wrong, the transaction ends with its connection; the next batch opens another one.

        `meaning`: of a COMMIT that was not confirmed. What the database itself refuses, its disk being full, was not
        done.
        """
        import psycopg

        try:
            yield
        except BaseException as error:
            await self.close()
            if not (isinstance(error, psycopg.OperationalError) or takes_no_changes(error)):
                raise
            if meaning and self.dialect.is_disconnected(error):
                raise meaning from error
            raise StoreUnavailable("the database can't be reached or can't write: try again later") from error

    async def _drive(
        self,
        connection: Pipeline,
        steps: Steps[T],
        opening: Sequence[Statement] = (),
        within_s: float | None = None,
    ) -> T:
        answers = (await connection.run([*opening, *next(steps)], within_s))[len(opening) :]
        try:
            while True:
                answers = await connection.run(steps.send(answers), within_s)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _connected(self) -> Pipeline:
        # Where the database is SQLite nothing needs psycopg, which is a tenth of a start.
        from .postgresql_pipeline import Pipeline

        if self._connection is None or self._connection.is_closed:
            async with self._failures():
                self._connection = await Pipeline.connect(parameters_of(self.using))
        return self._connection

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def parameters_of(using: str) -> dict[str, Any]:
    """How to reach PostgreSQL, without what is Django's."""
    parameters: dict[str, Any] = connections[using].get_connection_params()
    for name in ("pool", "cursor_factory", "context", "prepare_threshold"):
        parameters.pop(name, None)
    return parameters


def _end_of(steps: Steps[T], answers: Sequence[Sequence[Row]]) -> T:
    try:
        steps.send(answers)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("PostgreSQL writes a batch in one step")


class SQLiteConnection(WriterConnection):
    """In line on the event loop: a thread beside a busy loop would lose the interpreter at each step."""

    def __init__(self, using: str, *, is_durable: bool = True) -> None:
        super().__init__(using, is_durable=is_durable)
        self.dialect = SQLite(using, waits=False)
        self._connection: sqlite3.Connection | None = None
        self._locked_since_s = self._last_locked_s = float("-inf")

    async def _run(self, operations: Sequence[Operation]) -> Answered:
        async with self._transaction() as connection:
            plan = _drive(connection, look_and_decide(operations, self.dialect))
            ids = _drive(connection, self.dialect.write(plan.written)) if plan.written else ()
            # Claims that find nothing come all day long: they must not wait for the disk.
            await self._execute(connection, "COMMIT" if plan.written else "ROLLBACK")
        return Answered(plan.outcomes_with(ids), plan.supply(), plan.written.work)

    async def _change(self, steps: Steps[T]) -> T:
        async with self._transaction() as connection:
            result = _drive(connection, steps)
            await self._execute(connection, "COMMIT")
        return result

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[sqlite3.Connection]:
        """One that is begun; whoever enters it commits. Taken back when that fails."""
        connection = self._connected()
        await self._execute(connection, "BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException as error:
            if connection.in_transaction:  # A full disk may have ended it already.
                connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):
                raise StoreUnavailable("the database can't be written: try again later") from error
            raise

    async def _read(self, steps: Steps[T]) -> T:
        try:
            return _drive(self._connected(), steps)
        except sqlite3.OperationalError as error:  # Without a write-ahead log each commit locks readers out, too.
            raise StoreUnavailable("the database can't be read: try again later") from error

    async def _execute(self, connection: sqlite3.Connection, statement: str) -> None:
        """Again while others lock the file. They are short: sessions, the audit, and without WAL readers, too."""
        while True:
            try:
                connection.execute(statement)
                self._last_locked_s = float("-inf")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise StoreUnavailable("the database can't be written: try again later") from error
            if self._locked_for_s() > PATIENCE_S:
                raise StoreBusy("the database is locked by another program: try again later")
            await asyncio.sleep(0.01)

    def _locked_for_s(self) -> float:
        """For how long each try has failed, this one included, whoever's it was.

        Who is behind others in the queue has waited with them: each waiting anew, the last one would wait for ever.
        """
        now_s = time.monotonic()
        if now_s > self._last_locked_s + FORGOTTEN_S:
            self._locked_since_s = now_s
        self._last_locked_s = now_s
        return now_s - self._locked_since_s

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            django = connections[self.using]
            parameters = django.get_connection_params()
            self._connection = sqlite3.connect(
                parameters["database"],
                uri=parameters.get("uri", False),
                isolation_level=None,
                check_same_thread=False,
                timeout=0,
            )
            self._connection.executescript(str(django.settings_dict["OPTIONS"].get("init_command", "")))
            if not self.is_durable:
                # A crash may cost its newest transactions, each of them whole: WAL keeps the order.
                self._connection.execute("PRAGMA synchronous = NORMAL")
        return self._connection

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _drive(connection: sqlite3.Connection, steps: Steps[T]) -> T:
    answers: list[list[Row]] | None = None
    try:
        while True:
            statements = next(steps) if answers is None else steps.send(answers)
            answers = [
                connection.execute(statement.sql.replace("%s", "?"), statement.parameters).fetchall()
                for statement in statements
            ]
    except StopIteration as stop:
        result: T = stop.value
        return result
