"""A task in work: it is renewed in the background until it is committed, given up or lost."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING

from .errors import LeaseLost, MassTaskerError, NotFound, TooMuch, Unavailable
from .masstasker_pb2 import Task
from .operations import Operation, copy_of, delete_unless_replaced

if TYPE_CHECKING:
    from .client import Client

RENEWALS = 3  # Within the time of a lease: one may fail, or two be late.


class Lease:
    """What the work gets: `commit` what came of it, and `check` now and then whether it is still worth doing."""

    def __init__(self, store: Client, task: Task, own_for: timedelta) -> None:
        self._store, self._own_for = store, own_for
        self._task = task  # The caller's, which gets each new id.
        self._owned = copy_of(task)  # As it came: what the work has half changed is not for others to see.
        self._turn = threading.Lock()  # The task has one id at a time: it is not renewed while it is committed.
        self._over = threading.Event()
        self._lost: MassTaskerError | None = None
        self._is_committed = False
        self._renewing = threading.Thread(target=self._renew_until_over, name="lease", daemon=True)

    def check(self) -> None:
        """Raises LeaseLost when the task is no longer ours: nothing that is done for it now can be committed."""
        if self._lost:
            raise LeaseLost(f"the lease is lost: {self._lost}") from self._lost

    def commit(self, *operations: Operation) -> None:
        """Do these in one Update that also deletes the task, unless one of them replaces it. It ends the lease.

        Raises LeaseLost, or what the Update is refused for otherwise: then the lease goes on.
        """
        with self._turn:
            self.check()
            try:
                self._store.do(*operations, delete_unless_replaced(self._task))
            except NotFound:
                self._renew()  # Is it the task itself that is gone, or another one that the operations name?
                self.check()
                raise
            self._is_committed = True
            self._over.set()

    def begin(self) -> None:
        self._renewing.start()

    def end(self) -> None:
        """No renewal is under way after this, and none will come."""
        with self._turn:
            self._over.set()
        self._renewing.join()

    def finish(self) -> None:
        """The work went well: commit, unless it has done so itself."""
        if not self._is_committed:
            self.commit()

    def give_up(self, problem: BaseException, error_group: str) -> None:
        """The work failed: move the task to the error group, or give it back and raise the problem again."""
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
            return  # It lasts for a while yet, and the next try may come through.
        except MassTaskerError as problem:
            self._lost = problem
            self._over.set()
            return
        self._task.id = self._owned.id
        self._task.not_before.CopyFrom(self._owned.not_before)
