"""Keep leases: renew them while handlers run, also through an outage of the server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from ..errors import CommitRefused
from ..types.tasks import Change, Refusal
from .store import Store

if TYPE_CHECKING:
    from ..types.tasks import Task


logger = logging.getLogger(__name__)


class Outage:
    """Threads may share one."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._is_on = False

    def begin(self, problem: object) -> None:
        with self._turn:
            if not self._is_on:
                logger.warning("the store can't be asked, and is tried again until it can: %s", problem)
            self._is_on = True

    def end(self) -> None:
        with self._turn:
            if self._is_on:
                logger.warning("the store can be asked again")
            self._is_on = False


RENEWALS = 3  # Within the time of a lease: one may fail, or two be late.
SOON_S = 1.0  # Until it is tried again when the store could not be asked.
MOST_AT_ONCE = 100  # In one commit: its answer holds the data of all of them.


def nothing() -> None:
    """For those who look at `Held.lost` themselves."""


class Held:
    """A task in work. It keeps its place here while its id changes with each renewal."""

    def __init__(self, task: Task, on_lost: Callable[[], None]) -> None:
        self.task = task  # With the id that it has now.
        self.lost = threading.Event()  # Set when it is no longer ours: nothing done for it can be committed.
        self._on_lost = on_lost

    def lose(self) -> None:
        self.lost.set()
        self._on_lost()


class Keeper:
    """Renews what it is told to keep, many tasks in a commit, each for `duration_ms` from then on.

    A task that the store refuses to renew is lost, and the others go on. While the store can't be asked it tries
    again: nobody else gets a task from a store that is away.
    """

    def __init__(self, store: Store, duration_ms: int) -> None:
        self._store, self.duration_ms = store, duration_ms
        self._held: dict[Held, None] = {}  # In the order in which they came.
        self._renewing: frozenset[Held] = frozenset()  # In the commit that is under way.
        self._change = threading.Condition()  # Of the two above.
        self._stopping = threading.Event()
        self.outage = Outage()
        self._thread = threading.Thread(target=self._renew_until_stopped, name="keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Nothing is renewed from now on. It does not wait for a renewal that is under way."""
        self._stopping.set()

    def keep(self, task: Task, on_lost: Callable[[], None] = nothing) -> Held:
        """Renew it until it is let go or lost. `on_lost` is called by the thread that renews: it should be quick."""
        held = Held(task, on_lost)
        with self._change:
            self._held[held] = None
        return held

    def let_go(self, held: Held) -> Task:
        """From now on it is not renewed, and no renewal of it is under way: the task with the id to commit."""
        with self._change:
            self._held.pop(held, None)
            self._change.wait_for(lambda: held not in self._renewing)
        return held.task

    def _renew_until_stopped(self) -> None:
        pause_s = in_time_s = self.duration_ms / RENEWALS / 1_000
        while not self._stopping.wait(pause_s):
            pause_s = in_time_s if self._renew_all() else min(in_time_s, SOON_S)

    def _renew_all(self) -> bool:
        """Whether the store could be asked."""
        with self._change:
            held = list(self._held)
        batches = [held[start : start + MOST_AT_ONCE] for start in range(0, len(held), MOST_AT_ONCE)]
        try:
            for batch in batches:
                self._renew(batch)
        except Exception as problem:  # Without this thread all leases would end.
            self.outage.begin(problem)
            return False
        if batches:
            self.outage.end()
        return True

    def _renew(self, batch: Sequence[Held]) -> None:
        """Without those that are refused, as long as some are left."""
        while True:
            with self._change:
                # Without what was let go meanwhile. From here on nobody may commit the others.
                batch = [held for held in batch if held in self._held]
                self._renewing = frozenset(batch)
            if not batch:
                return
            refused: Collection[int] = ()
            try:
                renewed = self._store.commit(updates=[renewal(held.task, self.duration_ms) for held in batch])
                for held, task in zip(batch, renewed, strict=True):
                    held.task = task
            except CommitRefused as problem:
                refused = named(problem.refusal)
                if not refused:
                    raise
            finally:
                with self._change:
                    self._renewing = frozenset()
                    self._change.notify_all()
            lost = [held for held in batch if held.task.id in refused]
            if not lost:
                return
            for held in lost:
                with self._change:
                    was_kept = self._held.pop(held, self) is None
                if was_kept:
                    held.lose()


def renewal(task: Task, duration_ms: int) -> Change:
    return Change(id=task.id, timespec_ms=-duration_ms)


def named(refusal: Refusal) -> frozenset[int]:
    """The ids of the tasks that the commit could not change."""
    return frozenset((*refusal.changes, *refusal.deletes, *refusal.owned))
