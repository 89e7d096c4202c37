"""The engine of every worker. It claims tasks, has an executor run them, renews their leases, reports, and stops.

One thread claims, one renews leases (lease_keeper.py), one sends heartbeats (heartbeat.py), one writes results
(settling.py), one waits for news of cancelled tasks, and others run one attempt at a time each, or wait for the process
that does. The thread of `run` never waits for the store, so that it can end everything in time.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ..client.errors import UnexpectedAnswer
from ..types.job_record import LEFT_LABEL
from ..types.tasks import Order
from .heartbeat import SEND_EVERY_S, Chore, Heartbeat, Reports
from .lease_keeper import AWAY, SOON_S, Held, Keeper
from .orphans import is_dead
from .settling import LOOK_S, Entry, Settling
from .store import Store

if TYPE_CHECKING:
    from ..types.tasks import Task

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
SAME_S = 0.5  # A second signal within this time is the first one, passed on.
LATE_S = 5.0  # After this an unanswered request is logged, because the client retries silently.
ANSWER_S = 0.1
CLAIM_S = 0.5  # How long to wait at the end for a claim under way. The server gives nothing to a closed connection.
LOOK_AGAIN_S = 0.05  # Whether the leases are renewed.
AFTER_OTHERS_S = 2.0  # The pause before the first claim after an outage, for the renewals of other workers.
COMES_S, COMES_LATER_S = 0.2, 1.0  # Until the next look for tasks that will be available soon, or later.
HEARD_MS = 30_000  # The age of a heartbeat, from which on its worker counts as gone.
MOST_LOOKED_AT = 200
PATIENCE_S = 5.0  # With an unavailable store, after the grace period.
RATE_S, LEAST_RATE_S = 0.2, 0.01  # Over how long the rate of ends is taken.
BUSY_PER_S, TOGETHER, TOGETHER_S = 100, 5, 0.02  # From this rate on so many results wait for each other, and how long.
AHEAD_S, AHEAD_OF_LEASE = 0.05, 0.02  # How much work to claim ahead of its turn: seconds, and this part of a lease.
MOST_AHEAD, MOST_OF_A_CLAIM = 1_000, 300
MOST_NAMED = 3
LONG_S, WATCH_MS = 0.5, 10_000  # Tasks that take longer can be cancelled meanwhile; how long to wait for the news.


def nothing(_: object) -> None:
    """Do nothing: for example, to interrupt what does not run yet."""


@dataclass(slots=True, kw_only=True, eq=False)
class Attempt(Held):
    """A claimed task that runs or waits for that. Executors add what they know of it."""

    task: Task  # As it was claimed.
    current: Task = field(init=False)
    is_lost: bool = False
    is_cancelled: bool = False
    taken_at: float = field(default_factory=time.monotonic)
    is_interrupted: bool = False
    is_over: bool = False
    _interrupt: Callable[[Any], object] = nothing

    def __post_init__(self) -> None:
        self.current = self.task

    def lose(self) -> None:
        self.is_lost = True
        self.interrupt()

    def on_interrupt(self, interrupt: Callable[[Any], object]) -> None:
        """Set how to interrupt it where it runs: a function that takes the attempt, maybe more than once."""
        self._interrupt = interrupt
        if self.is_interrupted:  # After that, because it may be interrupted meanwhile.
            interrupt(self)

    def interrupt(self) -> None:
        """Have it end, because its lease is lost or the grace period is over."""
        self.is_interrupted = True
        self._interrupt(self)


A = TypeVar("A", bound=Attempt)


class Line(Generic[A]):
    """Attempts that wait for a place, the longest waiting first. Threads may share it."""

    def __init__(self) -> None:
        self._attempts: deque[A] = deque()
        self._is_over = False
        self._change = threading.Condition()  # Guards the two above.

    def add(self, attempts: Sequence[A]) -> None:
        with self._change:
            self._attempts.extend(attempts)
            self._change.notify(len(attempts))

    def put_back(self, attempt: A) -> None:
        with self._change:
            self._attempts.appendleft(attempt)
            self._change.notify()

    def take(self, most: int) -> Sequence[A]:
        with self._change:
            return [self._attempts.popleft() for _ in range(min(most, len(self._attempts)))]

    def wait(self) -> A | None:
        """Return an attempt as soon as there is one; None at the end."""
        with self._change:
            while not (self._attempts or self._is_over):
                self._change.wait()
            return self._attempts.popleft() if self._attempts else None

    def take_old(self, taken_before: float) -> Sequence[A]:
        """Return those that wait since then."""
        with self._change:
            if not self._attempts or self._attempts[0].taken_at >= taken_before:
                return ()
            old = [attempt for attempt in self._attempts if attempt.taken_at < taken_before]
            self._attempts = deque(attempt for attempt in self._attempts if attempt.taken_at >= taken_before)
        return old

    def end(self) -> None:
        with self._change:
            self._is_over = True
            self._change.notify_all()


R = TypeVar("R")  # How an attempt ended.


class Executor(Protocol[A, R]):
    """What is particular to the tasks of a worker."""

    end_s: float  # How long attempts may take to end after an interrupt.
    at_once: int  # How many may run at the same time.
    given_back: R  # The outcome of attempts that the worker gives up.

    def start(self, engine: Engine[A, R]) -> Sequence[Chore]:
        """Get ready before the first claim. Returns chores of the heartbeat. Raises an error if tasks can't be run."""

    def place(self) -> Callable[[A], R]:
        """Return a function for a thread, which runs an attempt to its end. An error ends the worker."""

    def begin(self, attempts: Sequence[A]) -> Sequence[A]:
        """Run attempts that need no thread. Returns the others."""

    def room(self, in_work: int) -> int:
        """Return how many tasks to claim; 0: none until an attempt has ended."""

    def attempts(self, tasks: Sequence[Task], own: Mapping[int, A]) -> Iterable[A]:
        """Return attempts at tasks that were just claimed, less those that can't be run.

        `own`: by their first ids, the attempts of this worker at these tasks that have not ended, and count no more.
        """

    def renewed_at(self) -> float:
        """When the lease was renewed that was renewed before all others, of those that the keeper does not renew.

        By the monotonic clock; math.inf: there are none.
        """

    def entry(self, attempt: A, outcome: R) -> Entry | None:
        """Return what to write. Called by the thread that writes."""

    def end(self) -> None:
        """Release all resources. Attempts that still run are over."""

    def info(self) -> Mapping[str, Any]:
        """Return the `info` of a heartbeat."""


class Engine(Generic[A, R]):
    """The base of all workers.

    `groups`: the groups to claim from. `grace_s`: how long running tasks may continue when the worker stops.
    `left`: with `until_empty`, what was left because it comes later; empty otherwise.
    """

    burst_wait_s: float | None = None  # By default; None: not to look for what comes later.

    def __init__(
        self,
        store: Store,
        executor: Executor[A, R],
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
        for_claims = getattr(type(store), "for_claims", lambda store, _=None: store)
        self._claiming: Any = for_claims(store, self._renewals_first)
        self._watching: Any = for_claims(store)  # As it waits, too.
        hurried = getattr(type(store), "in_a_hurry", lambda store: store)
        writing: Store = hurried(store)  # Renewals and results come before the claims of others.
        self.works: set[A] = set()
        self._following: dict[A, A] = {}  # What to begin when an attempt at the same task has ended.
        self._lines: list[Line[A]] = []
        self._line = self.new_line()  # Of those that need a thread.
        self._ended, self._ended_since = 0.0, time.monotonic()
        self._ahead_s = min(AHEAD_S, lease_ms / 1_000 * AHEAD_OF_LEASE)
        self.change = threading.Condition()  # Guards `works`, `stopping`, what follows and the two above.
        self.stopping = threading.Event()
        self._has_ended = threading.Event()
        self.is_to_stop = False  # Known at once, also in a signal handler; `stopping` follows.
        self.keeper = Keeper(writing, lease_ms)
        self.settling = Settling(writing, self.keeper, self._is_patient, self.fail, self._wake, self._rest_s)
        self.reports = Reports(store)
        self._executor, self.groups = executor, groups
        self._lease_ms, self._order, self._wait_ms, self._grace_s = lease_ms, order, wait_ms, grace_s
        self._grace_ends_at = math.inf
        self._calls: SimpleQueue[None] = SimpleQueue()  # Calls of `stop`. Safe to use in a signal handler.
        self._problem: BaseException | None = None
        self._has_claimed_all = False  # By a claim ahead.
        self._idle_since = math.inf  # Since then nothing was available.
        self.left: Sequence[str] = ()
        self._asked_wait_s = 0.0  # Of the claim under way.
        self._expected_at = math.inf  # When it should have been answered.
        self._away_since = math.inf  # When the first claim was sent that was not answered.
        # Errors to retry. Until a task store has answered, an unexpected answer means a wrong address.
        self._passing: tuple[type[Exception], ...] = AWAY

    def run(self, *, until_empty: bool = False, burst_wait_s: float | None = None) -> None:
        """Work until `stop` is called, or until SIGTERM or SIGINT. It can be called once.

        `until_empty`: work only until no task is available. Wait up to `burst_wait_s` for tasks that run again later,
        whose worker is gone, or whose group is paused or at its limit; what comes even later is in `left`. Don't wait
        for tasks that are due later, or that other workers have. Signals are handled in the main thread only; a second
        one ends the process at once. Raises NotAllowed if the token is not valid or not sufficient.
        """
        self._until_empty = until_empty
        self._burst_wait_s = self.burst_wait_s if burst_wait_s is None else burst_wait_s
        if until_empty:
            self._wait_ms = 0
        chores = [*self._executor.start(self), (SEND_EVERY_S, self.reports.send)]
        for number in range(1, self._executor.at_once + 1):
            threading.Thread(target=self._work, name=f"work {number}", daemon=True).start()
        with stopping_by_signals(self.stop), without_looking_at_old_objects():
            self._claims = threading.Thread(target=self._claim_until_stopped, name="claims", daemon=True)
            self._heartbeat = Heartbeat(
                self.store, self.name, self.groups, self._executor.info, self.keeper.outage, chores
            )
            self._cancels = threading.Thread(target=self._watch_cancelled, name="cancelled", daemon=True)
            for part in (self.settling, self.keeper, self._heartbeat, self._claims, self._cancels):
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
        self.is_to_stop = True
        self._calls.put(None)

    # ---- For executors

    def new_line(self) -> Line[A]:
        """Return a line whose attempts are given back when the worker stops."""
        self._lines.append(Line())
        return self._lines[-1]

    def finish(self, outcomes: Sequence[tuple[A, R]]) -> None:
        """Have the outcomes written, and other tasks claimed. The first outcome of an attempt counts."""
        entry = self._executor.entry
        with self.change:
            ended = [(attempt, outcome) for attempt, outcome in outcomes if not attempt.is_over]
            # Before they leave the works: somebody may look whether nothing is left to do.
            self.settling.put([(partial(entry, *each), getattr(each[1], "size", 0)) for each in ended])
            for attempt, _ in ended:
                attempt.is_over = True
                self.works.discard(attempt)
            following = [
                each for attempt, _ in ended if (each := self._following.pop(attempt, None)) and not each.is_over
            ]
            self._ended += len(ended)
            if not self.works or self._room():  # Otherwise no thread waits for that.
                self.change.notify_all()
        if following:
            self._begin(following)

    def ended_per_s(self) -> float:
        """Return how many attempts end per second, of late."""
        took_s = time.monotonic() - self._ended_since
        if took_s > RATE_S:
            took_s, self._ended = took_s / 2, self._ended / 2
            self._ended_since += took_s
        return self._ended / max(took_s, LEAST_RATE_S)

    def _rest_s(self) -> float:
        """Return how long a few results wait for others, where many come: a commit for each would cost too much."""
        with self.change:
            rate = self.ended_per_s()
        return min(TOGETHER_S, TOGETHER / rate) if rate > BUSY_PER_S else 0.0

    def room(self, in_work: int) -> int:
        """Return how many tasks to claim if some are claimed ahead of their turn: what ends in a moment, of late."""
        at_once, ahead = self._executor.at_once, min(MOST_AHEAD, int(self.ended_per_s() * self._ahead_s))
        return min(at_once - in_work + ahead, MOST_OF_A_CLAIM) if in_work <= at_once + ahead // 2 else 0

    def others(self, most: int) -> Sequence[A]:
        """Return attempts that wait for a place, for one that can have several."""
        return self._line.take(most)

    def put_back(self, attempt: A) -> None:
        """Have another place run the attempt, or give it back if the worker is stopping."""
        if self.stopping.is_set():
            self.finish([(attempt, self._executor.given_back)])
        else:
            self._line.put_back(attempt)

    def give_back_waiting(self, taken_before: float = math.inf) -> None:
        """Give back attempts that wait for a place since then."""
        for line in self._lines:
            self.finish([(attempt, self._executor.given_back) for attempt in line.take_old(taken_before)])

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
                # Before the claim: what is coming may be there by then.
                was_idle = not self.works and self.settling.is_idle
                self._idle_since = min(self._idle_since, time.monotonic()) if was_idle else math.inf
                was_done = self._until_empty and was_idle and not self._expects_more()
                claimed = self._claim(room, 0 if is_ahead else self._wait_ms)
                self._has_claimed_all = is_ahead and claimed != room
                if claimed:
                    self.left, self._idle_since = (), math.inf
                if claimed == 0 and self._until_empty:
                    if was_done:
                        self.stop()
                        return
                    if was_idle:
                        is_soon = time.monotonic() < self._idle_since + COMES_LATER_S
                        self.stopping.wait(COMES_S if is_soon else COMES_LATER_S)
                    else:
                        with self.change:  # What ends may add tasks.
                            self.change.wait_for(lambda: self.stopping.is_set() or not self.works, SOON_S)
        except Exception as problem:
            self.fail(problem)

    def _expects_more(self) -> bool:
        """Whether tasks that are not available yet will be in time, also if the store can't say so now."""
        if self._burst_wait_s is None:
            return False
        left_s = self._idle_since + self._burst_wait_s - time.monotonic()
        try:
            coming = list(self._coming())
        except AWAY:  # The claim that follows tells of it.
            return True
        if left_s > 0 and any(due_ms < (time.time() + left_s) * 1_000 for due_ms, _ in coming):
            if not self.left and time.monotonic() > self._idle_since + COMES_LATER_S:
                self.left = [what for _, what in coming]
                logger.info("waiting up to %.3g s: %s", left_s, "; ".join(self.left[:MOST_NAMED]))
            return True
        self.left = [what for _, what in coming]
        return False

    def _coming(self) -> Iterator[tuple[float, str]]:
        """Yield what may be available later: when, in ms since the Epoch, 0 for soon, and what it is."""
        heard = {each.client_id: each for each in self.store.clients()}
        for group in self.groups:
            for task in self.store.search(f'group:"{group}" state:claimed', limit=MOST_LOOKED_AT).tasks:
                owner = heard.get(task.owner)
                if owner and is_dead(owner):
                    yield 0, f"task {task.origin} of {group} was leased to {owner.name}, which is dead"
                elif not owner or owner.age_ms > HEARD_MS:
                    name = owner.name if owner else f"client {task.owner}"
                    until = clock_time(task.available_at_ms)
                    yield task.available_at_ms, f"task {task.origin} of {group} is leased to {name} until {until}"
            if self.store.search(f'group:"{group}" state:ready', limit=1).tasks:
                yield 0, f"{group} has tasks that may not be claimed now: it is paused, or at its limit"
            for task in self.store.search(f'group:"{group}" state:scheduled', limit=MOST_LOOKED_AT).tasks:
                if LEFT_LABEL in task.labels:
                    function = task.labels[LEFT_LABEL]
                    yield math.inf, f"task {task.origin} of {group} needs another worker, which has {function}"
                elif task.claims:
                    due = clock_time(task.available_at_ms)
                    yield task.available_at_ms, f"task {task.origin} of {group} runs again at {due}"

    def _room(self) -> int:
        """Return how many tasks to claim. Claims ahead don't wait, and end when nothing more is available."""
        in_work = len(self.works)
        is_enough = self._has_claimed_all and in_work >= self._executor.at_once
        return 0 if is_enough or self.settling.is_full else self._executor.room(in_work)

    def _wake(self) -> None:
        with self.change:
            self.change.notify_all()

    def _claim(self, limit: int, wait_ms: int) -> int | None:
        """Return how many tasks were claimed; None: the store is unavailable."""
        asked_at, self._asked_wait_s = time.monotonic(), wait_ms / 1_000
        self._renewals_first()
        self._away_since = min(self._away_since, asked_at)
        try:
            tasks = self._claiming.claim(
                self.groups, duration_ms=self._lease_ms, limit=limit, wait_ms=wait_ms, order=self._order
            )
            self._expected_at = self._away_since = math.inf
            self._passing = (*AWAY, UnexpectedAnswer)
            self.keeper.outage.end()
            if any(task.claims > 1 for task in tasks):
                tasks = self._without_own(tasks)
            if tasks:
                self._begin(list(self._executor.attempts(tasks, {})))
            return len(tasks)
        except self._passing as problem:
            self._expected_at = math.inf
            if self.stopping.is_set():
                return None
            self.keeper.outage.begin(problem)
            self.stopping.wait(getattr(problem, "retry_after_s", SOON_S))
            return None

    def _renewals_first(self) -> None:
        """Before each try of a claim: after an outage, or when this process was stopped, wait for renewals of leases.

        They may have ended. Otherwise this worker would claim its own tasks, or those of others who had no more luck.
        """
        while self._is_behind() and not self.stopping.wait(LOOK_AGAIN_S):
            pass
        if time.monotonic() > self._away_since + self._lease_ms / 2_000:
            while not self._heartbeat.is_answered() and not self.stopping.wait(SOON_S):
                pass
            self.stopping.wait(AFTER_OTHERS_S)
        self._expected_at = time.monotonic() + self._asked_wait_s + LATE_S

    def _is_behind(self) -> bool:
        """Whether leases of this worker may have ended."""
        since = time.monotonic() - self._lease_ms / 2_000
        return min(self.keeper.answered_at, self.settling.writes_since, self._executor.renewed_at()) < since

    def _without_own(self, tasks: Sequence[Task]) -> Sequence[Task]:
        """Have attempts that run here go on with tasks of which this worker has lost the lease and claimed it again.

        If a task has changed between, its attempt is ended, and the next one begins then. Returns the other tasks.
        """
        with self.change:
            works = sorted(self.works, key=lambda work: work.taken_at)
        own = {work.task.origin: work for work in works}
        for task in tasks:
            if (work := own.get(task.origin)) and not self._goes_on(work, task):
                self.keeper.lose(work)
                for following in self._executor.attempts([task], own):
                    self._begin_after(work, following)
        return [task for task in tasks if task.origin not in own]

    def _begin_after(self, work: A, following: A) -> None:
        with self.change:
            if not work.is_over:
                self.works.add(following)
                self._following[work] = following
                return
        self._begin([following])

    def _goes_on(self, work: A, task: Task) -> bool:
        while not self.stopping.is_set():
            try:
                return self.keeper.adopt(work, task)
            except AWAY as problem:
                self.keeper.outage.begin(problem)
                self.stopping.wait(SOON_S)
        return False

    def _begin(self, attempts: Sequence[A]) -> None:
        with self.change:
            is_late = self.stopping.is_set()
            if not self.works:  # An idle time says nothing about the rate.
                self._ended_since = time.monotonic() - min(RATE_S, time.monotonic() - self._ended_since)
            self.works.update(attempts)
        if is_late:
            self.finish([(attempt, self._executor.given_back) for attempt in attempts])
        else:
            self._line.add(self._executor.begin(attempts))

    # ---- The thread that learns of cancelled tasks

    def _watch_cancelled(self) -> None:
        after = ""
        while not self._has_ended.wait(LONG_S):
            with self.change:
                if not any(time.monotonic() > attempt.taken_at + LONG_S for attempt in self.works):
                    continue
            try:
                told = self._watching.cancelled(after=after, wait_ms=WATCH_MS)
                after = told.after
                self.keeper.lose_cancelled(told.ids)
            except Exception as problem:  # They are lost when their leases are to be renewed.
                logger.debug("can't ask for cancelled tasks: %s", problem)
                self._has_ended.wait(SOON_S)

    # ---- The threads that work

    def _work(self) -> None:
        try:
            run = self._executor.place()
            while attempt := self._line.wait():
                outcome = self._executor.given_back
                try:
                    outcome = run(attempt)
                finally:
                    self.finish([(attempt, outcome)])
        except Exception as problem:
            self.fail(problem)

    # ---- The thread of `run`

    def _wait_for_a_call(self) -> None:
        while True:
            with suppress(Empty):
                return self._calls.get(timeout=LOOK_S)
            # With all places taken, it claims nothing.
            asked_at = min(self._heartbeat.asked_at, self.settling.writes_since)
            if time.monotonic() > max(min(self._expected_at, asked_at + LATE_S), self.keeper.outage.heard_at + LATE_S):
                self.keeper.outage.begin(f"it has not responded for {LATE_S:g} s")

    def _end(self) -> None:
        """Give back tasks that have not started, and after the grace period those that are not done."""
        self._grace_ends_at = time.monotonic() + self._grace_s
        with self.change:
            self.stopping.set()
            self.change.notify_all()
        # Where tasks are available, a claim is answered in a moment: whoever hangs up would leave them leased.
        self._claims.join(ANSWER_S)
        if self._claiming is not self.store:
            self._claiming.hang_up()
        self.give_back_waiting()
        if self.works:
            # Explain why Ctrl-C does not end the program at once.
            logger.info("stopping: %d running, %g s to finish", len(self.works), self._grace_s)
        self._claims.join(CLAIM_S)
        if not self._wait_until_done(self._grace_ends_at):
            for attempt in list(self.works):
                attempt.interrupt()
            self._wait_until_done(time.monotonic() + self._executor.end_s)
        self.finish([(attempt, self._executor.given_back) for attempt in list(self.works)])
        self._line.end()
        self._executor.end()
        if not self.settling.end(max(time.monotonic(), self._grace_ends_at) + PATIENCE_S):
            logger.warning("the store is not responding: other workers get unreported tasks when their leases end")
        self._heartbeat.stop()
        self.keeper.stop()
        self._has_ended.set()
        if self._claiming is not self.store:
            self._watching.hang_up()
            self._cancels.join(CLAIM_S)
            for waiting, thread in ((self._claiming, self._claims), (self._watching, self._cancels)):
                if thread.is_alive():
                    waiting.hang_up()
                else:
                    waiting.close()

    def _wait_until_done(self, until: float) -> bool:
        with self.change:
            while self.works and (left_s := until - time.monotonic()) > 0:
                self.change.wait(min(left_s, LOOK_S))
            return not self.works

    def _is_patient(self) -> bool:
        """Whether to wait for an unavailable store."""
        return time.monotonic() < self._grace_ends_at + PATIENCE_S


def left_over(left: Sequence[str]) -> str:
    """Return the sentence for what a worker has left."""
    more = len(left) - MOST_NAMED
    return f"left for later: {'; '.join(left[:MOST_NAMED])}{f'; and {more} more' if more > 0 else ''}"


def clock_time(at_ms: float) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC"


@contextmanager
def without_looking_at_old_objects() -> Iterator[None]:
    """Have the garbage collector leave out what is there now, such as Django: it takes longer than most tasks."""
    is_ours = not gc.get_freeze_count()
    if is_ours:
        gc.collect()
        gc.freeze()
    try:
        yield
    finally:
        if is_ours:
            gc.unfreeze()


@contextmanager
def stopping_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the first SIGTERM or SIGINT, and end the process at the second. Only in the main thread.

    Those that follow at once are the same one: a terminal or a service manager has sent it to all processes, and one of
    these has passed it on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    first_at = math.inf

    def on_signal(number: int, _frame: object) -> None:
        nonlocal first_at
        if time.monotonic() > first_at + SAME_S:
            os._exit(128 + number)
        first_at = min(first_at, time.monotonic())
        stop()

    before = [signal.signal(number, on_signal) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)
