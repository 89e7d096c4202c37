"""Processes that call functions which would block other threads or may crash."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pickle import PickleError
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from ..errors import TaskStoreError
from ..types.progress import Progress
from .functions import Attempt
from .handlers import Context, Handler, How, Outcome

if TYPE_CHECKING:
    from ..types.tasks import Task

# Not fork: in a fork of a process with threads, a lock that one of them held stays locked.
SPAWN = multiprocessing.get_context("spawn")
START_S = 60.0  # Includes the imports of the program.
END_S = 5.0
LOOK_S = 1.0  # How often to check that the process lives, because its own children may keep the pipe open.

STARTED = "started"
END = None


class ChildDidNotStart(TaskStoreError):
    """A process for functions ended while it started. Its output says why.

    A common cause: the program runs its worker when it is imported, not only under `if __name__ == "__main__":`.
    """

    code = "child_did_not_start"


def refuse_in_children() -> None:
    """Raise ChildDidNotStart in a process that imports the program only for its functions."""
    # The internal mark by which multiprocessing itself rejects nested starts.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ChildDidNotStart(
            'start the worker below `if __name__ == "__main__":`, because its processes import the program'
        )


class Child:
    """A process that runs one task after the other for a thread of the worker, and is replaced if it dies."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers
        self._sending = threading.Lock()
        self._starting = threading.Lock()
        self._process: Any = None
        self._is_busy = False
        self._is_over = False

    def start(self) -> None:
        """Start the process. Raises ChildDidNotStart."""
        with self._starting:
            if self._is_over:
                return
            self._connection, theirs = SPAWN.Pipe()
            handlers = {group: handler for group, handler in self._handlers.items() if not handler.is_coroutine}
            process = SPAWN.Process(target=serve, args=(theirs, handlers), name="functions")
            try:
                process.start()
            except (AttributeError, TypeError, PickleError) as problem:
                raise ChildDidNotStart(f"functions for processes must belong to a module: {problem}") from problem
            self._process = process
            theirs.close()
        if not self._connection.poll(START_S) or self._answer() != STARTED:
            raise ChildDidNotStart(f"a process for functions did not start: {self._death()}")

    def run(self, attempt: Attempt) -> Outcome:
        """Run an attempt and wait for its outcome. If the process dies, the attempt has failed."""
        if not self._process.is_alive():
            self.start()
        task = attempt.task
        self._is_busy = True
        self._send((task, attempt.number, attempt.context.worker))
        attempt.on_interrupt(lambda: self._send(task.id))
        outcome = self._wait(attempt)
        self._is_busy = False
        return outcome or Outcome(how=How.FAILED, error=f"ProcessDied: {self._death()}")

    def end(self) -> None:
        """End the process. A busy one is killed, because its task has been given back."""
        with self._starting:
            self._is_over = True
        if self._process:
            self._process.kill() if self._is_busy else self._send(END)
            self._process.join(END_S)

    def _send(self, message: object) -> None:
        """Send a message; `_wait` notices a process that has died."""
        with self._sending, suppress(OSError):
            self._connection.send(message)

    def _wait(self, attempt: Attempt) -> Outcome | None:
        """Return the outcome of the attempt, or None if the process dies. Passes on its progress meanwhile."""
        while True:
            if self._connection.poll(LOOK_S):
                answer: Outcome | Progress | None = self._answer()
                if not isinstance(answer, Progress):
                    return answer
                attempt.context.progress(answer.done, answer.text)
            elif not self._process.is_alive():
                return None

    def _answer(self) -> Any:
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            return None

    def _death(self) -> str:
        """Describe how the process died, and kill it if it is alive but not responding."""
        self._process.join(END_S)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            return "it did not respond"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"


def serve(connection: Connection, handlers: Mapping[str, Handler]) -> None:
    """Run tasks in the child process until the worker ends."""
    # Signals to the whole process group arrive here too, but the worker decides when to end. Not SIG_IGN, which
    # programs started by the functions would inherit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    Desk(connection, handlers).run()


class Desk:
    """Runs the tasks that arrive. A second thread watches for lost leases and for the death of the worker."""

    def __init__(self, connection: Connection, handlers: Mapping[str, Handler]) -> None:
        self._connection, self._handlers = connection, handlers
        self._orders: SimpleQueue[tuple[Task, Context] | None] = SimpleQueue()
        self._doing: tuple[int, Context] | None = None  # The id of the current task, and its context.
        self._sending = threading.Lock()

    def run(self) -> None:
        threading.Thread(target=self._listen, name="listener", daemon=True).start()
        self._connection.send(STARTED)
        while order := self._orders.get():
            task, context = order
            outcome = self._handlers[task.group].attempt(task, context)
            with self._sending:
                self._doing = None  # Before the answer, after which the next task may arrive.
            self._answer(outcome)

    def _report(self, task_id: int, done: float, text: str) -> None:
        # Threads of a function may outlive it: the next task must not get their reports.
        with self._sending, suppress(OSError):
            if self._doing and self._doing[0] == task_id:
                self._connection.send(Progress(done=done, text=text))

    def _answer(self, outcome: Outcome) -> None:
        with self._sending, suppress(OSError):  # The worker has died.
            try:
                self._connection.send(outcome)
            except (AttributeError, TypeError, PickleError) as problem:  # The return value can't be pickled.
                self._connection.send(Outcome.of(problem))

    def _listen(self) -> None:
        try:
            while (message := self._connection.recv()) is not END:
                if isinstance(message, tuple):
                    task, number, worker = message
                    self._doing = task.id, Context(number, worker, partial(self._report, task.id))
                    self._orders.put((task, self._doing[1]))
                elif self._doing and self._doing[0] == message:
                    self._doing[1].lost.set()
        except (EOFError, OSError):
            if self._doing:
                os._exit(1)  # The worker has died, so the result can't be committed.
        self._orders.put(None)
