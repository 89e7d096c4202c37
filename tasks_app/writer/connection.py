"""The connections of the writer and of housekeeping: they run the steps of a transaction in few round trips."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache, lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import connections

from taskstore.errors import CommitUnknown, StoreBusy

from ..database import (
    PATIENCE_S,
    SILENCE_S,
    UNCONFIRMED,
    Dialect,
    Each,
    Heavy,
    Last,
    PostgreSQL,
    Row,
    SQLite,
    Statement,
    Steps,
    T,
    dialect_of,
    is_opportunistic,
)
from ..database.limits import forget
from ..database.outage import translated
from ..database.plain import ROW_TYPES, PlainPostgreSQL, row_packers_of
from ..database.turns import turns
from ..offload.threads import by_the_writer

if TYPE_CHECKING:
    from ..database.postgresql_pipeline import Pipeline

BEGIN, COMMIT = Statement("BEGIN"), Statement("COMMIT")
ANSWER_LOST = "the change was committed, but the server lost its response: check the tasks before you try again"
LOCKED_MS = 400  # A wait for a change of limits by somebody's long transaction. Then the operations are tried again.
ANSWERED_S = 15  # A batch that takes longer waits for a standby that has gone, or for a server that has stopped.
LEAST_PATIENCE_S = 0.05  # Of who is behind others that have waited in vain.
FORGOTTEN_S = 1.0  # After so long without a failing try it is another lock.
# libpq's buffers never shrink, and SQLite's prepared statements keep their parameters. So a connection is replaced
# after a batch that sent more than this. For less, a new connection costs more than the memory is worth.
KEPT_BYTES = 4 * 2**20
# SQLite's is replaced after this time too: many prepared statements with a little each are also much.
KEPT_S = 30.0

log = logging.getLogger(__name__)

R = TypeVar("R")


class WriterConnection(ABC):
    """Opened when it is needed, and again after it broke."""

    dialect: Dialect

    def __init__(self, using: str, *, is_durable: bool = True) -> None:
        self.using = using
        self.is_durable = is_durable  # Whether what it commits has to be on the disk when it says so.
        # The writer and whoever looks for waiting claims take turns.
        self._turn = asyncio.Lock()

    @abstractmethod
    async def run(self, steps: Steps[T], *, is_large: bool = False, prepare: Callable[[T], None] | None = None) -> T:
        """Run the steps of a batch in one transaction. `is_large`: they take so long that they need a thread.

        `prepare` may be called with what comes of it, while the database carries the last statements out.

        Raises StoreUnavailable when the database can't be reached, CommitUnknown when it did not confirm the COMMIT.
        """

    @abstractmethod
    async def change(self, steps: Steps[T]) -> T:
        """Run steps that change something else, in one transaction."""

    @abstractmethod
    async def read(self, steps: Steps[T]) -> T:
        """Run steps that change nothing."""

    @abstractmethod
    async def close(self) -> None: ...


def connection_to(using: str, *, is_durable: bool = True) -> WriterConnection:
    kinds: dict[type[Dialect], type[WriterConnection]] = {PostgreSQL: PostgreSQLConnection, SQLite: SQLiteConnection}
    return kinds[type(dialect_of(using))](using, is_durable=is_durable)


def _next(steps: Steps[T], answers: Sequence[Sequence[Row]] | None) -> tuple[Sequence[Statement], StopIteration | None]:
    """The next statements, or the end: StopIteration can't be raised out of a thread into a coroutine."""
    try:
        return (next(steps) if answers is None else steps.send(answers)), None
    except StopIteration as stop:
        return (), stop.with_traceback(None)  # Whose frames refer to it: only a collection would free the answers.


# Plans that are made while the table is empty would stay scans of the whole table; what is switched
# off makes them look so dear that PostgreSQL would compile them each time. And for a few ids it would
# make a plan of their own each time, which takes longer than to carry it out.
PLANS = {
    **dict.fromkeys(("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "jit"), "off"),
    "plan_cache_mode": "force_generic_plan",
}


# Responses that are kept for a repeated request are several kilobytes long: lz4 takes a sixth of pglz's time.
COMPRESSION = """
    (SELECT set_config(name, 'lz4', false) FROM pg_settings
    WHERE name = 'default_toast_compression' AND source = 'default' AND 'lz4' = ANY(enumvals))
"""


@cache
def settings_of_batches(*, is_local: bool, is_opportunistic: bool) -> Statement:
    """What PostgreSQL has to know before a batch: for the transaction, or for the session."""
    settings = PLANS | {
        "synchronous_commit": "off" if is_opportunistic else "on",
        "lock_timeout": f"{LOCKED_MS}ms",
        "statement_timeout": f"{SILENCE_S}s",
        "idle_in_transaction_session_timeout": f"{SILENCE_S}s",
    }
    scope = "true" if is_local else "false"
    calls = [f"set_config('{name}', '{value}', {scope})" for name, value in settings.items()]
    if not is_local:  # To find out whether this PostgreSQL has it takes longer than it would save in a transaction.
        calls.append(COMPRESSION)
    return Statement(f"SELECT {', '.join(calls)}")


class PostgreSQLConnection(WriterConnection):
    """Two round trips a batch, each a pipeline: look, then write and commit."""

    dialect: PlainPostgreSQL

    def __init__(self, using: str, *, is_durable: bool = True) -> None:
        super().__init__(using, is_durable=is_durable)
        self.dialect = PlainPostgreSQL(using)
        self._connection: Pipeline | None = None
        self._told: tuple[Pipeline, Statement] | None = None  # Which connection was told these settings.

    async def run(self, steps: Steps[T], *, is_large: bool = False, prepare: Callable[[T], None] | None = None) -> T:
        async with self._turn:
            return await self._drive(steps, self._begin_batch, ANSWERED_S, is_large=is_large, prepare=prepare)

    async def change(self, steps: Steps[T]) -> T:
        async with self._turn:
            return await self._drive(steps, self._begin_change)

    async def read(self, steps: Steps[T]) -> T:
        async with self._turn:
            return await self._drive(steps)

    async def _begin_batch(self, connection: Pipeline) -> Sequence[Statement]:
        """What a session of our own is told once is told in each transaction where a pooler stands between."""
        settings = settings_of_batches(is_local=not connection.prepares, is_opportunistic=is_opportunistic())
        if self._told != (connection, settings):
            *_, row_types = await connection.run([settings, ROW_TYPES], ANSWERED_S)
            self.dialect.row_packers, self.dialect.has_sets = row_packers_of(row_types), connection.prepares
            self._told = (connection, settings)
        return [BEGIN] if connection.prepares else [BEGIN, settings]

    async def _begin_change(self, connection: Pipeline) -> Sequence[Statement]:
        durability = "on" if self.is_durable and not is_opportunistic() else "off"
        return [
            BEGIN,
            Statement("SELECT set_config('synchronous_commit', %s, true)", [durability]),
            Statement("SELECT set_config('idle_in_transaction_session_timeout', %s, true)", [f"{SILENCE_S}s"]),
        ]

    async def _drive(
        self,
        steps: Steps[T],
        begin: Callable[[Pipeline], Awaitable[Sequence[Statement]]] | None = None,
        within_s: float | None = None,
        *,
        is_large: bool = False,
        prepare: Callable[[T], None] | None = None,
    ) -> T:
        """With a beginning the steps are a transaction, whose COMMIT goes with their last statements.

        Whatever goes wrong, the transaction ends with its connection; the next one opens another.
        """
        answers: Sequence[Sequence[Row]] | None = None
        is_last, must_commit = False, begin is not None
        try:
            connection = await self._connected()
            opening = await begin(connection) if begin else ()
            while True:
                statements, end = await by_the_writer(_next, steps, answers) if is_large else _next(steps, answers)
                if end:
                    break
                is_last = must_commit and isinstance(statements, Last)
                sent = connection.send([*opening, *statements, COMMIT] if is_last else [*opening, *statements])
                try:
                    if is_last:
                        # What comes of it is known, and worked out while the database carries it out.
                        _, end = await by_the_writer(_next, steps, ()) if is_large else _next(steps, ())
                        if prepare and end:
                            prepare(end.value)
                finally:  # After a defect, too: the COMMIT is on its way.
                    rows = await connection.answers(sent, within_s)
                if end:
                    break
                answers = rows[len(opening) : len(opening) + len(statements)]
                is_large |= isinstance(statements, Heavy)
                opening, must_commit = (), must_commit and not is_last
            if must_commit and not is_last:
                await connection.run([COMMIT], within_s)
        except BaseException as error:
            await self.close()
            told = translated(error)
            if is_last and connection.has_succeeded and isinstance(error, Exception):
                log.exception("the response to a batch was lost after its COMMIT")
                raise CommitUnknown(ANSWER_LOST) from error  # Any other error would have the batch done again.
            if told is None:
                raise
            # What the database itself refuses, its disk being full, was not done.
            is_unknown = is_last and self.dialect.leaves_outcome_unknown(error)
            raise (CommitUnknown(UNCONFIRMED) if is_unknown else told) from error
        if connection.most_bytes > KEPT_BYTES:
            await self.close()
        result: T = end.value
        return result

    async def _connected(self) -> Pipeline:
        # Where the database is SQLite nothing needs psycopg, which is a tenth of a start.
        from ..database.postgresql_pipeline import Pipeline

        if self._connection is None or self._connection.is_closed:
            forget(self.using)
            self._connection = await Pipeline.connect(parameters_of(self.using))
            if self.is_durable and self._connection.prepares:  # Looks for claims that wait are no batches.
                await self._connection.run([Statement(f"SET lock_timeout = '{LOCKED_MS}ms'")], ANSWERED_S)
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


class SQLiteConnection(WriterConnection):
    """In line on the event loop: a thread beside a busy loop would lose the interpreter at each step."""

    def __init__(self, using: str, *, is_durable: bool = True) -> None:
        super().__init__(using, is_durable=is_durable)
        self.dialect = SQLite(using, waits=False)
        self._connection: sqlite3.Connection | None = None
        self._opened_s = 0.0
        self._locked_since_s = self._last_locked_s = float("-inf")

    async def run(self, steps: Steps[T], *, is_large: bool = False, prepare: Callable[[T], None] | None = None) -> T:
        async with self._turn, self._transaction() as connection:
            result, is_written, sent_bytes = await _driven(connection, steps, is_large=is_large)
            # Claims that find nothing come all day long: they must not wait for the disk.
            await self._execute(connection, "COMMIT" if is_written else "ROLLBACK", is_large=is_large)
            if sent_bytes > KEPT_BYTES or time.monotonic() > self._opened_s + KEPT_S:
                await by_the_writer(self._replace)
        return result

    async def change(self, steps: Steps[T]) -> T:
        async with self._turn, self._transaction() as connection:
            result, *_ = await _driven(connection, steps)
            await self._execute(connection, "COMMIT")
        return result

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[sqlite3.Connection]:
        """One that is begun; whoever enters it commits. Taken back when that fails."""
        turn = turns[self.using]
        if not await turn.wait(max(LEAST_PATIENCE_S, PATIENCE_S - self._locked_for_s())):
            self._last_locked_s = time.monotonic()
            raise StoreBusy("the database is busy with other transactions: try again later")
        try:
            connection = await self._connected()
            await self._execute(connection, "BEGIN IMMEDIATE")
            yield connection
        except BaseException as error:
            if self._connection is not None and self._connection.in_transaction:  # A full disk may have ended it.
                self._connection.execute("ROLLBACK")
            if told := translated(error):
                raise told from error
            raise
        finally:
            turn.release()

    async def read(self, steps: Steps[T]) -> T:
        async with self._turn:
            try:
                result, *_ = _drive(await self._connected(), steps)
            except sqlite3.OperationalError as error:  # Without a write-ahead log each commit locks readers out, too.
                if told := translated(error):
                    raise told from error
                raise
        return result

    async def _execute(self, connection: sqlite3.Connection, statement: str, *, is_large: bool = False) -> None:
        await self._patiently(partial(connection.execute, statement), is_large=is_large)

    async def _patiently(self, do: Callable[[], R], *, is_large: bool = False) -> R:
        """Do it again while others lock the file: for the audit log, after a crash, and without WAL for reading."""
        while True:
            try:
                done = await by_the_writer(do) if is_large else do()
                self._last_locked_s = float("-inf")
                return done
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

    async def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            return await self._patiently(self._open)  # After a crash another connection may be recovering the file.
        return self._connection

    def _open(self) -> sqlite3.Connection:
        django = connections[self.using]
        parameters = django.get_connection_params()
        opened = sqlite3.connect(
            parameters["database"],
            uri=parameters.get("uri", False),
            isolation_level=None,
            check_same_thread=False,
            timeout=0,
        )
        try:
            opened.executescript(str(django.settings_dict["OPTIONS"].get("init_command", "")))
            if not self.is_durable:
                # A crash may cost its newest transactions, each of them whole: WAL keeps the order.
                opened.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            opened.close()
            raise
        self._connection, self._opened_s = opened, time.monotonic()
        return opened

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _replace(self) -> None:
        """Open a new connection, then close the old one: the last one to close would write back the whole log."""
        old, self._connection = self._connection, None
        try:
            self._open()
        except sqlite3.Error:  # The batch is committed: it has to be answered.
            log.warning(
                "the connection to the database could not be replaced; its memory is not released", exc_info=True
            )
            self._connection = old
        else:
            if old is not None:
                old.close()


# A few dozen statements are done all the time, some of them long.
_with_marks = lru_cache(256)(lambda sql: sql.replace("%s", "?"))


async def _driven(connection: sqlite3.Connection, steps: Steps[T], *, is_large: bool = False) -> tuple[T, bool, int]:
    """As `_drive`, in a thread from the point on from which that takes long."""
    statements: Sequence[Statement] | None = None
    if not is_large:
        try:
            return _drive(connection, steps)
        except HeavyAhead as ahead:
            statements = ahead.statements
    return await by_the_writer(_drive, connection, steps, True, statements)


class HeavyAhead(Exception):
    """The steps go on with these statements, in a thread."""

    def __init__(self, statements: Sequence[Statement]) -> None:
        self.statements = statements


def _drive(
    connection: sqlite3.Connection, steps: Steps[T], counts: bool = False, statements: Sequence[Statement] | None = None
) -> tuple[T, bool, int]:
    """What comes of the steps, whether they have written something, and, if it counts them, the bytes they sent.

    It counts in a thread. `statements`: those with which the steps go on. Raises HeavyAhead.
    """
    answers: list[list[Row]] | None = None
    is_written, sent_bytes = False, 0
    try:
        while True:
            if answers is not None or statements is None:
                statements = next(steps) if answers is None else steps.send(answers)
                if isinstance(statements, Heavy) and not counts:
                    raise HeavyAhead(statements)
            is_written |= isinstance(statements, Last)
            answers = []
            for sql, parameters in statements:
                if counts:
                    values = chain.from_iterable(parameters) if isinstance(parameters, Each) else parameters
                    sent_bytes += sum(len(value) for value in values if isinstance(value, (bytes, str)))
                execute = connection.executemany if isinstance(parameters, Each) else connection.execute
                answers.append(execute(_with_marks(sql), parameters).fetchall())
    except StopIteration as stop:
        return stop.value, is_written, sent_bytes


# ---- Cancel tasks of the event loop for certain


AGAIN_S = 0.1


async def ended(*tasks: asyncio.Task[None]) -> None:
    """Cancel the tasks, and return when all of them have ended.

    Once is not enough before Python 3.12: a cancellation that comes together with what `asyncio.wait_for`
    waits for is lost, and psycopg waits for each answer with it.
    """
    left = {*tasks}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_S)
