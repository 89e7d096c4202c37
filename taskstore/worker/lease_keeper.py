"""Renew leases while handlers run, and keep trying through an outage of the server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from ..errors import CommitRefused
from ..types.tasks import Change, Refusal
from .store import Store

if TYPE_CHECKING:
    from ..types.tasks import Task


logger = logging.getLogger(__name__)


class Outage:
    """Logs the beginning and the end of an outage once. Threads may share it."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._is_on = False

    def begin(self, problem: object) -> None:
        with self._turn:
            if not self._is_on:
                logger.warning("the store is unreachable; retrying until it is back: %s", problem)
            self._is_on = True

    def end(self) -> None:
        with self._turn:
            if self._is_on:
                logger.warning("the store is reachable again")
            self._is_on = False


RENEWALS = 3  # Per lease, so that one may fail or two may be late.
SOON_S = 1.0  # The pause before the next attempt if the store is unavailable.
MOST_CANCELLED = 1_000  # Ids to remember.
MOST_AT_ONCE = 100  # Per commit, because its response contains the data of all tasks.


class Held:
    """A leased task, whose id changes with each renewal."""

    __slots__ = ("current", "is_cancelled", "is_lost")

    def __init__(self, task: Task) -> None:
        self.current = task  # With its current id.
        self.is_lost = False  # No result can be committed any more.
        self.is_cancelled = False  # It is lost because of that.

    def lose(self) -> None:
        """Note that the store has refused to renew the lease. Called by the thread of the keeper: it must be quick."""
        self.is_lost = True


class Keeper:
    """Renews the leases of tasks to `duration_ms`, many in one commit.

    A task that the store refuses to renew is lost; the others are kept. While the store is unavailable it keeps trying,
    because no other client can get the tasks then.
    """

    def __init__(self, store: Store, duration_ms: int) -> None:
        self._store, self.duration_ms = store, duration_ms
        self._held: dict[Held, None] = {}  # An ordered set.
        self._renewing: frozenset[Held] = frozenset()  # In the commit under way.
        self._cancelled: list[int] = []  # The latest ids of which the store has said so.
        self._change = threading.Condition()  # Guards the two above.
        self._stopping = threading.Event()
        self.outage = Outage()
        self._thread = threading.Thread(target=self._renew_until_stopped, name="keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing. Does not wait for a renewal under way."""
        self._stopping.set()

    def keep(self, *held: Held) -> None:
        """Renew each lease until `let_go` or until it is lost, which it may be already."""
        with self._change:
            self._held.update((each, None) for each in held if not each.is_lost)

    def lose_cancelled(self, ids: Iterable[int] = ()) -> None:
        """Lose the tasks that were cancelled under these ids, or earlier ones that a renewal under way had hidden."""
        with self._change:
            self._cancelled = [*self._cancelled, *ids][-MOST_CANCELLED:]
            lost = [held for held in self._held if held.current.id in self._cancelled]
            for held in lost:
                del self._held[held]
        for held in lost:
            held.is_cancelled = True
            held.lose()

    def was_cancelled(self, task: Task) -> bool:
        """Return whether the store has said of this id that it was cancelled."""
        return task.id in self._cancelled

    def let_go(self, held: Held) -> Task:
        """Stop renewing a lease, after a renewal under way. Returns the task with its current id."""
        with self._change:
            self._held.pop(held, None)
            while held in self._renewing:
                self._change.wait()
        return held.current

    def _renew_until_stopped(self) -> None:
        pause_s = in_time_s = self.duration_ms / RENEWALS / 1_000
        while not self._stopping.wait(pause_s):
            pause_s = in_time_s if self._renew_all() else min(in_time_s, SOON_S)

    def _renew_all(self) -> bool:
        """Renew all leases. Returns whether the store was available."""
        with self._change:
            held = list(self._held)
        batches = [held[start : start + MOST_AT_ONCE] for start in range(0, len(held), MOST_AT_ONCE)]
        try:
            for batch in batches:
                self._renew(batch)
        except Exception as problem:  # Any: if this thread ended, so would all leases.
            self.outage.begin(problem)
            return False
        if batches:
            self.outage.end()
        if self._cancelled:
            self.lose_cancelled()
        return True

    def _renew(self, batch: Sequence[Held]) -> None:
        """Renew a batch; after a refusal, again without the lost tasks."""
        while True:
            with self._change:
                # Leave out tasks that were let go. `let_go` waits for the others from here on.
                batch = [held for held in batch if held in self._held]
                self._renewing = frozenset(batch)
            if not batch:
                return
            refused: Collection[int] = ()
            try:
                renewed = self._store.commit(updates=[renewal(held.current, self.duration_ms) for held in batch])
                for held, task in zip(batch, renewed, strict=True):
                    held.current = task
            except CommitRefused as problem:
                refused = named(problem.refusal)
                if not refused:
                    raise
            finally:
                with self._change:
                    self._renewing = frozenset()
                    self._change.notify_all()
            lost = [held for held in batch if held.current.id in refused]
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
    """Return the ids of the tasks that the commit could not change."""
    return frozenset((*refusal.changes, *refusal.deletes, *refusal.owned))
