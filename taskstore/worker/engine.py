"""The engine of every worker. It claims tasks, has an executor run them, renews their leases, reports, and stops.

One thread claims, one renews leases (lease_keeper.py), one reports (heartbeat.py); executors add their own. The thread
of `run` never waits for the store: it sees to it that everything ends in time.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ..client.errors import UnexpectedAnswer
from ..types.tasks import Order
from .heartbeat import Chore, Heartbeat
from .lease_keeper import Keeper
from .settling import AWAY, SOON_S, Settling
from .store import Store

if TYPE_CHECKING:
    from ..types.tasks import Task

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
LOOK_S = 0.5  # How often the main thread wakes: a signal that another thread was given is handled only then.
LATE_S = 5.0  # A client tries for a while by itself before it says that the store is away.
CLAIM_S = 0.5  # For an answer that is on its way at the end. The server gives nothing to a client that has gone.
PATIENCE_S = 5.0  # With a store that does not answer, after the grace.

W = TypeVar("W")  # What an executor keeps of a task in work.


class Executor(Protocol[W]):
    """Runs the tasks of a worker. It enters each with `engine.begin`, and settles it before or after `engine.done`."""

    end_s: float  # How long work may take to end once it was interrupted.
    at_once: int  # How many tasks may run at the same time.
    chores: Sequence[Chore]  # What the thread that reports does besides.

    def start(self, engine: Engine[W]) -> None:
        """Get ready, before the first claim. Raises whatever keeps it from running tasks."""

    def room(self, in_work: int) -> int:
        """How many tasks to claim. 0: none until something in work is done."""

    def take(self, tasks: Sequence[Task]) -> None:
        """Begin tasks that have just been claimed, in the thread that claims."""

    def stop(self) -> None:
        """The worker stops: give back what is not begun."""

    def interrupt(self) -> None:
        """The grace is over: end what is in work."""

    def end(self) -> None:
        """Leave nothing behind. What is still in work then is given up."""

    def info(self) -> Mapping[str, Any]:
        """What the page of workers shows."""


class Engine(Generic[W]):
    """`groups`: where it claims. `grace_s`: how long work may go on when it stops."""

    def __init__(
        self,
        store: Store,
        executor: Executor[W],
        groups: Collection[str],
        *,
        name: str,
        lease_ms: int,
        order: Order,
        wait_ms: int,
        grace_s: float,
    ) -> None:
        self.name = name
        self.store = store
        self.works: dict[int, W] = {}  # By the id that the task was claimed with.
        self.change = threading.Condition()  # Of what is in work, and of whether more may be.
        self.stopping = threading.Event()
        self.keeper = Keeper(store, lease_ms)
        self.settling = Settling(store, self.keeper.outage, self._is_patient)
        self._executor, self._groups = executor, groups
        self._lease_ms, self._order, self._wait_ms, self._grace_s = lease_ms, order, wait_ms, grace_s
        self._grace_ends_at = math.inf
        self._calls: SimpleQueue[None] = SimpleQueue()  # To stop. A signal handler may put something in.
        self._problem: BaseException | None = None
        self._expected_at = math.inf  # When the claim that is under way should have been answered.
        # What passes by itself. Until it is known that a task store answers, anything else speaks of a wrong address.
        self._passing: tuple[type[Exception], ...] = AWAY

    def run(self) -> None:
        """Work until `stop` is called, or SIGTERM or SIGINT come. Raises NotAllowed when the token does not do.

        It can be called once. In the main thread it listens for the signals; a second one ends the process at once.
        """
        self._executor.start(self)
        with stopping_by_signals(self.stop):
            self._claims = threading.Thread(target=self._claim_until_stopped, name="claims", daemon=True)
            self._heartbeat = Heartbeat(self.store, self.name, self._groups, self._executor.info, self._executor.chores)
            for part in (self.keeper, self._heartbeat, self._claims):
                part.start()
            logger.info(
                "%s works for %s, at most %d at a time", self.name, ", ".join(self._groups), self._executor.at_once
            )
            try:
                self._wait_for_a_call()
            finally:
                self._end()
        if self._problem:
            raise self._problem

    def stop(self) -> None:
        """Have `run` come to its end. It may be called by any thread, and by a signal handler."""
        self._calls.put(None)

    # ---- For executors

    def begin(self, id: int, work: W, run: Callable[[], object]) -> bool:
        """Enter the work and `run` it, which should be quick. False: the worker stops, and nothing more is begun."""
        with self.change:
            if self.stopping.is_set():
                return False
            self.works[id] = work
            run()
            return True

    def done(self, *ids: int) -> None:
        """There is room for others."""
        with self.change:
            for each in ids:
                self.works.pop(each, None)
            self.change.notify_all()

    def fail(self, problem: BaseException) -> None:
        """End the worker, as it can only get worse: `run` raises it."""
        self._problem = self._problem or problem
        with self.change:
            self.stopping.set()  # What is begun from now on, nobody might run.
            self.change.notify_all()
        self.stop()

    # ---- The thread that claims

    def _claim_until_stopped(self) -> None:
        try:
            while limit := self._wait_for_room():
                self._claim(limit)
        except Exception as problem:
            self.fail(problem)

    def _wait_for_room(self) -> int:
        """How many tasks to claim. 0: no more."""
        with self.change:
            # Asked once: an executor may have less room when it is asked again.
            limit = self.change.wait_for(lambda: self.stopping.is_set() or self._executor.room(len(self.works)))
            return 0 if self.stopping.is_set() else limit

    def _claim(self, limit: int) -> None:
        self._expected_at = time.monotonic() + self._wait_ms / 1_000 + LATE_S
        try:
            tasks = self.store.claim(
                self._groups, duration_ms=self._lease_ms, limit=limit, wait_ms=self._wait_ms, order=self._order
            )
            self._expected_at = math.inf
            self._passing = (*AWAY, UnexpectedAnswer)
            self.keeper.outage.end()
            self._executor.take(tasks)
        except self._passing as problem:
            self._expected_at = math.inf
            self.keeper.outage.begin(problem)
            self.stopping.wait(getattr(problem, "retry_after_s", SOON_S))

    # ---- The thread of `run`

    def _wait_for_a_call(self) -> None:
        while True:
            with suppress(Empty):
                return self._calls.get(timeout=LOOK_S)
            if time.monotonic() > self._expected_at:
                self.keeper.outage.begin(f"it has not answered for {LATE_S:g} s")

    def _end(self) -> None:
        """Others get at once what is not begun, and after the grace what is not done."""
        self._grace_ends_at = time.monotonic() + self._grace_s
        with self.change:
            self.stopping.set()
            self.change.notify_all()
        self._executor.stop()
        if self.works:
            # Else whoever pressed Ctrl-C wonders why it goes on.
            logger.info("stopping: %d running, %g s to finish", len(self.works), self._grace_s)
        self._claims.join(CLAIM_S)
        if not self._wait_until_done(self._grace_ends_at):
            self._executor.interrupt()
            self._wait_until_done(time.monotonic() + self._executor.end_s)
        self._executor.end()
        self._heartbeat.stop()
        self.keeper.stop()

    def _wait_until_done(self, until: float) -> bool:
        with self.change:
            while self.works and (left_s := until - time.monotonic()) > 0:
                self.change.wait(min(left_s, LOOK_S))
            return not self.works

    def _is_patient(self) -> bool:
        """Whether to wait for a store that is away."""
        return time.monotonic() < self._grace_ends_at + PATIENCE_S


@contextmanager
def stopping_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """The first SIGTERM or SIGINT calls `stop`, the second ends the process. Only the main thread hears signals."""
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
