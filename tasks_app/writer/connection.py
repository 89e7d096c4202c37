"""The writer's connection to the database: a batch of operations, one transaction, few round trips."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from django.db import connections

from taskstore.errors import CommitUnknown, StoreBusy, StoreUnavailable

from ..core.operations import Operation, Supply
from ..core.tally import Work
from ..database import (
    PATIENCE_S,
    SILENCE_S,
    UNCONFIRMED,
    Decision,
    Dialect,
    Plan,
    PostgreSQL,
    Row,
    SQLite,
    Statement,
    Steps,
    T,
    dialect_of,
    is_opportunistic,
    look_and_decide,
)
from ..database.outage import translated
from ..database.postgresql_pipeline import packed
from ..offload.threads import by_the_writer

if TYPE_CHECKING:
    from ..database.postgresql_pipeline import Pipeline

COMMIT = Statement("COMMIT")
ANSWERED_S = 15  # A batch that takes longer waits for a standby that has gone, or for a server that has stopped.
MOST_AT_ONCE = 300  # Tasks of a batch, and bytes of their data: what is more is done beside the event loop.
MOST_BYTES_AT_ONCE = 4 * 2**20
FORGOTTEN_S = 1.0  # After so long without a failing try it is another lock.


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of a batch, what it left to claim, and how much it did."""

    outcomes: Sequence[Decision]
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
    kinds: dict[type[Dialect], type[WriterConnection]] = {PostgreSQL: PostgreSQLConnection, SQLite: SQLiteConnection}
    return kinds[type(dialect_of(using))](using, is_durable=is_durable)


class By(Protocol):
    """How a step is done."""

    async def __call__(self, step: Callable[..., T], *args: Any) -> T: ...


async def _at_once(step: Callable[..., T], *args: Any) -> T:
    return step(*args)


async def _beside(step: Callable[..., T], *args: Any) -> T:
    """In a thread: it is worth a change of threads, and would keep everybody else from the event loop."""
    return await by_the_writer(step, *args)


def are_large(operations: Sequence[Operation]) -> bool:
    """Whether the batch is about so much that the event loop can't wait for it."""
    if sum([operation.weight for operation in operations]) > MOST_AT_ONCE:
        return True
    return sum([operation.data_bytes for operation in operations]) > MOST_BYTES_AT_ONCE


def _answered(plan: Plan, ids: Sequence[int]) -> Answered:
    return Answered(plan.outcomes_with(ids), plan.supply(), plan.written.work)


def _next(steps: Steps[T], answers: Sequence[Sequence[Row]] | None) -> tuple[Sequence[Statement], StopIteration | None]:
    """The next statements, or the end: StopIteration can't be raised out of a thread into a coroutine."""
    try:
        return (next(steps) if answers is None else steps.send(answers)), None
    except StopIteration as stop:
        return (), stop


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
            steps = look_and_decide(operations, self.dialect)
            by = _beside if are_large(operations) else _at_once
            plan = await self._drive(connection, steps, self._opening(), ANSWERED_S, by)
        ids = await self._write(connection, plan, by)
        return await by(_answered, plan, ids)

    async def _write(self, connection: Pipeline, plan: Plan, by: By) -> Sequence[int]:
        if not plan.written:
            async with self._failures():
                await connection.run([COMMIT], ANSWERED_S)
            return ()
        writing = self.dialect.write(plan.written)
        async with self._failures(CommitUnknown(UNCONFIRMED)):
            *answers, _ = await connection.run([*await by(next, writing), COMMIT], ANSWERED_S)
        return await by(_end_of, writing, answers)

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
        try:
            yield
        except BaseException as error:
            await self.close()
            told = translated(error)
            if told is None:
                raise
            raise (meaning if meaning and self.dialect.leaves_outcome_unknown(error) else told) from error

    async def _drive(
        self,
        connection: Pipeline,
        steps: Steps[T],
        opening: Sequence[Statement] = (),
        within_s: float | None = None,
        by: By = _at_once,
    ) -> T:
        statements, end = await by(_next, steps, None)
        answers = (await connection.run([*opening, *statements], within_s))[len(opening) :]
        while True:
            statements, end = await by(_next, steps, answers)
            if end:
                result: T = end.value
                return result
            answers = await connection.run(statements, within_s)

    async def _connected(self) -> Pipeline:
        # Where the database is SQLite nothing needs psycopg, which is a tenth of a start.
        from ..database.postgresql_pipeline import Pipeline

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
        by = _beside if are_large(operations) else _at_once
        async with self._transaction() as connection:
            is_written, answered = await by(self._do, connection, operations)
            # Claims that find nothing come all day long: they must not wait for the disk.
            await self._execute(connection, "COMMIT" if is_written else "ROLLBACK", by)
        return answered

    def _do(self, connection: sqlite3.Connection, operations: Sequence[Operation]) -> tuple[bool, Answered]:
        plan = _drive(connection, look_and_decide(operations, self.dialect))
        ids = _drive(connection, self.dialect.write(plan.written)) if plan.written else ()
        return bool(plan.written), _answered(plan, ids)

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
            if told := translated(error):
                raise told from error
            raise

    async def _read(self, steps: Steps[T]) -> T:
        try:
            return _drive(self._connected(), steps)
        except sqlite3.OperationalError as error:  # Without a write-ahead log each commit locks readers out, too.
            if told := translated(error):
                raise told from error
            raise

    async def _execute(self, connection: sqlite3.Connection, statement: str, by: By = _at_once) -> None:
        """Again while others lock the file. They are short: sessions, the audit, and without WAL readers, too."""
        while True:
            try:
                await by(connection.execute, statement)
                self._last_locked_s = float("-inf")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    if told := translated(error):
                        raise told from error
                    raise
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
