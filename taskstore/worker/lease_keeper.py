"""Renew leases while tasks run, and keep trying through an outage of the server.

A lease may end during an outage. Then the worker itself may get the task again, by a claim that had been waiting, while
the former attempt still runs. The history of the task tells so, and the attempt goes on with the task as claimed anew.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from ..client.errors import NotAllowed, TooOften, UnexpectedAnswer
from ..errors import CommitRefused, InvalidInput, StoreBusy, StoreUnavailable
from ..types.tasks import Change, Ending, Refusal
from .store import Store

if TYPE_CHECKING:
    from ..types.history import End
    from ..types.tasks import Task


logger = logging.getLogger(__name__)


class Outage:
    """Logs the beginning and the end of an outage once. Threads may share it."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._is_on = False
        self.heard_at = -math.inf  # When the store last answered, by the monotonic clock.

    def begin(self, problem: object) -> None:
        with self._turn:
            if not self._is_on:
                logger.warning("the store is unreachable; retrying until it is back: %s", problem)
            self._is_on = True

    def end(self) -> None:
        self.heard_at = time.monotonic()
        with self._turn:
            if self._is_on:
                logger.warning("the store is reachable again")
            self._is_on = False


RENEWALS = 3  # Per lease, so that one may fail or two may be late.
SOON_S = 1.0  # The pause before the next attempt if the store is unavailable.
AWAY = (StoreUnavailable, StoreBusy, TooOften)
EXPECTED_S = 5.0  # From the claim of a task by this worker to its answer.
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

    def claimed_again(self) -> None:
        """Note that the task was claimed again while its attempt goes on, which is no further attempt."""


class Keeper:
    """Renews the leases of tasks to `duration_ms`, many in one commit.

    A task that the store refuses to renew is lost; the others are kept. While the store is unavailable it keeps trying,
    because no other client can get the tasks then.
    """

    def __init__(self, store: Store, duration_ms: int) -> None:
        self._store, self.duration_ms = store, duration_ms
        self._held: dict[Held, None] = {}  # An ordered set.
        self._renewing: frozenset[Held] = frozenset()  # In the commit under way.
        self._expected: dict[Held, float] = {}  # This client has claimed them again; until when to wait for the answer.
        self._cancelled: list[int] = []  # The latest ids of which the store has said so.
        self._change = threading.Condition()  # Guards the four above.
        self._stopping = threading.Event()
        self._answered_at = time.monotonic()  # When the last renewals began that the store has answered.
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

    def lose(self, held: Held) -> None:
        """Stop renewing a lease, because something else has become of the task."""
        with self._change:
            self._held.pop(held, None)
            self._expected.pop(held, None)
            self._change.notify_all()
        if not held.is_lost:
            held.lose()

    def let_go(self, held: Held) -> Task:
        """Stop renewing a lease, after a renewal under way. Returns the task with its current id."""
        with self._change:
            self._held.pop(held, None)
            while held in self._renewing or held in self._expected:
                self._change.wait()
            self._held.pop(held, None)  # It may have been expected.
        return held.current

    @property
    def answered_at(self) -> float:
        """When the last renewals began of which the store has said what came of them, by the monotonic clock."""
        return self._answered_at

    def adopt(self, held: Held, task: Task) -> bool:
        """Go on with a task that this worker has just claimed as the one that it holds.

        Returns False if it is not that task after the end of its lease, but was changed or released meanwhile. Raises
        an error of AWAY.
        """
        _, end = self.led_to(held.current)
        if not (self.is_claim(end) and end and end.successor == task.id):
            return False
        with self._change:
            while held in self._renewing:
                self._change.wait()
            is_expected = self._expected.pop(held, None) is not None
            if not held.is_lost:
                held.current = task
                if is_expected:
                    self._held[held] = None
            self._change.notify_all()
        if not held.is_lost:
            held.claimed_again()
        return not held.is_lost

    def is_claim(self, end: End | None) -> bool:
        """Whether this client has claimed the task again when its lease had ended."""
        return bool(end and end.how is Ending.CLAIMED and end.client_id == self._store.id)

    def led_to(self, task: Task) -> tuple[Task | None, End | None]:
        """Return what renewals by this client have made of a task, and how that has ended.

        The first is None without such renewals, of which the client has not heard, or if it has ended. Raises an error
        of AWAY.
        """
        try:
            history = self._store.history(task.id)
        except (NotAllowed, InvalidInput):
            history = None
        ends = {step.id: step.ended for step in history.steps} if history else {}
        id, end = task.id, ends.get(task.id)
        while end and end.successor and end.how is Ending.RENEWED and end.client_id == self._store.id:
            id, end = end.successor, ends.get(end.successor)
        return (None if end or id == task.id else self._store.tasks([id])[0]), end

    def refused(self, held: Held, was: Task) -> None:
        """Lose a task of which the store says that it is another one now, unless this client has made it so.

        Raises an error of AWAY.
        """
        found, end = self.led_to(was)
        with self._change:
            if held.current is not was:
                return  # Its claim has been answered meanwhile.
            is_kept = held in self._held
            if found:
                held.current = found
                return
            self._held.pop(held, None)
            if is_kept and self.is_claim(end):
                self._expected[held] = time.monotonic() + EXPECTED_S
                return
        if is_kept:
            held.is_cancelled = bool(end and end.how is Ending.CANCELLED)
            held.lose()

    def _lose_unexpected(self) -> None:
        """Lose what should have been claimed again: maybe another worker of this process has it."""
        with self._change:
            lost = [held for held, until in self._expected.items() if time.monotonic() > until]
            for held in lost:
                held.is_lost = True  # Before anybody adopts it.
                del self._expected[held]
            self._change.notify_all()
        for held in lost:
            held.lose()

    def _renew_until_stopped(self) -> None:
        pause_s = in_time_s = self.duration_ms / RENEWALS / 1_000
        while not self._stopping.wait(pause_s):
            is_all_well = self._renew_all() and not self._expected
            pause_s = in_time_s if is_all_well else min(in_time_s, SOON_S)

    def _renew_all(self) -> bool:
        """Renew all leases. Returns whether the store was available."""
        began_at = time.monotonic()
        self._lose_unexpected()
        with self._change:
            held = list(self._held)
        batches = [held[start : start + MOST_AT_ONCE] for start in range(0, len(held), MOST_AT_ONCE)]
        try:
            for batch in batches:
                self._renew(batch)
        except Exception as problem:  # Any: if this thread ended, so would all leases.
            self.outage.begin(problem)
            if not isinstance(problem, (*AWAY, UnexpectedAnswer)):
                self._answered_at = began_at
            return False
        self._answered_at = began_at
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
            lost = [(held, task) for held in batch if (task := held.current).id in refused]
            if not lost:
                return
            for each in lost:
                self.refused(*each)


def renewal(task: Task, duration_ms: int) -> Change:
    return Change(id=task.id, timespec_ms=-duration_ms)


def named(refusal: Refusal) -> frozenset[int]:
    """Return the ids of the tasks that the commit could not change."""
    return frozenset((*refusal.changes, *refusal.deletes, *refusal.owned))
