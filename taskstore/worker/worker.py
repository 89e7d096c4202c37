"""SIGTERM and SIGINT: the first stops a worker, the second ends its process."""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from ..client.errors import NotAllowed, UnexpectedAnswer
from ..errors import CommitRefused
from ..types.tasks import Order
from . import verdicts
from .children import ChildDidNotStart, refuse_in_children
from .executors import LOOK_S, Crew, places
from .handlers import Function, Handler
from .heartbeat import Heartbeat
from .lease_keeper import Keeper
from .settling import AWAY, SOON_S, Attempt, Settling
from .store import Store

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopping_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """`stop` has to be what a signal handler may call. Only the main thread hears signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def hear(number: int, _frame: object) -> None:
        heard.append(number)
        if len(heard) > 1:
            os._exit(128 + number)
        stop()

    before = [signal.signal(number, hear) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)


F = TypeVar("F", bound=Function)

logger = logging.getLogger(__name__)

CLAIM_S = 0.5  # For an answer that is on its way at the end. The server gives nothing to a client that has gone.
END_S = 5.0
LATE_S = 5.0  # A client tries for a while by itself before it says that the store is away.


class Worker:
    """Claims tasks, has functions do them, and commits what they return together with the end of the task.

    Leases are renewed meanwhile, for days if need be. `store`: a Client, or what has its verbs.

    * `threads`: how many tasks are done at once; or `processes`, for functions that compute, or that may crash.
      Coroutine functions run on one event loop, as many at once as there are threads or processes.
    * `batch`: how many tasks a claim may take although there are not so many threads. They wait for their turn here.
    * `lease_ms`: how long it may take until others get the tasks of a worker that has died.
    * `grace_s`: how long what has begun may go on when the worker stops. Then it is given back.
    """

    def __init__(
        self,
        store: Store,
        *,
        name: str = "",
        lease_ms: int = 30_000,
        threads: int = 1,
        processes: int = 0,
        batch: int = 1,
        order: Order = Order.RANDOM,
        wait_ms: int = 20_000,
        grace_s: float = 8,  # Docker kills after ten.
    ) -> None:
        self.name = name or Path(sys.argv[0]).stem
        self._store = store
        self._lease_ms, self._batch, self._wait_ms, self._grace_s = lease_ms, batch, wait_ms, grace_s
        self._threads, self._processes = threads, processes
        self._order = order
        self._handlers: dict[str, Handler] = {}
        self._keeper = Keeper(store, lease_ms)
        self._settling = Settling(store, self._keeper)
        self._last_words: SimpleQueue[BaseException | None] = SimpleQueue()
        self._stopping = threading.Event()
        self._expected_at_s = math.inf  # When the claim that is under way should have been answered.
        # What passes by itself. Until it is known that a task store answers, anything else speaks of a wrong address.
        self._passing: tuple[type[Exception], ...] = AWAY

    def handle(
        self, group: str, *, max_attempts: int = 5, backoff_ms: int = 1_000, failed_group: str = ""
    ) -> Callable[[F], F]:
        """A decorator: the function does the tasks of the group. It takes the task, and a Context if it can.

        It returns what is added (NewTask) or changed (Change) by the commit that deletes the task: one, several, a
        Result with all that a commit can hold, or None. When it raises an exception it is tried again after
        `backoff_ms`, then after twice as long and so on, an hour at most; after the last attempt the task is moved
        with its error to the failed group, `GROUP/failed` unless another one is named. `Discard` deletes the task
        at once, `Save` moves it at once.
        """

        if group in self._handlers:
            raise ValueError(f"another function handles {group!r} already")

        def keep(function: F) -> F:
            self._handlers[group] = Handler(
                group=group,
                function=function,
                failed_group=failed_group or f"{group}/failed",
                max_attempts=max_attempts,
                backoff_ms=backoff_ms,
            )
            return function

        return keep

    def run(self) -> None:
        """Work until `stop` is called, or SIGTERM or SIGINT come. Raises NotAllowed when the token does not do.

        It can be called once. In the main thread it listens for the signals; a second one ends the process at once.
        """
        if not self._handlers:
            raise ValueError("no function handles any group: decorate one with worker.handle(GROUP)")
        refuse_in_children()
        with stopping_by_signals(self.stop):
            self._begin()
            try:
                problem = self._last_word()
            finally:
                self._end()
        if problem:
            raise problem

    def stop(self) -> None:
        """Have `run` come to its end. It may be called by any thread, and by a signal handler."""
        self._last_words.put(None)

    @property
    def ended(self) -> Mapping[str, int]:
        """How many attempts have ended how: `done`, `failed`, `discarded`, `saved`, `lost`."""
        return dict(self._settling.ended)

    def _begin(self) -> None:
        where = places(self._handlers, threads=self._threads, processes=self._processes)
        self._crew = Crew(where, self._settling.finish, self._fail)
        self._heartbeat = Heartbeat(self._store, self.name, self._handlers, self._info)
        self._claims = threading.Thread(target=self._claim_until_stopped, name="claims", daemon=True)
        for part in (self._keeper, self._crew, self._heartbeat, self._claims):
            part.start()

    def _last_word(self) -> BaseException | None:
        """Why it ends; None: it was told to."""
        while True:
            with suppress(Empty):
                return self._last_words.get(timeout=LOOK_S)
            if time.monotonic() > self._expected_at_s:
                self._keeper.outage.begin(f"it has not answered for {LATE_S:g} s")

    def _end(self) -> None:
        """Others get at once what is not begun, and after the grace what is not finished."""
        self._stopping.set()
        self._give_back(self._crew.close())
        self._claims.join(CLAIM_S)
        unfinished = [attempt for attempt in self._crew.wait(self._grace_s) if attempt.take_settling()]
        self._crew.end()
        self._give_back(unfinished)
        self._heartbeat.stop()
        self._keeper.stop()

    def _give_back(self, attempts: Collection[Attempt]) -> None:
        """A store that is away is not waited for."""
        giving = threading.Thread(target=self._settling.give_back, args=[attempts], name="end", daemon=True)
        giving.start()
        giving.join(END_S)

    def _claim_until_stopped(self) -> None:
        try:
            while room := self._crew.wait_for_room():
                self._take(self._claim(max(room, self._batch)))
        except Exception as problem:
            self._last_words.put(problem)

    def _claim(self, limit: int) -> list[Attempt]:
        """Nothing when there is nothing to do, or the store is away."""
        self._expected_at_s = time.monotonic() + self._wait_ms / 1_000 + LATE_S
        try:
            tasks = self._store.claim(
                self._handlers, duration_ms=self._lease_ms, limit=limit, wait_ms=self._wait_ms, order=self._order
            )
            attempts = self._noted([Attempt(task, self._handlers[task.group], self.name) for task in tasks])
        except self._passing as problem:
            self._keeper.outage.begin(problem)
            self._stopping.wait(getattr(problem, "retry_after_s", SOON_S))
            return []
        finally:
            self._expected_at_s = math.inf
        self._passing = (*AWAY, UnexpectedAnswer)
        self._keeper.outage.end()
        return attempts

    def _noted(self, attempts: list[Attempt]) -> list[Attempt]:
        """With the number of the attempt in those tasks that were claimed before: their last workers may have died."""
        first = [attempt for attempt in attempts if attempt.task.claims <= 1]
        again = [attempt for attempt in attempts if attempt.task.claims > 1]
        if not again:
            return first
        try:
            tasks = self._store.commit(updates=[verdicts.noted(attempt.task, self._lease_ms) for attempt in again])
        except CommitRefused as refused:
            logger.warning("%d tasks are lost already: %s", len(again), refused)
            return first
        for attempt, task in zip(again, tasks, strict=True):
            attempt.task = task
        return first + again

    def _take(self, attempts: Iterable[Attempt]) -> None:
        late = []
        for attempt in attempts:
            attempt.held = self._keeper.keep(attempt.task, attempt.lose)
            if not self._crew.take(attempt):
                late.append(attempt)
        self._settling.give_back(late)

    def _fail(self, problem: BaseException) -> None:
        """What can only get worse ends the worker."""
        if isinstance(problem, NotAllowed | ChildDidNotStart):
            self._last_words.put(problem)
        else:
            logger.error("a task could not be settled; others get it when its lease has ended", exc_info=problem)

    def _info(self) -> dict[str, Any]:
        """For the page of the workers."""
        return {"in_work": self._crew.in_work, **self.ended}
