"""Processes that call functions: such as would hold up the other threads, or may take their process down."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pickle import PickleError
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from ..errors import TaskStoreError
from .functions import Attempt
from .handlers import Context, Handler, How, Outcome

if TYPE_CHECKING:
    from ..types.tasks import Task

# A new interpreter: a fork of a process that has threads may wait for ever for a lock that one of them held.
SPAWN = multiprocessing.get_context("spawn")
START_S = 60.0  # For all that the program imports.
END_S = 5.0
LOOK_S = 1.0  # How often it is looked whether the process lives: what it has started may keep its pipe open.

STARTED = "started"
END = None


class ChildDidNotStart(TaskStoreError):
    """A process that is to call functions has ended before it could. What it wrote says why.

    Often: the program runs its worker whenever it is imported, not only under `if __name__ == "__main__":`.
    """

    code = "child_did_not_start"


def refuse_in_children() -> None:
    """Raises ChildDidNotStart in a process that only wants the functions of the program."""
    # Multiprocessing's own mark, by which it refuses processes of such a process.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ChildDidNotStart('start the worker below `if __name__ == "__main__":`, its processes import the program')


class Child:
    """A process that does one task after the other for a thread of the worker. After its death there is a new one."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers
        self._sending = threading.Lock()
        self._starting = threading.Lock()
        self._process: Any = None
        self._is_busy = False
        self._is_over = False

    def start(self) -> None:
        """Raises ChildDidNotStart."""
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
        """Waits for what comes of it. The death of the process is a failure of the attempt."""
        if not self._process.is_alive():
            self.start()
        task = attempt.task
        self._is_busy = True
        self._send((task, attempt.number, attempt.context.worker))
        attempt.on_interrupt(lambda: self._send(task.id))
        outcome = self._wait()
        self._is_busy = False
        return outcome or Outcome(how=How.FAILED, error=f"ProcessDied: {self._death()}")

    def end(self) -> None:
        """What is busy is killed: its task is another worker's now."""
        with self._starting:
            self._is_over = True
        if self._process:
            self._process.kill() if self._is_busy else self._send(END)
            self._process.join(END_S)

    def _send(self, message: object) -> None:
        """To a process that has just died: whoever waits for its answer sees that."""
        with self._sending, suppress(OSError):
            self._connection.send(message)

    def _wait(self) -> Any:
        while not self._connection.poll(LOOK_S):
            if not self._process.is_alive():
                return None
        return self._answer()

    def _answer(self) -> Any:
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            return None

    def _death(self) -> str:
        """How it died. One that does not answer any more, and goes on nevertheless, is killed."""
        self._process.join(END_S)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            return "it did not respond"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"


def serve(connection: Connection, handlers: Mapping[str, Handler]) -> None:
    """What the process does until the worker ends."""
    # Signals for the whole group or service reach it too; the worker decides what ends. (Not SIG_IGN: programs that
    # the functions start would inherit it.)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    Desk(connection, handlers).run()


class Desk:
    """Does the tasks that come in. A thread listens meanwhile whether one was lost, or the worker has died."""

    def __init__(self, connection: Connection, handlers: Mapping[str, Handler]) -> None:
        self._connection, self._handlers = connection, handlers
        self._orders: SimpleQueue[tuple[Task, Context] | None] = SimpleQueue()
        self._doing: tuple[int, Context] | None = None  # The id of the task, and what its function looks at.

    def run(self) -> None:
        threading.Thread(target=self._listen, name="listener", daemon=True).start()
        self._connection.send(STARTED)
        while order := self._orders.get():
            task, context = order
            outcome = self._handlers[task.group].attempt(task, context)
            self._doing = None  # Before the answer, after which the next task may come in.
            self._answer(outcome)

    def _answer(self, outcome: Outcome) -> None:
        with suppress(OSError):  # The worker has died meanwhile.
            try:
                self._connection.send(outcome)
            except (AttributeError, TypeError, PickleError) as problem:  # What the function returned can't be sent.
                self._connection.send(Outcome.of(problem))

    def _listen(self) -> None:
        try:
            while (message := self._connection.recv()) is not END:
                self._hear(message)
        except (EOFError, OSError):
            if self._doing:
                os._exit(1)  # The worker has died: nobody will commit what comes of it.
        self._orders.put(None)

    def _hear(self, message: Any) -> None:
        if isinstance(message, tuple):
            task, number, worker = message
            self._doing = task.id, Context(number, worker)
            self._orders.put((task, self._doing[1]))
        elif self._doing and self._doing[0] == message:
            self._doing[1].lost.set()
