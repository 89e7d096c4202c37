"""The executor of functions. Its threads call them, or pass them to processes or to an event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from ..client.errors import NotAllowed
from ..errors import CommitRefused, InvalidInput
from ..types.tasks import ATTEMPTS as ATTEMPTS_LABEL
from ..types.tasks import Change, NewTask
from .function_processes import InProcess, started
from .handlers import Context, Handler, How, Outcome, Result
from .heartbeat import SEND_EVERY_S, Chore, Reports
from .lease_keeper import Held, named, nothing
from .settling import Entry

if TYPE_CHECKING:
    from ..types.tasks import Task
    from .engine import Engine

logger = logging.getLogger(__name__)

LOOP_END_S = 1.0
GIVE_BACK_S = 5.0


class Attempt:
    """One call of a function. `held` is set when the renewal of its lease starts."""

    held: Held

    def __init__(self, task: Task, handler: Handler, worker: str, reports: Reports) -> None:
        self.task = task  # As passed to the function.
        self.handler = handler
        self.context = Context(attempt_of(task), worker, partial(reports.note, task.origin))
        self._interrupt: Callable[[], object] = nothing
        self._settling = threading.Lock()
        self.began_at = time.monotonic()

    @property
    def number(self) -> int:
        return self.context.attempt

    @property
    def is_lost(self) -> bool:
        return self.context.lost.is_set()

    def lose(self) -> None:
        """Tell the function that its lease is lost."""
        self.context.lost.set()
        self._interrupt()

    def on_interrupt(self, interrupt: Callable[[], object]) -> None:
        """Set how to interrupt the function where it runs. `interrupt` may be called twice."""
        self._interrupt = interrupt
        if self.is_lost:
            interrupt()

    def take_settling(self) -> bool:
        """Return True to the first caller only, which either commits the result or gives the task back."""
        return self._settling.acquire(blocking=False)


class EventLoop:
    """The event loop of coroutine functions. Lost attempts are cancelled."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="event loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def run(self, attempt: Attempt) -> Outcome:
        """Run an attempt in the loop and wait for its outcome. Threads may call it at the same time."""
        work = attempt.handler.attempt_async(attempt.task, attempt.context)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        attempt.on_interrupt(future.cancel)
        try:
            return future.result()
        except CancelledError:
            return Outcome(how=How.LOST) if attempt.is_lost else Outcome(how=How.FAILED, error="it was cancelled")

    def end(self) -> None:
        """Cancel running coroutines, wait a moment for them, and end the loop."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        self._thread.join(2 * LOOP_END_S)

    async def _end(self) -> None:
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=LOOP_END_S)
        self._loop.stop()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()


class Place(Protocol):
    """Where a thread calls functions: in itself or in a child process."""

    def run(self, attempt: Attempt) -> Outcome: ...


class Here:
    """Calls functions in the thread itself."""

    def run(self, attempt: Attempt) -> Outcome:
        return attempt.handler.attempt(attempt.task, attempt.context)


class Functions:
    """Calls functions in threads or in processes, and commits their results. Coroutine functions share a loop.

    `ended` counts attempts by outcome. `batch`: how many tasks a claim may take even if fewer of them are free.
    """

    end_s = 0.0  # Threads can't be interrupted.

    def __init__(self, handlers: Mapping[str, Handler], *, threads: int, processes: int, batch: int) -> None:
        self._handlers, self._processes, self._batch = handlers, processes, batch
        self.at_once = processes or threads
        self._waiting: SimpleQueue[Attempt] = SimpleQueue()
        self._unfinished: list[Attempt] = []  # At the end.
        self._counting = threading.Lock()
        self.ended: Counter[str] = Counter()

    def start(self, engine: Engine[Attempt]) -> None:
        self._engine, self._loop = engine, EventLoop()
        self._reports = Reports(engine.store)
        self.chores: Sequence[Chore] = [(SEND_EVERY_S, self._reports.send)]
        self._loop.start()
        self._children = started(self._handlers) if self._processes else None
        for number in range(1, self.at_once + 1):
            place = InProcess(self._children) if self._children else Here()
            threading.Thread(target=self._work, args=[place], name=f"worker {number}", daemon=True).start()

    def is_idle(self) -> bool:
        return True  # A result is written before its task is done.

    def room(self, in_work: int) -> int:
        free = self.at_once - in_work
        return max(free, self._batch) if free > 0 else 0

    def take(self, tasks: Sequence[Task]) -> None:
        late = []
        name, reports = self._engine.name, self._reports
        for attempt in self._noted([Attempt(task, self._handlers[task.group], name, reports) for task in tasks]):
            attempt.held = self._engine.keeper.keep(attempt.task, attempt.lose)
            if not self._engine.begin(attempt.task.id, attempt, partial(self._waiting.put, attempt)):
                late.append(attempt)
        self._give_back(late)

    def stop(self) -> None:
        waiting = []
        with suppress(Empty):
            while True:
                waiting.append(self._waiting.get_nowait())
        self._engine.done(*(attempt.task.id for attempt in waiting))
        self._give_back_in_time(waiting)

    def interrupt(self) -> None:
        self._unfinished = [attempt for attempt in list(self._engine.works.values()) if attempt.take_settling()]
        for attempt in self._unfinished:  # Not those that are being committed.
            attempt.lose()

    def end(self) -> None:
        """Kill processes. Threads can't be ended and go on."""
        if self._children:
            self._children.end()
        self._loop.end()
        self._give_back_in_time(self._unfinished)

    def info(self) -> Mapping[str, Any]:
        return {"in_work": len(self._engine.works), **self.ended}

    def _noted(self, attempts: list[Attempt]) -> list[Attempt]:
        """With the number of the attempt in those tasks that were claimed before: their last workers may have died."""
        first = [attempt for attempt in attempts if attempt.task.claims <= 1]
        again = [attempt for attempt in attempts if attempt.task.claims > 1]
        while again:
            try:
                tasks = self._engine.store.commit(
                    updates=[noted(attempt.task, self._engine.keeper.duration_ms) for attempt in again]
                )
            except CommitRefused as refused:
                lost = named(refused.refusal) & {attempt.task.id for attempt in again}
                logger.warning("the leases of %d tasks are lost: %s", len(lost) or len(again), refused)
                again = [attempt for attempt in again if lost and attempt.task.id not in lost]
            else:
                for attempt, task in zip(again, tasks, strict=True):
                    attempt.task = task
                break
        return first + again

    def _give_back_in_time(self, attempts: Sequence[Attempt]) -> None:
        """Give tasks back without waiting for an unavailable store."""
        if not attempts:
            return
        giving = threading.Thread(target=self._give_back, args=[attempts], name="end", daemon=True)
        giving.start()
        giving.join(GIVE_BACK_S)

    def _give_back(self, attempts: Iterable[Attempt]) -> None:
        """Make tasks available at once. If that fails, they become available when their leases end."""
        entries = []
        for attempt in attempts:
            task = self._engine.keeper.let_go(attempt.held)
            entries.append(Entry(commit=given_back(task, attempt.number), refused=partial(_not_given_back, task)))
        self._engine.settling.write(entries, is_patient=lambda: False)

    # ---- The threads

    def _work(self, place: Place) -> None:
        try:
            while True:
                self._do(self._waiting.get(), place)
        except Exception as problem:  # NotPrepared, if the fork server had to be replaced.
            self._engine.fail(problem)

    def _do(self, attempt: Attempt, place: Place) -> None:
        try:
            outcome = self._outcome(attempt, place)
        except Exception:
            self._waiting.put(attempt)  # It has not started, so it is given back with the others.
            raise
        try:
            if attempt.take_settling():
                is_lost = attempt.is_lost
                task = self._engine.keeper.let_go(attempt.held)
                if is_lost or outcome.how is How.LOST:
                    self._tell(attempt, Outcome(how=How.LOST) if is_lost else outcome)
                else:  # This waits for an unavailable store.
                    self._engine.settling.write([self._entry(attempt, task, outcome)])
        except Exception as problem:
            _say_not_settled(problem)
        finally:
            self._engine.done(attempt.task.id)

    def _outcome(self, attempt: Attempt, place: Place) -> Outcome:
        attempt.began_at = time.monotonic()
        if attempt.is_lost:
            return Outcome(how=How.LOST)
        if attempt.number > attempt.handler.max_attempts:
            return Outcome(how=How.FAILED, error=f"WorkerDied: in attempt {attempt.number - 1}")
        outcome = self._loop.run(attempt) if attempt.handler.is_coroutine else place.run(attempt)
        if outcome.how is How.FAILED and self._engine.stopping.is_set():
            # What ends the worker may have been sent to all processes, and have ended those of the function.
            return replace(outcome, how=How.GIVEN_BACK)
        return outcome

    def _entry(self, attempt: Attempt, task: Task, outcome: Outcome) -> Entry:
        return Entry(
            commit=verdict(task, attempt.handler, attempt.number, outcome, attempt.task.id),
            written=lambda _: self._tell(attempt, outcome),
            refused=partial(self._not_written, attempt, task, outcome),
        )

    def _not_written(self, attempt: Attempt, task: Task, outcome: Outcome, problem: Exception) -> Entry | None:
        """Handle a refused commit: the lease is lost if the task is gone; otherwise the attempt has failed."""
        if isinstance(problem, CommitRefused) and task.id in named(problem.refusal):
            self._tell(attempt, Outcome(how=How.LOST))
        elif outcome.how is How.DONE and isinstance(problem, CommitRefused | InvalidInput | NotAllowed):
            return self._entry(attempt, task, attempt.handler.outcome_of(problem, attempt.number))
        elif isinstance(problem, NotAllowed):
            self._engine.fail(problem)
        else:
            _say_not_settled(problem)
        return None

    def _tell(self, attempt: Attempt, outcome: Outcome) -> None:
        with self._counting:
            self.ended[outcome.how] += 1
        task = attempt.task
        logger.log(
            logging.INFO if outcome.how in (How.DONE, How.GIVEN_BACK, How.SNOOZED) else logging.WARNING,
            "task %d of %s, attempt %d: %s after %.3g s %s",
            task.id,
            task.group,
            attempt.number,
            outcome.how,
            time.monotonic() - attempt.began_at,
            outcome.traceback or outcome.error,
        )


def _say_not_settled(problem: Exception) -> None:
    logger.error("could not commit the result of a task; another worker gets it when its lease ends", exc_info=problem)


def _not_given_back(task: Task, problem: Exception) -> None:
    logger.warning("task %d of %s could not be given back: %s", task.id, task.group, problem)


def attempt_of(task: Task) -> int:
    """Return the number of the attempt that starts with a claim of the task."""
    noted = task.labels.get(ATTEMPTS_LABEL, "")
    return int(noted) + 1 if noted.isdecimal() else 1


def noted(task: Task, lease_ms: int) -> Change:
    """Return a renewal that also records the start of this attempt."""
    labels = _with_attempts(task.labels, attempt_of(task))
    return Change(id=task.id, timespec_ms=-lease_ms, labels=labels)


def verdict(task: Task, handler: Handler, attempt: int, outcome: Outcome, claimed_id: int) -> Result:
    """Return the commit for an outcome. `claimed_id`: the id by which the function knows the task."""
    match outcome.how:
        case How.GIVEN_BACK:
            return given_back(task, attempt)
        case How.SNOOZED:
            return given_back(task, attempt, outcome.in_ms or 0)
        case How.DONE:
            return _done(task, outcome.result, claimed_id)
        case How.DISCARDED:
            return Result(deletes=[task.id])
        case How.FAILED if attempt < handler.max_attempts:
            later = Change(
                id=task.id,
                timespec_ms=-(handler.retries.pause_ms(attempt) if outcome.in_ms is None else outcome.in_ms),
                error=outcome.error,
                labels=_with_attempts(task.labels, attempt),
                release=True,
            )
            return Result(updates=[later])
        case _:
            # A successor, found by all earlier ids. Its attempts are counted from zero if it is moved back.
            group, labels = outcome.group or handler.failed_group, _with_attempts(task.labels, 0)
            moved = NewTask.successor_of(task, group=group, error=outcome.error, labels=labels)
            return Result(adds=[moved], deletes=[task.id])


def given_back(task: Task, attempt: int, in_ms: int = 0) -> Result:
    """Return the commit that makes the task available, at once or later, without counting the attempt."""
    labels = _with_attempts(task.labels, attempt - 1)
    return Result(updates=[Change(id=task.id, timespec_ms=-in_ms, labels=labels, release=True)])


def _done(task: Task, result: Result, claimed_id: int) -> Result:
    """Return the result with the current id of the task, and without the count of attempts in its successors."""
    ids = {claimed_id: task.id}
    updates = [
        replace(
            change,
            id=ids[change.id],
            labels=_with_attempts(task.labels if change.labels is None else change.labels, 0),
        )
        if change.id in ids
        else change
        for change in result.updates
    ]
    deletes = [ids.get(each, each) for each in result.deletes]
    if task.id not in (*deletes, *(change.id for change in updates)):
        deletes.append(task.id)
    return Result(
        adds=[
            replace(add, id=ids[add.id], labels=_with_attempts(add.labels, 0)) if add.id in ids else add
            for add in result.adds
        ],
        updates=updates,
        deletes=deletes,
        depends=[ids.get(each, each) for each in result.depends],
    )


def _with_attempts(labels: Mapping[str, str], attempts: int) -> dict[str, str]:
    others = {name: value for name, value in labels.items() if name != ATTEMPTS_LABEL}
    return {**others, ATTEMPTS_LABEL: str(attempts)} if attempts else others
