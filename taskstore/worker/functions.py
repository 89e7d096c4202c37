"""The executor of functions, which are called in threads, in processes or in an event loop."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..client.errors import NotAllowed
from ..errors import CommitRefused
from ..types.scalars import whole
from ..types.tasks import ATTEMPTS as ATTEMPTS_LABEL
from ..types.tasks import Change, NewTask
from .engine import Attempt
from .function_processes import InProcess, started
from .handlers import DONE, Context, Handler, How, Outcome, Result, done
from .lease_keeper import named
from .settling import Entry, is_of_entry

if TYPE_CHECKING:
    from ..types.tasks import Task
    from .engine import Engine
    from .heartbeat import Chore

logger = logging.getLogger(__name__)

LOOP_END_S = 1.0
SIGNAL_S = 0.02  # After a failure, for a signal that was sent to all processes to reach this one.
LONGEST_WAIT_S = 1.0  # For its turn, of a task that was claimed ahead.


@dataclass(slots=True, kw_only=True, eq=False)
class FunctionAttempt(Attempt):
    """One call of a function."""

    handler: Handler
    number: int
    worker: str
    note: Callable[[int, float, str], object]  # Takes a report of progress.
    began_at: float = 0  # 0: not yet.
    ended_at: float = 0
    _context: Context | None = None

    @property
    def context(self) -> Context | None:
        """The context for the function, if it takes one."""
        if self._context is None and self.handler.takes_context:
            self._context = Context(self.number, self.worker, partial(self.note, self.task.origin))
            if self.is_interrupted:  # After that, because it may be interrupted meanwhile.
                self._context.lose()
        return self._context

    def interrupt(self) -> None:
        """Tell the function that its lease is lost, or will be given up."""
        Attempt.interrupt(self)
        if self._context:
            self._context.lose(is_cancelled=self.is_cancelled)


class EventLoop:
    """The event loop of coroutine functions, so many at a time. Lost attempts are cancelled.

    No thread waits for them: what has ended in a turn of the loop is told together, and others begin.
    """

    def __init__(self, engine: Engine[FunctionAttempt, Outcome], at_once: int) -> None:
        self._engine, self._at_once = engine, at_once
        self._loop = asyncio.new_event_loop()
        self._line = engine.new_line()
        self._running: dict[FunctionAttempt, asyncio.Task[None]] = {}
        self._ended: list[tuple[FunctionAttempt, Outcome]] = []
        self._thread = threading.Thread(target=self._run, name="event loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def begin(self, attempts: Sequence[FunctionAttempt]) -> None:
        """Run these when it is their turn. Any thread may call it."""
        self._line.add(attempts)
        with suppress(RuntimeError):  # The loop has ended, and the worker with it.
            self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        for attempt in self._line.take(self._at_once - len(self._running)):
            if outcome := outcome_before(attempt):
                self._end_of(attempt, outcome)
                continue
            self._running[attempt] = self._loop.create_task(self._attempt(attempt))
            attempt.on_interrupt(self._cancel)

    def _cancel(self, attempt: FunctionAttempt) -> None:
        if task := self._running.get(attempt):
            self._loop.call_soon_threadsafe(task.cancel)

    async def _attempt(self, attempt: FunctionAttempt) -> None:
        try:
            try:
                outcome = done(await attempt.handler.call(attempt.task, attempt.context))
            except asyncio.CancelledError:
                raise
            except BaseException as problem:
                outcome = attempt.handler.outcome_of(problem, attempt.number)
            if outcome.how is How.FAILED:
                await asyncio.sleep(SIGNAL_S)
        except asyncio.CancelledError:
            outcome = (
                Outcome(how=How.LOST) if attempt.is_interrupted else Outcome(how=How.FAILED, error="it was cancelled")
            )
        self._end_of(attempt, outcome)

    def _end_of(self, attempt: FunctionAttempt, outcome: Outcome) -> None:
        attempt.ended_at = time.monotonic()
        self._running.pop(attempt, None)
        self._ended.append((attempt, outcome))
        if len(self._ended) == 1:
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        ended, self._ended = self._ended, []
        self._engine.finish(ended)
        self._begin()

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


class Functions:
    """Calls functions in threads or in processes, and commits their results. Coroutine functions share a loop.

    `ended` counts attempts by outcome. `batch`: how many tasks a claim may take even if fewer of them are free. None:
    as many as recently ended in a moment.
    """

    end_s = 0.0  # Threads can't be interrupted.
    given_back = Outcome(how=How.GIVEN_BACK)

    def __init__(self, handlers: Mapping[str, Handler], *, threads: int, processes: int, batch: int | None) -> None:
        self._handlers, self._processes, self._batch = handlers, processes, batch
        self.at_once = processes or threads
        self.ended: Counter[str] = Counter()

    def start(self, engine: Engine[FunctionAttempt, Outcome]) -> Sequence[Chore]:
        self._engine, self._loop = engine, EventLoop(engine, self.at_once)
        self._loop.start()
        self._children = started(self._handlers) if self._processes else None
        return () if self._batch else [(LONGEST_WAIT_S, self._leave_to_others)]

    def place(self) -> Callable[[FunctionAttempt], Outcome]:
        """Return a function that calls functions: in a process, or in its own thread."""
        process = InProcess(self._children) if self._children else None

        def run(attempt: FunctionAttempt) -> Outcome:
            if outcome := outcome_before(attempt):
                return outcome
            try:
                if process:
                    return process.run(attempt)
                outcome = attempt.handler.attempt(attempt.task, attempt.context, attempt.number)
                if outcome.how is How.FAILED:
                    self._engine.stopping.wait(SIGNAL_S)
                return outcome
            finally:
                attempt.ended_at = time.monotonic()

        return run

    def begin(self, attempts: Sequence[FunctionAttempt]) -> Sequence[FunctionAttempt]:
        """Run coroutines in the event loop. Returns the others."""
        if coroutines := [attempt for attempt in attempts if attempt.handler.is_coroutine]:
            self._loop.begin(coroutines)
        return [attempt for attempt in attempts if not attempt.handler.is_coroutine]

    def room(self, in_work: int) -> int:
        if not self._batch:
            return self._engine.room(in_work)
        free = self.at_once - in_work
        return max(free, self._batch) if free > 0 else 0

    def _leave_to_others(self) -> None:
        """Give back what was claimed ahead and waits for a slow function."""
        self._engine.give_back_waiting(time.monotonic() - LONGEST_WAIT_S)

    def attempts(self, tasks: Sequence[Task], own: Mapping[int, FunctionAttempt]) -> Sequence[FunctionAttempt]:
        engine, note = self._engine, self._engine.reports.note
        numbers = {task.origin: attempt_of(task) for task in tasks} | {origin: own[origin].number for origin in own}
        attempts = [
            FunctionAttempt(
                task=task,
                handler=self._handlers[task.group],
                number=numbers[task.origin],
                worker=engine.name,
                note=note,
            )
            for task in (tasks if own else self._noted(tasks))
        ]
        engine.keeper.keep(*attempts)
        return attempts

    def renewed_at(self) -> float:
        return math.inf

    def end(self) -> None:
        """Kill processes. Threads can't be ended and go on."""
        if self._children:
            self._children.end()
        self._loop.end()

    def info(self) -> Mapping[str, Any]:
        return {"in_work": len(self._engine.works), **self.ended}

    def _noted(self, tasks: Sequence[Task]) -> Sequence[Task]:
        """Record the attempt in those tasks that were claimed before: their last workers may have died."""
        first = [task for task in tasks if task.claims <= 1]
        again = [task for task in tasks if task.claims > 1]
        while again:
            try:
                changes = [noted(task, self._engine.keeper.duration_ms) for task in again]
                again = self._engine.store.commit(updates=changes)
                break
            except CommitRefused as refused:
                lost = named(refused.refusal) & {task.id for task in again}
                logger.warning("the leases of %d tasks are lost: %s", len(lost) or len(again), refused)
                again = [task for task in again if lost and task.id not in lost]
        return [*first, *again]

    # ---- The thread that writes

    def entry(self, attempt: FunctionAttempt, outcome: Outcome) -> Entry | None:
        task = self._engine.keeper.let_go(attempt)
        if attempt.is_lost:
            self._tell(attempt, Outcome(how=How.LOST, error="it was cancelled" if attempt.is_cancelled else ""))
            return None
        # What ends the worker may have been sent to all processes, and have ended those of the function.
        is_no_failure = outcome.how is How.LOST or (outcome.how is How.FAILED and self._engine.is_to_stop)
        return self._entry(attempt, task, self.given_back if is_no_failure else outcome)

    def _entry(self, attempt: FunctionAttempt, task: Task, outcome: Outcome) -> Entry | None:
        try:
            commit = verdict(task, attempt.handler, attempt.number, outcome, attempt.task.id)
        except Exception as problem:  # Of a Result with other things than changes.
            return self._not_written(attempt, task, outcome, problem)
        result = outcome.result
        return Entry(
            commit=commit,
            written=partial(self._written, attempt, outcome),
            refused=partial(self._not_written, attempt, task, outcome),
            held=attempt,
            is_last=True,
            frees_keys=bool(task.unique or result.updates or result.deletes),
        )

    def _not_written(self, attempt: FunctionAttempt, task: Task, outcome: Outcome, problem: Exception) -> Entry | None:
        """Handle a refused commit: the lease is lost if the task is gone; otherwise the attempt has failed."""
        if isinstance(problem, CommitRefused) and task.id in named(problem.refusal):
            self._tell(attempt, Outcome(how=How.LOST))
        elif outcome.how is How.DONE and is_of_entry(problem):
            return self._entry(attempt, task, attempt.handler.outcome_of(problem, attempt.number))
        elif isinstance(problem, NotAllowed):
            self._engine.fail(problem)
        else:
            logger.error(
                "task %d of %s: its result can't be written, so another worker gets it when its lease ends: %s",
                task.id,
                task.group,
                problem,
            )
        return None

    def _written(self, attempt: FunctionAttempt, outcome: Outcome, _: Sequence[Task]) -> None:
        self._tell(attempt, outcome)

    def _tell(self, attempt: FunctionAttempt, outcome: Outcome) -> None:
        self.ended[outcome.how] += 1
        task, why = attempt.task, outcome.traceback.rstrip() or outcome.error
        logger.log(
            logging.INFO if outcome.how in (How.DONE, How.GIVEN_BACK, How.SNOOZED) else logging.WARNING,
            "task %d of %s, attempt %d: %s after %.3g s%s",
            task.id,
            task.group,
            attempt.number,
            outcome.how,
            (attempt.ended_at or time.monotonic()) - attempt.began_at if attempt.began_at else 0,
            f": {why}" if why else "",
        )


def outcome_before(attempt: FunctionAttempt) -> Outcome | None:
    """Note that an attempt begins. Returns its outcome if the function is not to be called."""
    attempt.began_at = time.monotonic()
    if attempt.is_interrupted:
        return Outcome(how=How.LOST)
    if attempt.number > attempt.handler.max_attempts:
        return Outcome(how=How.FAILED, error=f"WorkerDied: in attempt {attempt.number - 1}")
    return None


def attempt_of(task: Task) -> int:
    """Return the number of the attempt that starts with a claim of the task."""
    if not task.labels:
        return 1
    return (whole(task.labels.get(ATTEMPTS_LABEL, "")) or 0) + 1


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
    if result is DONE.result:
        return Result(deletes=[task.id])
    ids = {claimed_id: task.id}
    updates = [
        replace(
            change, id=ids[change.id], labels=_with_attempts(task.labels if change.labels is None else change.labels, 0)
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
