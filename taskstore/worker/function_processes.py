"""Processes that call functions which would block other threads or may crash."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from collections.abc import Mapping
from functools import partial
from multiprocessing import spawn
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from .children import Child, Children, Desk, Gone, News, NotPrepared, Over, Serve, Work, cause_of_death, pickled
from .handlers import Context, Handler, How, Outcome

if TYPE_CHECKING:
    from ..types.tasks import Task
    from .functions import FunctionAttempt


def refuse_in_children() -> None:
    """Raise NotPrepared in a process that imports the program only for its functions."""
    # The internal mark by which multiprocessing itself rejects nested starts.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise NotPrepared(
            'start the worker below `if __name__ == "__main__":`, because its processes import the program'
        )


def started(handlers: Mapping[str, Handler]) -> Children:
    """Start what processes for these functions need. Raises NotPrepared."""
    main: dict[str, Any] = spawn.get_preparation_data("functions")  # What multiprocessing itself needs for `__main__`.
    del main["authkey"]  # It is not to be sent.
    functions = {group: handler for group, handler in handlers.items() if not handler.is_coroutine}
    children = Children(partial(prepare, main, pickled(functions)), captures=False)
    children.start()
    return children


class InProcess:
    """Calls functions in a process of its own, one after the other, and replaces it if it dies."""

    def __init__(self, children: Children) -> None:
        self._children = children
        self._child: Child | None = children.new()

    def run(self, attempt: FunctionAttempt) -> Outcome:
        """Run an attempt and wait for its outcome. If the process dies, the attempt has failed."""
        child = self._child = self._child or self._children.new()
        task = attempt.task
        child.run(Work(), pickle.dumps((task, attempt.number, attempt.worker)))
        attempt.on_interrupt(lambda _: child.tell(pickle.dumps(task.id)))
        while True:
            for event in child.wait():
                if isinstance(event, Over):
                    return outcome_of(event)
                if isinstance(event, Gone):
                    self._children.discard(child)
                    self._child = None
                    return Outcome(how=How.FAILED, error="ProcessDied: together with the process that started it")
                if isinstance(event, News) and event.progress:
                    attempt.note(task.origin, *event.progress)


def outcome_of(over: Over) -> Outcome:
    outcome: Outcome | None = pickle.loads(over.answer) if over.answer else None  # noqa: S301 - of our own process.
    if over.was_signalled and (outcome is None or outcome.how is How.FAILED):
        return Outcome(how=How.GIVEN_BACK)
    return outcome or Outcome(how=How.FAILED, error=f"ProcessDied: {over.text or cause_of_death(over.code)}")


# ---- In the processes


def prepare(main: dict[str, Any], handlers: bytes) -> tuple[Serve, None]:
    """Import the program and return the function that serves."""
    process: Any = multiprocessing.current_process()
    process._inheriting = True
    try:
        spawn.prepare(main)
        return partial(serve, pickle.loads(handlers)), None  # noqa: S301 - of the owner.
    finally:
        del process._inheriting


def serve(handlers: Mapping[str, Handler], desk: Desk) -> None:
    """Call the functions for the tasks that arrive. A second thread listens for lost leases."""
    attempts: SimpleQueue[tuple[Task, Context] | None] = SimpleQueue()
    doing: dict[int, Context] = {}  # The id of the current task, and its context.
    turn = threading.Lock()

    def report(id: int, done: float, text: str) -> None:
        with turn:
            if id in doing:  # Threads of a function may outlive it: the next task must not get their reports.
                desk.report(done, text)

    def listen() -> None:
        while message := desk.next():
            order = pickle.loads(message)  # noqa: S301 - of the owner.
            if isinstance(order, tuple):
                task, number, worker = order
                doing[task.id] = Context(number, worker, partial(report, task.id))
                attempts.put((task, doing[task.id]))
            elif context := doing.get(order):
                context.lose()
        attempts.put(None)

    threading.Thread(target=listen, name="listener", daemon=True).start()
    while attempt := attempts.get():
        task, context = attempt
        outcome = handlers[task.group].attempt(task, context, context.attempt)
        try:
            answer = pickle.dumps(outcome)
        except (AttributeError, TypeError, pickle.PickleError) as problem:  # The return value can't be pickled.
            answer = pickle.dumps(handlers[task.group].outcome_of(problem, context.attempt))
        with turn:
            doing.clear()  # Before the answer, after which the next task may arrive.
        desk.answer(answer)
