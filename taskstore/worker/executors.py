"""The threads, processes and event loop that run handlers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Protocol

from .children import Child, ChildDidNotStart
from .handlers import Handler, How, Outcome
from .settling import Attempt

END_S = 1.0


class EventLoop:
    """An attempt that is lost is cancelled."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="event loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def run(self, attempt: Attempt) -> Outcome:
        """Waits for its end. Other threads may do the same."""
        work = attempt.handler.attempt_async(attempt.task, attempt.context)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        attempt.on_interrupt(future.cancel)
        try:
            return future.result()
        except CancelledError:
            return Outcome(how=How.LOST) if attempt.is_lost else Outcome(how=How.FAILED, error="it was cancelled")

    def end(self) -> None:
        """What still runs is cancelled, and given a moment for that."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        self._thread.join(2 * END_S)

    async def _end(self) -> None:
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=END_S)
        self._loop.stop()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()


LOOK_S = 0.5  # How often the main thread wakes: a signal that another thread was given is handled only then.


class Executor(Protocol):
    """Where a thread has functions called."""

    def start(self) -> None: ...
    def run(self, attempt: Attempt) -> Outcome: ...
    def end(self) -> None: ...


class Here:
    """In the thread itself."""

    def start(self) -> None: ...

    def run(self, attempt: Attempt) -> Outcome:
        return attempt.handler.attempt(attempt.task, attempt.context)

    def end(self) -> None: ...


def places(handlers: Mapping[str, Handler], *, threads: int, processes: int) -> list[Executor]:
    return [Child(handlers) for _ in range(processes)] or [Here() for _ in range(threads)]


class Crew:
    """Takes attempts, and tells `finish` what came of each, in the thread that did it.

    `fail` is told of what should end the worker.
    """

    def __init__(
        self,
        places: Sequence[Executor],
        finish: Callable[[Attempt, Outcome], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._places, self._finish, self._fail = places, finish, fail
        self._loop = EventLoop()
        self._waiting: SimpleQueue[Attempt] = SimpleQueue()
        self._taken: dict[Attempt, None] = {}  # Not finished, the oldest first.
        self._change = threading.Condition()  # Of what is taken, and of whether more is.
        self._is_closed = False

    def start(self) -> None:
        self._loop.start()
        for number, place in enumerate(self._places, 1):
            threading.Thread(target=self._work, args=[place], name=f"worker {number}", daemon=True).start()

    @property
    def in_work(self) -> int:
        return len(self._taken)

    def wait_for_room(self) -> int:
        """How many threads have nothing to do, as soon as one has; 0 when nothing more is taken."""
        with self._change:
            self._change.wait_for(lambda: self._is_closed or len(self._taken) < len(self._places))
            return 0 if self._is_closed else len(self._places) - len(self._taken)

    def take(self, attempt: Attempt) -> bool:
        """Whether it is taken."""
        with self._change:
            if not self._is_closed:
                self._taken[attempt] = None
                self._waiting.put(attempt)
            return not self._is_closed

    def close(self) -> list[Attempt]:
        """Nothing more is taken. Returns what waited for its turn, which is not begun any more."""
        with self._change:
            self._is_closed = True
            waiting = list(self._not_begun())
            self._forget(waiting)
        return waiting

    def wait(self, patience_s: float) -> Collection[Attempt]:
        """Until all is finished that was begun. Returns what was not."""
        until = time.monotonic() + patience_s
        with self._change:
            while self._taken and (left_s := until - time.monotonic()) > 0:
                self._change.wait(min(left_s, LOOK_S))
            return list(self._taken)

    def end(self) -> None:
        """What is still under way is told that it is lost. Processes are killed; threads go on as long as they like."""
        for attempt in self.wait(0):
            attempt.lose()
        for place in self._places:
            place.end()
        self._loop.end()

    def _not_begun(self) -> Iterator[Attempt]:
        with suppress(Empty):
            while True:
                yield self._waiting.get_nowait()

    def _work(self, place: Executor) -> None:
        try:
            place.start()
            while True:
                self._do(self._waiting.get(), place)
        except ChildDidNotStart as problem:
            self._fail(problem)

    def _do(self, attempt: Attempt, place: Executor) -> None:
        try:
            outcome = self._outcome(attempt, place)
        except ChildDidNotStart:
            self._waiting.put(attempt)  # It was not begun, and is given back with the others that were not.
            raise
        try:
            self._finish(attempt, outcome)
        except Exception as problem:
            self._fail(problem)
        finally:
            with self._change:
                self._forget([attempt])

    def _outcome(self, attempt: Attempt, place: Executor) -> Outcome:
        if attempt.is_lost:
            return Outcome(how=How.LOST)
        if attempt.number > attempt.handler.max_attempts:
            return Outcome(how=How.FAILED, error=f"WorkerDied: in attempt {attempt.number - 1}")
        return self._loop.run(attempt) if attempt.handler.is_coroutine else place.run(attempt)

    def _forget(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            self._taken.pop(attempt, None)
        self._change.notify_all()
