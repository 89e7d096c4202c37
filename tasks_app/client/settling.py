"""What came of the attempts is committed, or their tasks are given back."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable

from ..errors import CommitRefused, InvalidInput, StoreBusy, StoreUnavailable
from .attempts import Attempt
from .endings import ending, given_back
from .errors import NotAllowed, TooOften
from .handlers import How, Outcome
from .keeper import Keeper, named
from .store import Store
from .work import Result

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
        if not attempt.take_ending():
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
        commit = ending(task, attempt.handler, attempt.number, outcome, attempt.task.id)
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
