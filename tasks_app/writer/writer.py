"""The writer: one per process, on the server's event loop, with a connection of its own.

While a transaction is under way, what arrives piles up; the next transaction takes it all. No
timer, no added latency: alone, an operation goes at once, and many share one wait for the disk.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from taskstore.errors import StoreBusy, StoreUnavailable, TaskStoreError
from taskstore.types.tasks import Change

from .. import database
from ..core.meters import meters
from ..core.operations import Claim, Commit, Operation, Query, Supply, TaskRecord
from ..database import PATIENCE_S, Decision, Done, Undecided, dialect_of, hand_over, transact
from ..database.batches import looks_at
from ..database.outage import WRITER, outage
from ..offload.memory import give_back_soon
from ..offload.threads import waiting_for_locks
from .connection import LOCKED_MS, WriterConnection, connection_to, ended
from .housekeeping import Housekeeper
from .peers import Neighbours, tell_once_committed
from .waiting_claims import Asked, Awaited, WaitingClaims

MOST_TURNS = 8  # Of the event loop, for what arrives together to become one batch.
PAUSE_S = 0.02  # Before another look at a group of which everything is locked.
MOST_RECEIVERS = 32  # Claims that get what is added in the same transaction. More share the next one.
LARGE = 50  # Tasks of a commit: then it is worth a transaction beside all else, which would wait for it.
RESTS_S = 2.0  # No longer do claims rest after an outage, while workers renew leases that have ended meanwhile.
STOOD_STILL_S = 1.0  # Later than this is the clock of a process that was stopped.
CLOSES_EVERY_S = 0.05  # Batches of which several transactions ended members at the same time.
CHECKED_S = 1.0  # How old a check may be: anybody may ask for one, as often as they like.
LEVELS_EVERY_S = 1.0  # How much there is to do is noted.
# Tasks of one operation, of a batch, and bytes of their data: what is more is done beside the event loop.
MOST_OF_ONE = 300
MOST_AT_ONCE = 1_000
MOST_BYTES_AT_ONCE = 4 * 2**20

_running: dict[str, Writer] = {}


def running(using: str) -> Writer | None:
    """The writer of this process for this database, or None where none was started."""
    return _running.get(using)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much at once. Each is a setting."""

    operations: int = 256  # A batch.
    bytes: int = 16 * 2**20  # A batch.
    queued: int = 10_000


class Companion(Protocol):
    """A service that runs beside the writer, in the same process."""

    @property
    def is_busy(self) -> bool:
        """Whether, at its end, somebody still waits for its answer."""

    def end(self) -> None:
        """Come to an end soon."""

    async def ended(self) -> None:
        """Return when it has."""


class Writer:
    """Answers operations in the order in which they arrive, as many in one transaction as are there."""

    def __init__(
        self, connection: WriterConnection, bounds: Bounds | None = None, housekeeper: Housekeeper | None = None
    ) -> None:
        self._connection = connection
        self._housekeeper = housekeeper
        self._bounds = bounds or Bounds()
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Asked] = deque()
        # Large commits: done beside all else, by a second connection.
        self._large: deque[Asked] = deque()
        self._side: WriterConnection | None = None
        self._beside: asyncio.Task[None] | None = None
        self._halves: list[list[Asked]] = []  # Of a batch that failed for an unexpected reason; the next one is last.
        self._arrived = asyncio.Event()
        self._set_aside: set[asyncio.Task[None]] = set()
        self._waiting = WaitingClaims(self._enqueue)
        self._neighbours: Neighbours | None = None
        self._shared_batches: set[int] = set()
        self._companions: list[Companion] = []
        self._claims_from_s = 0.0  # Until then they rest.
        self._ticked_s = time.time()
        self.begun = 0  # Operations that it has begun to do since its start.
        self._is_stopping = False
        self._check: asyncio.Task[None] | None = None
        self._checked_s = 0.0  # When it began.
        self._work_task = self._loop.create_task(self._run_batches())
        self._watch_task = self._loop.create_task(self._watch())
        self._note_levels()

    @classmethod
    def start(cls, using: str = "default", bounds: Bounds | None = None) -> Writer:
        """Start the writer of this process, on the loop that runs now."""
        housekeeper = Housekeeper(connection_to(using, is_durable=False))
        writer = _running[using] = cls(connection_to(using), bounds, housekeeper)
        if dialect_of(using).serves_many:
            writer._side = connection_to(using)
            writer._neighbours = Neighbours(using, writer._waiting.look_into, writer._connection.dialect.share_claims)
        return writer

    def keep(self, companion: Companion) -> None:
        """Until the end: what asks the writer for work has to stop before it."""
        self._companions.append(companion)

    @property
    def has_busy_companions(self) -> bool:
        return any(companion.is_busy for companion in self._companions)

    @property
    def waiting(self) -> int:
        """How many claims wait until there is something."""
        return len(self._waiting)

    @property
    def is_on_this_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def submit(self, operation: Operation) -> asyncio.Future[list[TaskRecord]]:
        """Put the operation into the queue. Gives its new tasks, or raises what `Task.objects.perform` raises."""
        asked = Awaited(operation, self._loop.create_future())
        self.take(asked)
        return asked.answer

    def take(self, asked: Asked) -> None:
        """Put an operation into the queue that is told by itself what came of it. On the writer's loop only."""
        if self._is_stopping:
            asked.fail(StoreUnavailable("the server is stopping: try again"))
        elif len(self._queue) + len(self._large) >= self._bounds.queued:
            asked.fail(StoreBusy("too many operations are waiting: try again later"))
        elif self._side and isinstance(asked.operation, Commit) and asked.operation.weight >= LARGE:
            self._large.append(asked)
            if self._beside is None or self._beside.done():
                self._beside = self._loop.create_task(self._do_large(self._side))
        else:
            self._enqueue(asked)

    def submit_from_thread(self, operation: Operation) -> list[TaskRecord]:
        """Do the operation, for code that runs in a thread beside the loop."""

        async def submitted() -> list[TaskRecord]:
            return await self.submit(operation)

        return asyncio.run_coroutine_threadsafe(submitted(), self._loop).result()

    def check_from_thread(self) -> None:
        """Raise StoreUnavailable, with the reason, when nothing can be written now."""
        asyncio.run_coroutine_threadsafe(self._checked(), self._loop).result()

    async def _checked(self) -> None:
        if self._work_task.done():
            raise StoreUnavailable("the writer of this server process has ended: restart the server")
        if self._check is None or (self._check.done() and time.monotonic() - self._checked_s > CHECKED_S):
            # Not on the writer's own connection, where it would wait behind batches.
            connection = self._housekeeper.connection if self._housekeeper else self._connection
            self._checked_s = time.monotonic()
            self._check = self._loop.create_task(connection.change(connection.dialect.probe()))
            # Whoever asked may have gone when it fails.
            self._check.add_done_callback(lambda check: check.cancelled() or check.exception())
        done, _ = await asyncio.wait([self._check], timeout=PATIENCE_S)
        if not done:
            raise StoreUnavailable("the database is not responding: try again later")
        await self._check

    def look_around(self) -> None:
        """Let all claims that wait in this process look whether there is something now. From any thread."""
        self._loop.call_soon_threadsafe(self._waiting.look_into, None)

    def look_into(self, group: str) -> None:
        """Let claims that wait for the group look whether there is something now, in every process. From any thread."""
        self._loop.call_soon_threadsafe(self._waiting.look_into, [group])
        if self._neighbours:
            self._loop.call_soon_threadsafe(self._neighbours.tell_of, [group])

    def finish_changes_of_limits(self) -> None:
        """Note the tasks of large groups whose limits have changed. From any thread."""
        if self._housekeeper:
            self._loop.call_soon_threadsafe(self._housekeeper.limits.wake)

    def note(self, supply: Supply) -> None:
        """Tell claims that wait, in every process, what a commit of another connection has added. From any thread."""
        self._loop.call_soon_threadsafe(self._note, supply)

    def _note(self, supply: Supply) -> None:
        self._waiting.note(supply)
        if self._neighbours:
            self._neighbours.tell(supply)
        if supply.shared_batches:
            if not self._shared_batches:
                self._put_aside(self._close_batches())
            self._shared_batches |= supply.shared_batches

    async def _close_batches(self) -> None:
        """Close the batches whose last members ended at the same time."""
        await asyncio.sleep(CLOSES_EVERY_S)
        batches, self._shared_batches = self._shared_batches, set()
        with suppress(TaskStoreError):  # The housekeeper looks again.
            for commit in await self._connection.read(looks_at(batches, self._connection.dialect)):
                await self.submit(commit)

    def end_waiting(self) -> None:
        """Claims that wait find nothing, and no other will wait. Companions come to their end."""
        self._watch_task.cancel()
        self._waiting.give_up()
        for companion in self._companions:
            companion.end()

    async def stop(self) -> None:
        """Answer everything that has arrived, then end."""
        self.end_waiting()
        for companion in self._companions:
            await companion.ended()
        self._is_stopping = True
        await ended(self._watch_task)
        if self._check:
            await ended(self._check)
        if self._beside:
            await self._beside
        self._arrived.set()
        await self._work_task
        await asyncio.gather(*self._set_aside)
        self._forget_levels()
        if self._neighbours:
            await self._neighbours.stop()
        if self._housekeeper:
            await self._housekeeper.stop()
        # At last: whoever used it after this would open another one.
        await self._connection.close()
        if self._side:
            await self._side.close()
        for using in [using for using, writer in _running.items() if writer is self]:
            del _running[using]

    def _enqueue(self, asked: Asked) -> None:
        self._queue.append(asked)
        self._arrived.set()

    async def _run_batches(self) -> None:
        """Do what has arrived, all of it in one transaction, and answer; until the writer stops."""
        while self._queue or self._halves or not self._is_stopping:
            if self._halves:
                await self._do(self._halves.pop())
            elif batch := await self._next_batch():
                await self._do(batch, receivers=self._receivers(batch))
            batch = []  # While it waits for the next one, this one may be large.

    async def _do_large(self, side: WriterConnection) -> None:
        """Do what has arrived of them, and go on as long as more arrives. What can't be done now joins all else."""
        while self._large:
            batch: list[Asked] = []
            tasks = size = 0
            while self._large and tasks < MOST_AT_ONCE and size < self._bounds.bytes:
                if not (asked := self._large.popleft()).is_needless:
                    batch.append(asked)
                    tasks, size = tasks + asked.operation.weight, size + asked.size
            if batch:
                await self._do(batch, side)

    def _receivers(self, batch: Sequence[Asked]) -> list[Asked]:
        """Claims that wait for what the batch adds. With it, they need no wait for the disk of their own."""
        if not self._waiting.is_anybody or self._claims_from_s > time.monotonic():
            return []
        added = Counter(
            add.group
            for asked in batch
            if isinstance(asked.operation, Commit)
            for add in asked.operation.adds
            if not add.timespec_ms and add.at_ms is None
        )
        return self._waiting.leave(added, MOST_RECEIVERS)

    async def _do(
        self, batch: list[Asked], side: WriterConnection | None = None, receivers: Sequence[Asked] = ()
    ) -> None:
        connection, operations = side or self._connection, [asked.operation for asked in batch]
        claims = [asked.operation for asked in receivers]
        batch = [*batch, *receivers]
        self.begun += len(batch)
        begun_s, is_large = time.monotonic(), are_large(operations)
        try:
            if claims:
                steps = hand_over(operations, claims, connection.dialect)
            else:
                steps = transact(operations, connection.dialect)
            done = await connection.run(steps, is_large=is_large, prepare=partial(_prepare, batch))
        except TaskStoreError as error:
            outage.failed(WRITER, error)
            for asked in reversed(batch):
                if connection.dialect.has_waited(error.__cause__):
                    self._try_again(asked, Undecided.BUSY)
                else:
                    asked.fail(error)
        except Exception as error:
            self._take_apart(batch, error)
        else:
            outage.worked(WRITER)
            meters.note_batch(len(batch), time.monotonic() - begun_s)
            meters.note_work(done.work)
            self._note(done.supply)
            for asked, decision in zip(batch, done.decisions, strict=True):
                self._settle(asked, decision)
        if is_large:
            give_back_soon()

    async def _next_batch(self) -> list[Asked]:
        """What has arrived, as much as goes together. Waits for something; empty when whoever asked has gone."""
        # As long as each turn of a busy loop brings more: what has been sent already shares the transaction.
        for _ in range(MOST_TURNS):
            there = len(self._queue)
            await asyncio.sleep(0)
            if len(self._queue) == there:
                break
        self._notice_a_stop()
        rest_s = self._claims_from_s - time.monotonic()
        batch: list[Asked] = []
        size = claimed = 0
        while self._queue and len(batch) < self._bounds.operations and size < self._bounds.bytes:
            if claimed >= MOST_AT_ONCE:
                break
            asked = self._queue.popleft()
            if asked.is_needless:
                continue  # Who has gone before its operation began costs nothing.
            if rest_s > 0 and isinstance(asked.operation, Claim):
                self._put_aside(self._look_later(asked, rest_s))
            else:
                batch.append(asked)
                size += asked.size
                claimed += asked.operation.weight if isinstance(asked.operation, Claim) else 0
        if not (batch or self._is_stopping):
            self._arrived.clear()
            await self._arrived.wait()
        return batch

    def _take_apart(self, batch: list[Asked], error: Exception) -> None:
        """An operation that fails for an unexpected reason must not fail its neighbours."""
        if len(batch) > 1:
            half = len(batch) // 2
            self._halves += [batch[half:], batch[:half]]
            self._arrived.set()
        elif self._connection.dialect.is_contention(error):
            self._try_again(batch[0], Undecided.LOCKED)
        else:
            batch[0].fail(error)

    def _settle(self, asked: Asked, decision: Decision) -> None:
        if decision is Undecided.LOCKED:
            self._put_aside(self._do_aside(asked))
        elif isinstance(decision, Undecided):
            self._try_again(asked, decision)
        elif isinstance(decision, TaskStoreError):
            asked.fail(decision)
        elif asked.has_lost_client:
            self._give_back(asked.operation, decision)
        elif decision or not self._waiting.takes(asked):
            asked.succeed(decision)

    def _give_back(self, operation: Operation, tasks: Sequence[TaskRecord]) -> None:
        """Whoever asked went while the transaction was under way: what they took is for others, without a wait."""
        has_taken = isinstance(operation, Claim) and not (isinstance(operation, Query) and operation.only_reads)
        if not (has_taken and tasks) or operation.key:  # With a key they can ask for it again.
            return
        changes = tuple(Change(id=task.id, release=True) for task in tasks)
        answer: asyncio.Future[list[TaskRecord]] = self._loop.create_future()
        # If it fails, the leases run out as those of a worker that died.
        answer.add_done_callback(lambda answer: answer.exception())
        self._enqueue(Awaited(Commit(owner=operation.owner, updates=changes, scope=operation.scope), answer))

    def _try_again(self, asked: Asked, why: Undecided) -> None:
        asked.tries += 1
        if why is Undecided.BUSY:  # The next try may wait for a whole batch, and then for the lock once more.
            patience_s = max(PATIENCE_S - 2 * LOCKED_MS / 1_000, asked.wait_s)
        else:
            patience_s = PATIENCE_S + asked.wait_s
        if asked.age_s > patience_s:
            asked.fail(StoreBusy(why.value))
        elif asked.tries == 1 and why is not Undecided.CROWDED:
            self._queue.appendleft(asked)  # Mostly it was a neighbour in its batch.
            self._arrived.set()
        else:
            self._put_aside(self._look_later(asked))

    def _notice_a_stop(self) -> None:
        """Before the first claim of a process that was stopped: the renewals of that time have only arrived now."""
        stood_s = time.time() - self._ticked_s - LEVELS_EVERY_S  # On a machine that slept, this clock has gone on.
        if stood_s > STOOD_STILL_S:
            self._ticked_s = time.time()
            self._rest(stood_s)

    def _rest(self, stood_s: float = RESTS_S) -> None:
        self._claims_from_s = time.monotonic() + min(stood_s, RESTS_S)

    async def _look_later(self, asked: Asked, after_s: float = PAUSE_S) -> None:
        """Not in each batch: while somebody else holds all there is, that would only cost the others."""
        await asyncio.sleep(after_s)
        if self._is_stopping:
            asked.fail(StoreUnavailable("the server is stopping: try again"))
        else:
            self._enqueue(asked)

    def _put_aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._set_aside.add(task)
        task.add_done_callback(self._set_aside.discard)

    async def _do_aside(self, asked: Asked) -> None:
        """On a second connection, so that somebody's slow transaction stalls nobody else."""
        # What it waits for a thread counts, too; what a claim waits for a task does not.
        since_s = min(time.monotonic(), asked.arrived_s + asked.wait_s)
        run_alone = sync_to_async(_run_alone, thread_sensitive=False, executor=waiting_for_locks)
        try:
            tasks = await run_alone(asked.operation, self._connection.using, since_s)
        except Exception as error:
            asked.fail(error)
        else:
            self._settle(asked, tasks)

    def _note_levels(self) -> None:
        """By the clock and not by the work: when the database hangs is when somebody looks at them."""
        self._notice_a_stop()
        self._ticked_s = time.time()
        meters.set("processes", 1)
        meters.set("waiting_claims", len(self._waiting))
        meters.set("queued_operations", len(self._queue))
        self._next_levels = self._loop.call_later(LEVELS_EVERY_S, self._note_levels)

    def _forget_levels(self) -> None:
        self._next_levels.cancel()
        for level in ("processes", "waiting_claims", "queued_operations"):
            meters.set(level, 0)

    async def _watch(self) -> None:
        """Wake waiting claims by what no commit of this process tells: times that come, other processes."""
        while True:
            await self._waiting.time_to_look()
            if groups := self._waiting.groups():
                try:
                    waiting = self._waiting
                    steps = self._connection.dialect.supply_of(groups, waiting.depends(), waiting.owners())
                    supply = await self._connection.read(steps)
                except TaskStoreError as error:  # The next turn looks again; those who wait go on waiting.
                    waiting.problem = error if isinstance(error, StoreUnavailable) else None
                    continue
                if waiting.problem:
                    waiting.problem = None
                    self._rest()
                waiting.note(supply)


def _prepare(batch: Sequence[Asked], done: Done) -> None:
    """Prepare the answers, while the database commits what they say."""
    for asked, decision in zip(batch, done.decisions, strict=True):
        if isinstance(decision, list):
            with suppress(Exception):  # What fails here fails again in `succeed`, where it concerns nobody else.
                asked.prepare(decision)


def are_large(operations: Sequence[Operation]) -> bool:
    """Whether the batch is about so much that the event loop can't wait for it."""
    weights = [operation.weight for operation in operations]
    if sum(weights) > MOST_AT_ONCE or max(weights, default=0) > MOST_OF_ONE:
        return True
    return sum([operation.data_bytes for operation in operations]) > MOST_BYTES_AT_ONCE


def note_once_committed(using: str, supply: Supply) -> None:
    """Tell claims that wait, in every process, what the open transaction adds, once it is committed."""
    if writer := running(using):
        transaction.on_commit(partial(writer.note, supply), using=using)
        return
    if supply.soon:
        tell_once_committed(supply.soon, using)
    if supply.shared_batches:
        transaction.on_commit(partial(_close_batches, supply.shared_batches, using), using=using, robust=True)


def _close_batches(batches: Collection[int], using: str) -> None:
    for commit in database.dialect_of(using).drive(looks_at(batches, database.dialect_of(using))):
        database.run(commit, using, told=partial(note_once_committed, using))


def _run_alone(operation: Operation, using: str, since_s: float) -> list[TaskRecord]:
    try:
        return database.run(operation, using, since_s, partial(note_once_committed, using))
    finally:
        connections[using].close()  # The thread may never be used again.
