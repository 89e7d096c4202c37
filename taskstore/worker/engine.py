"""The engine of every worker. It claims tasks, has an executor run them, renews their leases, reports, and stops.

One thread claims, one renews leases (lease_keeper.py), one sends heartbeats (heartbeat.py); executors add their own.
The thread of `run` never waits for the store, so that it can end everything in time.
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
LOOK_S = 0.5  # How often the main thread wakes, because a signal delivered to another thread is handled only then.
LATE_S = 5.0  # After this an unanswered claim is logged, because the client retries silently.
CLAIM_S = 0.5  # How long to wait at the end for a claim under way. The server gives nothing to a closed connection.
PATIENCE_S = 5.0  # With an unavailable store, after the grace period.

W = TypeVar("W")  # The executor's record of a task in progress.


class Executor(Protocol[W]):
    """Runs the tasks of a worker. It registers each with `engine.begin` and ends it with `engine.done`."""

    end_s: float  # How long tasks may take to end after an interrupt.
    at_once: int  # How many tasks may run at the same time.
    chores: Sequence[Chore]  # Called by the heartbeat thread.

    def is_idle(self) -> bool:
        """Whether all results of tasks that have ended are written."""

    def start(self, engine: Engine[W]) -> None:
        """Get ready before the first claim. Raises an error if tasks can't be run."""

    def room(self, in_work: int) -> int:
        """Return how many tasks to claim; 0: none until a task is done."""

    def take(self, tasks: Sequence[Task]) -> None:
        """Start tasks that were just claimed. Called by the claiming thread."""

    def stop(self) -> None:
        """Give back tasks that have not started, because the worker stops."""

    def interrupt(self) -> None:
        """Interrupt running tasks, because the grace period is over."""

    def end(self) -> None:
        """Release all resources and give up tasks that still run."""

    def info(self) -> Mapping[str, Any]:
        """Return the `info` of a heartbeat."""


class Engine(Generic[W]):
    """The base of all workers.

    `groups`: the groups to claim from. `grace_s`: how long running tasks may continue when the worker stops.
    """

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
        # A claim that waits when the worker stops must not get what the worker gives back.
        for_claims = getattr(type(store), "for_claims", None)
        self._claiming: Any = for_claims(store) if for_claims else store
        self.works: dict[int, W] = {}  # By the id with which the task was claimed.
        self.change = threading.Condition()  # Guards `works` and `stopping`.
        self.stopping = threading.Event()
        self.keeper = Keeper(store, lease_ms)
        self.settling = Settling(store, self.keeper.outage, self._is_patient)
        self._executor, self.groups = executor, groups
        self._lease_ms, self._order, self._wait_ms, self._grace_s = lease_ms, order, wait_ms, grace_s
        self._grace_ends_at = math.inf
        self._calls: SimpleQueue[None] = SimpleQueue()  # Calls of `stop`. Safe to use in a signal handler.
        self._problem: BaseException | None = None
        self._has_claimed_all = False  # By a claim ahead.
        self._expected_at = math.inf  # When the claim under way should have been answered.
        # Errors to retry. Until a task store has answered, an unexpected answer means a wrong address.
        self._passing: tuple[type[Exception], ...] = AWAY

    def run(self, *, until_empty: bool = False) -> None:
        """Work until `stop` is called, or until SIGTERM or SIGINT. It can be called once.

        `until_empty`: work only until no task is available, without waiting for those that are due later or that other
        workers have. Signals are handled in the main thread only; a second one ends the process at once. Raises
        NotAllowed if the token is not valid or not sufficient.
        """
        self._until_empty = until_empty
        if until_empty:
            self._wait_ms = 0
        self._executor.start(self)
        with stopping_by_signals(self.stop):
            self._claims = threading.Thread(target=self._claim_until_stopped, name="claims", daemon=True)
            self._heartbeat = Heartbeat(self.store, self.name, self.groups, self._executor.info, self._executor.chores)
            for part in (self.keeper, self._heartbeat, self._claims):
                part.start()
            logger.info(
                "%s is processing %s, at most %d at a time", self.name, ", ".join(self.groups), self._executor.at_once
            )
            try:
                self._wait_for_a_call()
            finally:
                self._end()
        if self._problem:
            raise self._problem

    def stop(self) -> None:
        """Make `run` return. May be called by any thread and by a signal handler."""
        self._calls.put(None)

    # ---- For executors

    def begin(self, id: int, work: W, run: Callable[[], object]) -> bool:
        """Register a task and call `run`, which must be quick. Returns False if the worker is stopping."""
        with self.change:
            if self.stopping.is_set():
                return False
            self.works[id] = work
            run()
            return True

    def done(self, *ids: int) -> None:
        """Remove tasks that have ended, so that others can be claimed."""
        with self.change:
            for each in ids:
                self.works.pop(each, None)
            self.change.notify_all()

    def beat(self) -> object:
        """Send a heartbeat now. Returns the answer; None if the store is unavailable."""
        return self._heartbeat.beat()

    def fail(self, problem: BaseException) -> None:
        """Stop the worker because of an error, which `run` raises."""
        self._problem = self._problem or problem
        with self.change:
            self.stopping.set()  # Start no more tasks: the thread that runs them may have ended.
            self.change.notify_all()
        self.stop()

    # ---- The thread that claims

    def _claim_until_stopped(self) -> None:
        try:
            while True:
                with self.change:
                    # Keep the answer, because a second call may return less.
                    room = self.change.wait_for(lambda: self.stopping.is_set() or self._room())
                    is_ahead = len(self.works) >= self._executor.at_once
                if self.stopping.is_set():
                    return
                was_idle = not self.works and self._executor.is_idle()
                claimed = self._claim(room, 0 if is_ahead else self._wait_ms)
                self._has_claimed_all = is_ahead and claimed != room
                if claimed == 0 and self._until_empty:
                    if was_idle:
                        self.stop()
                        return
                    with self.change:  # What ends may add tasks.
                        self.change.wait_for(lambda: self.stopping.is_set() or not self.works, SOON_S)
        except Exception as problem:
            self.fail(problem)

    def _room(self) -> int:
        """Return how many tasks to claim. Claims ahead don't wait, and end when nothing more is available."""
        in_work = len(self.works)
        is_enough = self._has_claimed_all and in_work >= self._executor.at_once
        return 0 if is_enough else self._executor.room(in_work)

    def _claim(self, limit: int, wait_ms: int) -> int | None:
        """Return how many tasks were claimed; None: the store is unavailable."""
        self._expected_at = time.monotonic() + wait_ms / 1_000 + LATE_S
        try:
            tasks = self._claiming.claim(
                self.groups, duration_ms=self._lease_ms, limit=limit, wait_ms=wait_ms, order=self._order
            )
            self._expected_at = math.inf
            self._passing = (*AWAY, UnexpectedAnswer)
            self.keeper.outage.end()
            self._executor.take(tasks)
            return len(tasks)
        except self._passing as problem:
            self._expected_at = math.inf
            if self.stopping.is_set():
                return None
            self.keeper.outage.begin(problem)
            self.stopping.wait(getattr(problem, "retry_after_s", SOON_S))
            return None

    # ---- The thread of `run`

    def _wait_for_a_call(self) -> None:
        while True:
            with suppress(Empty):
                return self._calls.get(timeout=LOOK_S)
            if time.monotonic() > self._expected_at:
                self.keeper.outage.begin(f"it has not responded for {LATE_S:g} s")

    def _end(self) -> None:
        """Give back tasks that have not started, and after the grace period those that are not done."""
        self._grace_ends_at = time.monotonic() + self._grace_s
        with self.change:
            self.stopping.set()
            self.change.notify_all()
        if self._claiming is not self.store:
            self._claiming.hang_up()
        self._executor.stop()
        if self.works:
            # Explain why Ctrl-C does not end the program at once.
            logger.info("stopping: %d running, %g s to finish", len(self.works), self._grace_s)
        self._claims.join(CLAIM_S)
        if not self._wait_until_done(self._grace_ends_at):
            self._executor.interrupt()
            self._wait_until_done(time.monotonic() + self._executor.end_s)
        self._executor.end()
        self._heartbeat.stop()
        self.keeper.stop()
        if self._claiming is not self.store and not self._claims.is_alive():
            self._claiming.close()

    def _wait_until_done(self, until: float) -> bool:
        with self.change:
            while self.works and (left_s := until - time.monotonic()) > 0:
                self.change.wait(min(left_s, LOOK_S))
            return not self.works

    def _is_patient(self) -> bool:
        """Whether to wait for an unavailable store."""
        return time.monotonic() < self._grace_ends_at + PATIENCE_S


@contextmanager
def stopping_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the first SIGTERM or SIGINT, and end the process at the second. Only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def on_signal(number: int, _frame: object) -> None:
        received.append(number)
        if len(received) > 1:
            os._exit(128 + number)
        stop()

    before = [signal.signal(number, on_signal) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)
