"""The lease of a task, renewed in the background until the task is committed, given up or lost."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING

from .errors import LeaseLost, MassTaskerError, NotFound, TooMuch, Unavailable
from .masstasker_pb2 import Task
from .operations import Operation, copy_of, delete_unless_replaced

if TYPE_CHECKING:
    from .client import Client

RENEWALS = 3  # Per lease, so that one may fail or two may be late.


class Lease:
    """The lease of a task. Call `commit` with the results, and `check` from time to time during long work."""

    def __init__(self, store: Client, task: Task, own_for: timedelta) -> None:
        self._store, self._own_for = store, own_for
        self._task = task  # The caller's task, which gets each new id.
        self._owned = copy_of(task)  # The original content, because renewals must not publish unfinished changes.
        self._turn = threading.Lock()  # The id changes with a renewal, so don't renew during a commit.
        self._over = threading.Event()
        self._lost: MassTaskerError | None = None
        self._is_committed = False
        self._renewing = threading.Thread(target=self._renew_until_over, name="lease", daemon=True)

    def check(self) -> None:
        """Raise LeaseLost if another client may have the task, so that no result can be committed."""
        if self._lost:
            raise LeaseLost(f"the lease is lost: {self._lost}") from self._lost

    def commit(self, *operations: Operation) -> None:
        """Apply the operations and delete the task, unless they replace it, in one Update. Ends the lease.

        Raises LeaseLost; other errors of the Update leave the lease running.
        """
        with self._turn:
            self.check()
            try:
                self._store.do(*operations, delete_unless_replaced(self._task))
            except NotFound:
                self._renew()  # Find out whether the task itself is gone, or another one that the operations name.
                self.check()
                raise
            self._is_committed = True
            self._over.set()

    def begin(self) -> None:
        self._renewing.start()

    def end(self) -> None:
        """Stop renewing, after a renewal under way."""
        with self._turn:
            self._over.set()
        self._renewing.join()

    def finish(self) -> None:
        """Commit after successful work, unless it has committed."""
        if not self._is_committed:
            self.commit()

    def give_up(self, problem: BaseException, error_group: str) -> None:
        """After failed work, move the task to the error group, or give it back and raise the problem again."""
        self.end()
        if self._lost or self._is_committed:
            raise problem
        self._store.commit_or_move(self._owned, problem, error_group)

    def _renew_until_over(self) -> None:
        while not self._over.wait(self._own_for.total_seconds() / RENEWALS):
            with self._turn:
                if not self._over.is_set():
                    self._renew()

    def _renew(self) -> None:
        try:
            self._store.reown(self._own_for, self._owned)
        except (Unavailable, TooMuch):
            return  # The lease still runs, and the next attempt may succeed.
        except MassTaskerError as problem:
            self._lost = problem
            self._over.set()
            return
        self._task.id = self._owned.id
        self._task.not_before.CopyFrom(self._owned.not_before)
