"""PostgreSQL statements sent together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

from .postgresql_arrays import Doubts, PackedArray, Row

CANCELLED_WITHIN_S = 3
# A plan that is made while a table is nearly empty walks through it; kept until it has grown, it would go on doing so.
# So plans are made anew now and then, and for each statement with many values.
PLANS_KEPT_S = 5.0
MANY_VALUES = 500  # In one array.
FAILED = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE)


class Sent(NamedTuple):
    """Statements that are being carried out: how many results come of each, after so many of forgetting plans."""

    end: asyncio.Future[None]
    forgotten: int
    counts: Sequence[int]


class Pipeline:
    """Belongs to the loop that runs now. After an error, or a wait that was cancelled, it can only be closed.

    `prepares`: whether a statement may be sent once and then be named.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Row], *, prepares: bool = True) -> None:
        self.prepares = prepares
        self._connection = connection  # Kept open; nothing else is done with it.
        self._libpq = connection.pgconn
        self._encoding = connection.info.encoding
        self._transformer = Transformer(connection)
        self._prepared: dict[str, bytes] = {}
        self._prepared_since_s = time.monotonic()
        self._numbers = count()
        self._results: list[pq.abc.PGresult] = []
        self.has_succeeded = False  # Whether the server has confirmed all statements of the last run.
        self.most_bytes = 0  # That one statement has sent: libpq's buffer for them never shrinks.
        self._doubts = Doubts()
        connection.add_notice_handler(self._doubts.hear)
        self._end: asyncio.Future[None] | None = None  # Of the wait for what was sent.
        self._is_writing = False  # The system has not taken all of it yet.
        # A timer for each wait would cost as much as the rest of waiting: one looks at the clock.
        self._alarm: asyncio.TimerHandle | None = None
        self._patience_until_s = float("inf")
        self._cancelling: asyncio.Task[None] | None = None  # Kept, or it might be collected amid its work.
        self._loop = asyncio.get_running_loop()
        self._socket = self._libpq.socket  # Lost with the connection, when the loop has to forget it.
        self._libpq.nonblocking = 1
        self._libpq.enter_pipeline_mode()
        self._loop.add_reader(self._socket, self._read)

    @classmethod
    async def connect(cls, parameters: dict[str, Any]) -> Pipeline:
        """Raises psycopg.OperationalError when the database can't be reached."""
        connection = await psycopg.AsyncConnection.connect(**parameters, autocommit=True)
        try:
            return cls(connection, prepares=not await is_pooled(connection))
        except BaseException:  # A wait that was cancelled, too.
            await connection.close()
            raise

    @property
    def is_closed(self) -> bool:
        return self._connection.closed

    @property
    def server_pid(self) -> int:
        """Of the process that serves this connection."""
        return self._libpq.backend_pid

    async def close(self) -> None:
        self._stop_watching()
        await self._connection.close()

    async def run(
        self, statements: Sequence[tuple[str, Sequence[Any]]], within_s: float | None = None
    ) -> list[list[Row]]:
        """The rows of each statement. Parameters: None, str, int, bool or packed arrays, one for each %s.

        `within_s`: after how long they are cancelled (None: never). No timeout of the server's own ends a COMMIT that
        waits for a standby.

        Raises psycopg.Error of the first statement that fails; those after it are not done. One without an SQLSTATE
        leaves it open what was done: the connection was lost, or a synchronous standby may not have it.
        """
        return await self.answers(self.send(statements), within_s)

    def send(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> Sent:
        """Send the statements. The next call is `answers`, which waits until they are carried out."""
        self.has_succeeded = False
        forgotten = self._forget_plans()
        counts = [self._send(sql, parameters) for sql, parameters in statements]
        self._libpq.pipeline_sync()
        self._results = []
        self._end = self._loop.create_future()
        sent = Sent(self._end, forgotten, counts)
        self._flush()
        return sent

    async def answers(self, sent: Sent, within_s: float | None = None) -> list[list[Row]]:
        self._patience_until_s = self._loop.time() + within_s if within_s else float("inf")
        if within_s and self._alarm and self._alarm.when() > self._patience_until_s:
            self._alarm.cancel()
            self._alarm = None
        if within_s and self._alarm is None:
            self._alarm = self._loop.call_later(within_s, self._look_at_the_clock)
        await sent.end
        results, self._results = self._results, []
        rows: list[list[Row]] = []
        place = sent.forgotten
        for number in sent.counts:
            place += number
            rows.append(self._rows(results[place - 1]))
        return rows

    def _forget_plans(self) -> int:
        """Returns how many results will come of it."""
        now_s = time.monotonic()
        if not self._prepared or now_s - self._prepared_since_s < PLANS_KEPT_S:
            return 0
        self._prepared.clear()
        self._prepared_since_s = now_s
        self._libpq.send_query_params(b"DEALLOCATE ALL", None)
        return 1

    def _send(self, sql: str, parameters: Sequence[Any]) -> int:
        """Returns how many results will come of it."""
        values: list[bytes | None] = []
        formats: list[pq.Format] = []
        is_long, sent_bytes = False, 0
        for parameter in parameters:
            if isinstance(parameter, PackedArray):
                size = len(parameter)
                values.append(parameter)
                sent_bytes += size
                formats.append(pq.Format.BINARY)
                is_long |= size > MANY_VALUES and parameter.length > MANY_VALUES
            else:
                values.append(None if parameter is None else str(parameter).encode())
                formats.append(pq.Format.TEXT)
        self.most_bytes = max(self.most_bytes, sent_bytes)
        if is_long or not self.prepares:
            self._libpq.send_query_params(_numbered(sql), values, None, formats, pq.Format.BINARY)
            return 1
        name = self._prepared.get(sql)
        is_new = name is None
        if name is None:
            name = self._prepared[sql] = b"s%d" % next(self._numbers)
            self._libpq.send_prepare(name, _numbered(sql))
        self._libpq.send_query_prepared(name, values, formats, pq.Format.BINARY)
        return 1 + is_new

    def _flush(self) -> None:
        """Hand over to the system what it takes, and the rest when it takes more."""
        try:
            if self._libpq.flush():
                self._loop.add_writer(self._socket, self._flush)
                self._is_writing = True
            elif self._is_writing:
                self._loop.remove_writer(self._socket)
                self._is_writing = False
        except psycopg.OperationalError as error:
            self._break(error)

    def _read(self) -> None:
        try:
            self._libpq.consume_input()
            self._take_results()
        except psycopg.OperationalError as error:
            self._break(error)

    def _take_results(self) -> None:
        while self._end is not None and not self._libpq.is_busy():
            result = self._libpq.get_result()
            if result is None:  # So ends what came of a statement; and on a lost connection it goes on for ever.
                if self._libpq.status == pq.ConnStatus.BAD:
                    raise psycopg.OperationalError("the connection to the database was lost")
                continue
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                self._finish()
            else:
                self._results.append(result)

    def _finish(self) -> None:
        end, self._end = self._end, None
        if end is None or end.done():
            return
        failed = next((result for result in self._results if result.status in FAILED), None)
        if failed is not None:
            end.set_exception(error_from_result(failed, encoding=self._encoding))
        elif self._doubts.are_there:
            end.set_exception(psycopg.OperationalError("the wait for the synchronous standby was cancelled"))
        else:
            self.has_succeeded = True
            end.set_result(None)

    def _look_at_the_clock(self) -> None:
        self._alarm = None
        left_s = self._patience_until_s - self._loop.time()
        if self._end is None or left_s == float("inf"):
            return  # The next wait that may end sets it again.
        if left_s > 0:
            self._alarm = self._loop.call_later(left_s, self._look_at_the_clock)
        else:
            self._cancelling = self._loop.create_task(self._cancel())

    async def _cancel(self) -> None:
        """Have the server end what it is doing, or without a word from it the connection."""
        end = self._end
        with suppress(psycopg.Error):
            await self._connection.cancel_safe(timeout=CANCELLED_WITHIN_S)
        if end is not None:
            await asyncio.wait([end], timeout=CANCELLED_WITHIN_S)
        if end is self._end:
            self._break(psycopg.OperationalError("the database is not responding"))

    def _break(self, error: psycopg.OperationalError) -> None:
        self._stop_watching()
        self._libpq.finish()
        end, self._end = self._end, None
        if end is not None and not end.done():
            end.set_exception(error)

    def _stop_watching(self) -> None:
        if self._socket >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._socket = -1  # Somebody else's from now on.
        if self._alarm:
            self._alarm.cancel()

    def _rows(self, result: pq.abc.PGresult) -> list[Row]:
        if not result.nfields:
            return []
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)


async def is_pooled(connection: psycopg.AsyncConnection[Row]) -> bool:
    """Whether a pooler stands between, which may give each transaction another server process.

    A statement that one of them has prepared the others do not know. A pooler invents the number by which it lets a
    client cancel; a server names its own.
    """
    cursor = await connection.execute("SELECT pg_backend_pid()")
    return await cursor.fetchone() != (connection.info.backend_pid,)


def _numbered(sql: str) -> bytes:
    """The statement with $1, $2, ... in place of %s."""
    first, *others = sql.split("%s")
    return (first + "".join(f"${number}{text}" for number, text in enumerate(others, start=1))).encode()
