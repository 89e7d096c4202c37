"""Commit the results of tasks, several of them in one commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Self

from ..client.errors import NotAllowed, TooOften
from ..errors import CommitRefused, InvalidInput, StoreBusy, StoreUnavailable, TaskStoreError
from ..types.tasks import Change, NewTask
from .handlers import Result
from .lease_keeper import Outage, named
from .store import Store

if TYPE_CHECKING:
    from ..types.tasks import Task

LOOK_S = 0.5  # How often a waiting main thread wakes: a signal delivered to another thread is handled only then.
AWAY = (StoreUnavailable, StoreBusy, TooOften)
SOON_S = 1.0  # The pause before the next attempt if the store is unavailable.
MOST_AT_ONCE, MOST_BYTES = 100, 8 * 2**20  # Per commit, unless a single entry is larger.
CHANGE_BYTES = 2**13  # Of a change besides its data, at most about a thousand in a commit.


def _nothing(_: object) -> None:
    """Do nothing, for entries whose result does not matter."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """Changes that are committed all or nothing, and who hears what comes of it."""

    commit: Result
    written: Callable[[Sequence[Task]], None] = _nothing  # With the new tasks: adds, then updates.
    # Takes CommitRefused if a task is lost, InvalidInput if the store rejects the entry, or the error of an unavailable
    # store. Returns the entry to write instead.
    refused: Callable[[Exception], Entry | None] = _nothing

    @classmethod
    def of(
        cls,
        change: NewTask | Change,
        written: Callable[[Sequence[Task]], None] = _nothing,
        refused: Callable[[Exception], Entry | None] = _nothing,
    ) -> Self:
        """Return the entry for a change of one task. An add replaces the task that it names."""
        commit = Result(adds=[change], deletes=[change.id]) if isinstance(change, NewTask) else Result(updates=[change])
        return cls(commit=commit, written=written, refused=refused)

    @property
    def ids(self) -> frozenset[int]:
        """The ids of the tasks that it changes."""
        return frozenset((*self.commit.deletes, *(change.id for change in self.commit.updates)))

    @property
    def size(self) -> int:
        """The number of bytes, about."""
        data = [add.data for add in self.commit.adds] + [change.data for change in self.commit.updates]
        return sum(CHANGE_BYTES + len(each if isinstance(each, bytes) else b"") for each in data)


Plan = Callable[[], Entry | None]


class Settling:
    """Writes entries to the store. Threads may share it.

    `is_patient`: whether to wait for an unavailable store. `fail` takes an error of the thread that writes.
    """

    def __init__(
        self,
        store: Store,
        outage: Outage,
        is_patient: Callable[[], bool],
        fail: Callable[[BaseException], object] = _nothing,
    ) -> None:
        self._store, self._outage, self._is_patient, self._fail = store, outage, is_patient, fail
        self._plans: SimpleQueue[Plan | None] = SimpleQueue()  # None: it ends.
        self._unwritten = 0
        self._change = threading.Condition()  # Guards the number.
        self._thread = threading.Thread(target=self._write_until_end, name="results", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, plan: Plan) -> None:
        """Have a thread write an entry soon, in order, with others in one commit. It calls `plan` for the entry."""
        with self._change:
            self._unwritten += 1
        self._plans.put(plan)

    @property
    def is_idle(self) -> bool:
        """Whether everything is written."""
        return not self._unwritten

    def end(self, until: float) -> bool:
        """Wait until everything is written, or until then. Returns whether it is."""
        with self._change:
            while self._unwritten and (left_s := until - time.monotonic()) > 0:
                self._change.wait(min(left_s, LOOK_S))
        self._plans.put(None)
        return self.is_idle

    def _write_until_end(self) -> None:
        try:
            while plan := self._plans.get():
                plans: list[Plan | None] = [plan]
                with suppress(Empty):
                    while plans[-1] and len(plans) < MOST_AT_ONCE:
                        plans.append(self._plans.get_nowait())
                self.write([entry for each in plans if each and (entry := each())])
                with self._change:
                    self._unwritten -= sum(each is not None for each in plans)
                    self._change.notify_all()
                if plans[-1] is None:
                    return
        except Exception as problem:
            self._fail(problem)

    def write(
        self,
        entries: Sequence[Entry],
        *,
        is_patient: Callable[[], bool] = lambda: True,
        client_id: int | None = None,
    ) -> None:
        """Write each entry independently of the others. `client_id`: the client to commit as, by default this one."""
        while entries:
            instead: list[Entry] = []
            for batch in batches(entries):
                self._write(batch, instead, is_patient, client_id)
            entries = instead

    def _write(
        self, batch: Sequence[Entry], instead: list[Entry], is_patient: Callable[[], bool], client_id: int | None
    ) -> None:
        """Write a batch in one commit; if some entries are refused, the others without them."""
        while batch:
            try:
                made = self._commit(batch, is_patient, client_id)
            except Exception as why:  # Any, because functions may return nonsense.
                problem = why
            else:
                for entry, tasks in made:
                    entry.written(tasks)
                return
            gone = named(problem.refusal) if isinstance(problem, CommitRefused) else frozenset()
            refused: Sequence[Entry] = [entry for entry in batch if gone & entry.ids]
            if not refused and len(batch) > 1 and is_of_entry(problem):
                half = len(batch) // 2  # Find the entry that is to blame.
                for part in (batch[:half], batch[half:]):
                    self._write(part, instead, is_patient, client_id)
                return
            refused = refused or batch
            instead += [other for entry in refused if (other := entry.refused(problem))]
            batch = [entry for entry in batch if entry not in refused]

    def _commit(
        self, batch: Sequence[Entry], is_patient: Callable[[], bool], client_id: int | None
    ) -> Sequence[tuple[Entry, Sequence[Task]]]:
        """Return each entry with its new tasks."""
        commits = [entry.commit for entry in batch]
        adds = [add for commit in commits for add in commit.adds]
        updates = [change for commit in commits for change in commit.updates]
        while True:
            try:
                made = self._store.commit(
                    adds=adds,
                    updates=updates,
                    deletes=[id for commit in commits for id in commit.deletes],
                    depends=[id for commit in commits for id in commit.depends],
                    client_id=client_id,
                )
                break
            except AWAY as problem:
                self._outage.begin(problem)
                if not (is_patient() and self._is_patient()):
                    raise
            time.sleep(SOON_S)
        self._outage.end()
        added, updated = iter(made[: len(adds)]), iter(made[len(adds) :])
        return [
            (entry, [*(next(added) for _ in entry.commit.adds), *(next(updated) for _ in entry.commit.updates)])
            for entry in batch
        ]


def is_of_entry(problem: Exception) -> bool:
    """Whether an entry is to blame, and not the store or the way to it."""
    return not isinstance(problem, TaskStoreError) or isinstance(problem, CommitRefused | InvalidInput | NotAllowed)


def batches(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        size += entry.size
        if batch and (len(batch) == MOST_AT_ONCE or size > MOST_BYTES):
            yield batch
            batch, size = [], entry.size
        batch.append(entry)
    if batch:
        yield batch
