"""What came of jobs is written down: what is there at the same time, in one commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..client.errors import TooOften
from ..errors import CommitRefused, InvalidInput, StoreBusy, StoreUnavailable, TaskStoreError
from ..types.tasks import Change, NewTask
from ..worker.lease_keeper import Outage, named
from ..worker.store import Store

if TYPE_CHECKING:
    from ..types.tasks import Task

AWAY = (StoreUnavailable, StoreBusy, TooOften)
SOON_S = 1.0  # Until a store that is away is tried again.
MOST_AT_ONCE, MOST_BYTES = 100, 8 * 2**20  # In a commit, unless a single entry is larger.


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A change of one task, and who hears what comes of it."""

    change: NewTask | Change  # An add takes the place of the task that it names.
    written: Callable[[Task], None]  # With what has taken its place.
    # CommitRefused: the task is no longer ours. InvalidInput: the store won't have this. Else it could not be asked.
    refused: Callable[[Exception], None]


class Ledger:
    """`client_id`: in whose name, if not in our own. `is_patient`: whether to wait for a store that is away."""

    def __init__(
        self, store: Store, is_patient: Callable[[], bool], outage: Outage, client_id: int | None = None
    ) -> None:
        self._store, self._is_patient, self._outage, self._client_id = store, is_patient, outage, client_id

    def write(self, entries: Sequence[Entry]) -> None:
        """Each of them or not, whatever comes of the others. Waits for a store that is away."""
        for batch in batches(entries):
            self._write(batch)

    def _write(self, batch: Sequence[Entry]) -> None:
        """All at once; when that is refused because of some, the others without them."""
        while batch and (refused := self._refused(batch)):
            batch = [entry for entry in batch if entry not in refused]

    def _refused(self, batch: Sequence[Entry]) -> Sequence[Entry]:
        try:
            self._commit(batch)
        except CommitRefused as problem:
            gone = named(problem.refusal)
            refused = [entry for entry in batch if entry.change.id in gone] or batch
            return _tell(refused, problem)
        except InvalidInput as problem:
            self._find_invalid(batch, problem)
            return batch
        except TaskStoreError as problem:
            return _tell(batch, problem)
        return ()

    def _find_invalid(self, batch: Sequence[Entry], problem: InvalidInput) -> None:
        """Which of them it was, only trying shows."""
        if len(batch) == 1:
            batch[0].refused(problem)
            return
        for entry in batch:
            self._write([entry])

    def _commit(self, batch: Sequence[Entry]) -> None:
        adds = [(entry, entry.change) for entry in batch if isinstance(entry.change, NewTask)]
        updates = [(entry, entry.change) for entry in batch if isinstance(entry.change, Change)]
        made = self._patiently([add for _, add in adds], [change for _, change in updates])
        for (entry, _), task in zip([*adds, *updates], made, strict=True):
            entry.written(task)

    def _patiently(self, adds: Sequence[NewTask], updates: Sequence[Change]) -> Sequence[Task]:
        deletes = [add.id for add in adds]
        while True:
            try:
                made = self._store.commit(adds=adds, updates=updates, deletes=deletes, client_id=self._client_id)
            except AWAY as problem:
                self._outage.begin(problem)
                if not self._is_patient():
                    raise
                time.sleep(SOON_S)
            else:
                self._outage.end()
                return made


def _tell(refused: Sequence[Entry], problem: Exception) -> Sequence[Entry]:
    for entry in refused:
        entry.refused(problem)
    return refused


def batches(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        size += len(entry.change.data or b"")
        if batch and (len(batch) == MOST_AT_ONCE or size > MOST_BYTES):
            yield batch
            batch, size = [], len(entry.change.data or b"")
        batch.append(entry)
    if batch:
        yield batch
