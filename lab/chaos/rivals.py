"""Two rivals that perform operations at the same time on two connections, statement by statement."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

from tasks_app.core.operations import Operation, TaskRecord
from tasks_app.database import Decision, PostgreSQL, Row, Statement, Steps, T, Undecided, transact
from tasks_app.database.postgresql_arrays import PackedArray
from tasks_app.writer.connection import BEGIN, COMMIT, settings_of_batches
from taskstore.errors import TaskStoreError

Connection = psycopg.AsyncConnection[Row]
MakeDialect = Callable[..., PostgreSQL]  # As PostgreSQL itself.
# An unexpected psycopg.Error would be a 500 to a client.
Answer = list[TaskRecord] | TaskStoreError | psycopg.Error

ROLLBACK = Statement("ROLLBACK")
LOOK_S = 0.004  # A statement that takes longer may be waiting for a lock.
WAITS = b"SELECT %s = ANY(pg_blocking_pids(%s))"
# The default is a second.
HURRY = b"SET deadlock_timeout = '10ms'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How the store performs an operation: in the writer, which skips locked rows, or alone, waiting for locks.

    `is_plain`: the writer already knows ids to claim and the columns of the tables, so that two round trips are enough.
    """

    waits: bool
    is_plain: bool = False

    def __str__(self) -> str:
        return "alone" if self.waits else "by a writer that knows them" if self.is_plain else "by the writer"

    def opening(self, operation: Operation, dialect: PostgreSQL) -> Sequence[Statement]:
        """Return the first statements; one that waits also locks the named tasks."""
        if self.waits:
            return [BEGIN, *dialect.preparation([operation])]
        return [BEGIN, settings_of_batches(is_local=True, is_opportunistic=False)]


ALONE, BY_THE_WRITER = Way(waits=True), Way(waits=False)
BY_ONE_THAT_KNOWS = Way(waits=False, is_plain=True)


def performed(operation: Operation, way: Way, make_dialect: MakeDialect = PostgreSQL) -> Steps[Answer]:
    """Yield all statements of an operation one at a time, until it is decided.

    Conflicts are handled as the writer and `database.run` do.
    """
    while True:
        dialect = make_dialect("default", waits=way.waits)
        try:
            outcome = yield from transaction(operation, way, dialect)
        except psycopg.Error as error:
            yield [ROLLBACK]
            if not dialect.is_contention(error):
                return error
            continue
        if not isinstance(outcome, Undecided):
            return outcome
        if outcome is Undecided.LOCKED:
            way, make_dialect = ALONE, PostgreSQL if way.is_plain else make_dialect


def transaction(operation: Operation, way: Way, dialect: PostgreSQL) -> Steps[Decision]:
    done = yield from one_by_one(transact([operation], dialect), way.opening(operation, dialect))
    [decision] = done.decisions
    yield [ROLLBACK if isinstance(decision, Undecided) and way.waits else COMMIT]
    return decision


def one_by_one(steps: Steps[T], opening: Sequence[Statement] = ()) -> Steps[T]:
    """Send each statement of the steps separately, the first one after the opening."""
    answers: list[Sequence[Row]] | None = None
    while True:
        try:
            statements = next(steps) if answers is None else steps.send(answers)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answers = []
        for statement in statements:
            *_, rows = yield [*opening, statement]
            answers.append(rows)
            opening = ()


class Rival:
    """Performs operations, each statement on request."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._steps: Steps[Answer]
        self._next: Sequence[Statement]
        self._sent: asyncio.Task[list[list[Row]]] | None = None
        self.is_done = False
        self.answer: Answer  # When it is done.
        self.answered = 0  # Statements, in this operation.

    def begin(self, steps: Steps[Answer]) -> None:
        self._steps, self._next, self.is_done, self.answered = steps, next(steps), False, 0

    def tasks(self) -> list[TaskRecord]:
        """Return the tasks of the response. Raises CommitRefused or another error."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    @property
    def pid(self) -> int:
        return self._connection.info.backend_pid

    @property
    def is_busy(self) -> bool:
        """Whether a statement is under way."""
        return self._sent is not None

    def go_on(self) -> None:
        """Send the next statement, if there is one."""
        if not self.is_done:
            self._sent = asyncio.create_task(self._send(self._next))

    async def _send(self, statements: Sequence[Statement]) -> list[list[Row]]:
        cursors = [await self._connection.execute(sql.encode(), parameters) for sql, parameters in statements]
        return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]

    async def is_answered(self) -> bool:
        """Wait a moment; return whether no statement is under way."""
        if self._sent is None:
            return True
        await asyncio.wait([self._sent], timeout=LOOK_S)
        if not self._sent.done():
            return False
        sent, self._sent = self._sent, None
        self._take(sent)
        return True

    def _take(self, sent: asyncio.Task[list[list[Row]]]) -> None:
        self.answered += 1
        try:
            error = sent.exception()
            self._next = self._steps.throw(error) if error else self._steps.send(sent.result())
        except StopIteration as stop:
            self.is_done, self.answer = True, stop.value


@dataclass
class Tally:
    """Counts over all orders."""

    orders: int = 0
    waits: int = 0  # Statements that had to wait for the other rival.
    deadlocks: int = 0


class Duel:
    """Two rivals, and a third connection that detects which of them waits for the other."""

    def __init__(self, rivals: tuple[Rival, Rival], watcher: Connection, tally: Tally) -> None:
        self.rivals, self._watcher, self.tally = rivals, watcher, tally

    async def play(self, order: Iterable[int]) -> None:
        """Let the rivals send statements in this order, then let both finish.

        A rival that waits for a lock or is done skips its turn.
        """
        for place in order:
            await self._turn_of(place)
        while not all(rival.is_done for rival in self.rivals):
            for place in (0, 1):
                await self._turn_of(place)

    async def play_one(self, place: int) -> None:
        while not self.rivals[place].is_done:
            await self._turn_of(place)

    async def _turn_of(self, place: int) -> None:
        rival, other = self.rivals[place], self.rivals[1 - place]
        if rival.is_busy:
            return
        rival.go_on()
        if await self._waits(rival, other):
            self.tally.waits += 1
            if other.is_busy:
                await self._end_deadlock()
        await self._waits(other, rival)

    async def _end_deadlock(self) -> None:
        """Wait until PostgreSQL fails one of the two, so that the other continues."""
        self.tally.deadlocks += 1
        one, other = self.rivals
        while not (await one.is_answered() or await other.is_answered()):
            pass
        await self._waits(one, other)

    async def _waits(self, rival: Rival, other: Rival) -> bool:
        """Return whether the rival's statement waits for a lock of the other one; otherwise wait for its result."""
        while not await rival.is_answered():
            cursor = await self._watcher.execute(WAITS, [other.pid, rival.pid])
            if (await cursor.fetchone()) == (True,):
                return True
        return False


class PackedDumper(Dumper):
    """Sends a packed array as it is; the statement says of which type."""

    format = Format.BINARY

    def dump(self, obj: PackedArray) -> bytes:
        return bytes(obj)


async def connected(address: str) -> Connection:
    connection = await psycopg.AsyncConnection.connect(address, autocommit=True)
    connection.adapters.register_dumper(PackedArray, PackedDumper)
    await connection.execute(HURRY)
    return connection
