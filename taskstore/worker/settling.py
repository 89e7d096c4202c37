"""Commit what a handler returned, or give the task back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from .handlers import Context, Handler
from .lease_keeper import Held, nothing
from .verdicts import attempt_of

if TYPE_CHECKING:
    from ..types.tasks import Task
import logging
import time
from collections import Counter
from collections.abc import Iterable

from ..client.errors import NotAllowed, TooOften
from ..errors import CommitRefused, InvalidInput, StoreBusy, StoreUnavailable
from .handlers import How, Outcome, Result
from .lease_keeper import Keeper, named
from .store import Store
from .verdicts import given_back, verdict


class Attempt:
    """What is known of it in the worker. `held` is there as soon as its lease is kept."""

    held: Held

    def __init__(self, task: Task, handler: Handler, worker: str) -> None:
        self.task = task  # As the function knows it.
        self.handler = handler
        self.context = Context(attempt_of(task), worker)
        self._interrupt: Callable[[], object] = nothing
        self._settling = threading.Lock()

    @property
    def number(self) -> int:
        return self.context.attempt

    @property
    def is_lost(self) -> bool:
        return self.context.lost.is_set()

    def lose(self) -> None:
        """Tell the function that it works for nothing."""
        self.context.lost.set()
        self._interrupt()

    def on_interrupt(self, interrupt: Callable[[], object]) -> None:
        """What runs the function says how that is told where it runs. It may be told twice."""
        self._interrupt = interrupt
        if self.is_lost:
            interrupt()

    def take_settling(self) -> bool:
        """True for the first that asks: either what came of it is committed, or the task is given back."""
        return self._settling.acquire(blocking=False)


logger = logging.getLogger(__name__)

AWAY = (StoreUnavailable, StoreBusy, TooOften)
SOON_S = 1.0  # Until a store that is away is tried again.


class Settling:
    """Threads may share it. `ended` counts how attempts ended."""

    def __init__(self, store: Store, keeper: Keeper) -> None:
        self._store, self._keeper = store, keeper
        self._counting = threading.Lock()
        self.ended: Counter[str] = Counter()

    def finish(self, attempt: Attempt, outcome: Outcome) -> None:
        """Commit what came of it, unless the task was given back meanwhile. Waits for a store that is away."""
        if not attempt.take_settling():
            return
        if attempt.is_lost:
            outcome = Outcome(how=How.LOST)
        self._tell(attempt, self._settle(attempt, outcome))

    def give_back(self, attempts: Iterable[Attempt]) -> None:
        """For others to have at once. What can't be given back is theirs when its lease has ended."""
        for attempt in attempts:
            task = self._keeper.let_go(attempt.held)
            try:
                self._commit(given_back(task, attempt.number))
            except (*AWAY, CommitRefused, NotAllowed) as problem:
                logger.warning("task %d of %s could not be given back: %s", task.id, task.group, problem)

    def _settle(self, attempt: Attempt, outcome: Outcome) -> Outcome:
        """What can't be committed is a failure of the attempt; that its task is gone means that it was lost."""
        task = self._keeper.let_go(attempt.held)
        if outcome.how is How.LOST:
            return outcome
        commit = verdict(task, attempt.handler, attempt.number, outcome, attempt.task.id)
        try:
            self._commit_in_time(commit)
        except (CommitRefused, InvalidInput, NotAllowed) as problem:
            if isinstance(problem, CommitRefused) and task.id in named(problem.refusal):
                return Outcome(how=How.LOST)
            if outcome.how is not How.DONE:
                raise
            return self._settle(attempt, Outcome.of(problem))
        return outcome

    def _commit_in_time(self, commit: Result) -> None:
        while True:
            try:
                return self._commit(commit)
            except AWAY as problem:
                self._keeper.outage.begin(problem)
                time.sleep(SOON_S)

    def _commit(self, commit: Result) -> None:
        self._store.commit(adds=commit.adds, updates=commit.updates, deletes=commit.deletes, depends=commit.depends)
        self._keeper.outage.end()

    def _tell(self, attempt: Attempt, outcome: Outcome) -> None:
        with self._counting:
            self.ended[outcome.how] += 1
        if outcome.how is not How.DONE:
            task = attempt.task
            logger.warning(
                "task %d of %s, attempt %d: %s %s",
                task.id,
                task.group,
                attempt.number,
                outcome.how,
                outcome.traceback or outcome.error,
            )
