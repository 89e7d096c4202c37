"""Commit the results of tasks, several of them in one commit."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from ..client.calls import new_key
from ..client.errors import NotAllowed
from ..errors import CommitRefused, CommitUnknown, InvalidInput, TaskStoreError
from ..types.tasks import Change, Ending, NewTask, Refusal
from .handlers import Result
from .lease_keeper import AWAY, SOON_S, Held, Keeper
from .store import Store

if TYPE_CHECKING:
    from ..types.history import End
    from ..types.tasks import Task

LOOK_S = 0.5  # How often a waiting main thread wakes: a signal delivered to another thread is handled only then.
MOST_CHANGES, MOST_BYTES = 300, 8 * 2**20  # Per commit, unless a single entry is larger.
FEW = 8  # From so many on, a commit is worth its cost.
MOST_WAITING, MOST_BYTES_WAITING = 1_000, 32 * 2**20  # Above this the worker claims nothing.


def _nothing(_: object) -> None:
    """Do nothing, for entries whose result does not matter."""


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """Changes that are committed all or nothing, and who hears what comes of it."""

    commit: Result
    # With the new tasks: adds, then updates. If only the history tells that it is written, it is without the adds, or
    # with none if `is_last`.
    written: Callable[[Sequence[Task]], None] = _nothing
    # Takes CommitRefused with what concerns this entry if a task is lost, InvalidInput if the store rejects the entry,
    # or the error of an unavailable store. Returns the entry to write instead.
    refused: Callable[[Exception], Entry | None] = _nothing
    held: Held | None = None  # Its lease, which is not renewed from here on.
    is_last: bool = False  # Nobody goes on with the new tasks.
    frees_keys: bool = True  # Whether unique keys of tasks may become free.

    @classmethod
    def of(cls, change: NewTask | Change, **more: Any) -> Self:
        """Return the entry for a change of one task. An add replaces the task that it names."""
        commit = Result(adds=[change], deletes=[change.id]) if isinstance(change, NewTask) else Result(updates=[change])
        return cls(commit=commit, **more)

    def itself(self) -> Self:
        """Return the entry, as the plan of one that is known already."""
        return self

    @property
    def ids(self) -> Sequence[int]:
        """The ids of the tasks that it changes."""
        commit = self.commit
        return (*commit.deletes, *[change.id for change in commit.updates]) if commit.updates else commit.deletes

    @property
    def keys(self) -> Sequence[tuple[str, str]]:
        """The unique keys that it adds, with their groups."""
        return [add.key for add in self.commit.adds if add.key and not add.id]

    def concerns(self, refusal: Refusal) -> Refusal:
        """Return the part of a refusal that is about the tasks of this entry."""
        mine = {*self.ids, *self.commit.depends}
        return Refusal(
            changes=tuple(id for id in refusal.changes if id in mine),
            deletes=tuple(id for id in refusal.deletes if id in mine),
            depends=tuple(id for id in refusal.depends if id in mine),
            owned=tuple(id for id in refusal.owned if id in mine),
        )


@dataclass(slots=True)
class Batch:
    """Entries that can share a commit: none is about what another one changes."""

    entries: list[Entry] = field(default_factory=list)
    _weight: int = 0
    _size: int = 0
    _changed: set[int] = field(default_factory=set)
    _depended: set[int] = field(default_factory=set)
    _keys: set[tuple[str, str]] = field(default_factory=set)
    _frees_keys: bool = False

    def takes(self, entry: Entry) -> bool:
        """Add the entry unless it has to wait for the next commit."""
        commit = entry.commit
        ids, depends = entry.ids, commit.depends
        keys, size = (entry.keys, commit.size) if commit.adds or commit.updates else ((), 0)
        weight = len(ids) + len(depends) + len(commit.adds)
        if self.entries and (
            self._weight + weight > MOST_CHANGES
            or self._size + size > MOST_BYTES
            or not self._changed.isdisjoint(ids)
            or not self._changed.isdisjoint(depends)
            or not self._depended.isdisjoint(ids)
            or not self._keys.isdisjoint(keys)
            or (self._keys and entry.frees_keys)
            or (self._frees_keys and keys)
        ):
            return False
        self.entries.append(entry)
        self._weight += weight
        self._size += size
        self._changed.update(ids)
        if depends:
            self._depended.update(depends)
        if keys:
            self._keys.update(keys)
        self._frees_keys |= entry.frees_keys
        return True


Plan = Callable[[], Entry | None]


class Settling:
    """Writes entries to the store. Threads may share it.

    While one commit is on its way, entries pile up, and the next commit takes them. `is_patient`: whether to wait for
    an unavailable store. `fail` takes an error of the thread that writes. `on_room` is called when fewer wait again.
    `rest_s`: how long a few wait for others.
    """

    def __init__(
        self,
        store: Store,
        keeper: Keeper,
        is_patient: Callable[[], bool],
        fail: Callable[[BaseException], object] = _nothing,
        on_room: Callable[[], object] = lambda: None,
        rest_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._store, self._keeper, self._is_patient, self._fail = store, keeper, is_patient, fail
        self._on_room, self._rest_s = on_room, rest_s
        self._arrived: SimpleQueue[tuple[Plan, int] | None] = SimpleQueue()  # None: it ends.
        self._waiting: deque[tuple[Plan, int]] = deque()  # With their sizes. Of the thread that writes.
        self._unwritten = self._bytes = 0
        self._change = threading.Condition()  # Guards the numbers.
        self._writes_since = math.inf
        self._thread = threading.Thread(target=self._write_until_end, name="results", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, plans: Sequence[tuple[Plan, int]]) -> None:
        """Have a thread write entries soon, in order, with others in one commit.

        It calls each plan for its entry. The numbers are their sizes in bytes, about. Until then their leases are
        renewed.
        """
        with self._change:
            self._unwritten += len(plans)
            self._bytes += sum(size for _, size in plans)
        for each in plans:
            self._arrived.put(each)

    @property
    def is_idle(self) -> bool:
        """Whether everything is written."""
        return not self._unwritten

    @property
    def is_full(self) -> bool:
        """Whether so much waits that the worker must claim nothing more."""
        return self._unwritten > MOST_WAITING or self._bytes > MOST_BYTES_WAITING

    @property
    def writes_since(self) -> float:
        """When the commit under way was begun, by the monotonic clock; math.inf: there is none."""
        return self._writes_since

    def end(self, until: float) -> bool:
        """Wait until everything is written, or until then. Returns whether it is."""
        with self._change:
            while self._unwritten and (left_s := until - time.monotonic()) > 0:
                self._change.wait(min(left_s, LOOK_S))
        self._arrived.put(None)
        return self.is_idle

    def _write_until_end(self) -> None:
        try:
            while self._arrive():
                if len(self._waiting) < FEW and (rest_s := self._rest_s()):
                    time.sleep(rest_s)
                    self._arrive()
                before = len(self._waiting)
                entries, size = self._next_batch()
                self._writes_since = time.monotonic()
                self._write(entries)
                self._writes_since = math.inf
                with self._change:
                    was_full = self.is_full
                    self._unwritten -= before - len(self._waiting)
                    self._bytes -= size
                    self._change.notify_all()
                if was_full and not self.is_full:
                    self._on_room()
        except Exception as problem:
            self._fail(problem)

    def _arrive(self) -> bool:
        """Take what has arrived, and wait if there is nothing. Returns False at the end."""
        with suppress(Empty):
            while each := self._arrived.get(block=not self._waiting):
                self._waiting.append(each)
        return bool(self._waiting)

    def _next_batch(self) -> tuple[list[Entry], int]:
        """Return the entries of the next commit, and the size of the plans."""
        batch = Batch()
        total = 0
        while self._waiting:
            plan, size = self._waiting[0]
            entry = plan()
            if entry and not batch.takes(entry):
                if entry.held:
                    self._keeper.keep(entry.held)  # It is planned again.
                break
            self._waiting.popleft()
            total += size
        return batch.entries, total

    def write(
        self, entries: Sequence[Entry], *, is_patient: Callable[[], bool] = lambda: True, client_id: int | None = None
    ) -> None:
        """Write each entry independently of the others. `client_id`: the client to commit as, by default this one."""
        for batch in batches(entries):
            self._write(batch, is_patient, client_id)

    def _write(
        self, batch: Sequence[Entry], is_patient: Callable[[], bool] = lambda: True, client_id: int | None = None
    ) -> None:
        """Write a batch in one commit; if some entries are refused, the others without them."""
        while batch:
            refused: dict[Entry, Exception] = {}
            try:
                made = self._commit(batch, is_patient, client_id)
            except Exception as problem:  # Any, because functions may return nonsense.
                if isinstance(problem, CommitRefused):
                    parts = ((entry, entry.concerns(problem.refusal)) for entry in batch)
                    refused = {entry: CommitRefused(part) for entry, part in parts if part}
                if not refused and len(batch) > 1 and is_of_entry(problem):
                    half = len(batch) // 2  # Find the entry that is to blame.
                    self._write(batch[:half], is_patient, client_id)
                    self._write(batch[half:], is_patient, client_id)
                    return
                refused = refused or dict.fromkeys(batch, problem)
                batch = [entry for entry in batch if entry not in refused]
            else:
                for entry, tasks in made:
                    if tasks is None:
                        refused[entry] = CommitUnknown("the history says that it is written, but not as what")
                    else:
                        entry.written(tasks)
                batch = ()
            others = [other for entry, why in refused.items() if (other := entry.refused(why))]
            self.write(others, is_patient=is_patient, client_id=client_id)

    def _commit(
        self, batch: Sequence[Entry], is_patient: Callable[[], bool], client_id: int | None
    ) -> Iterable[tuple[Entry, Sequence[Task] | None]]:
        """Return each entry with its new tasks; None if it is written but they are not known.

        What has been sent is sent again unchanged and with its key, until the store has said what came of it.
        """
        commits = [entry.commit for entry in batch]
        adds = [add for commit in commits for add in commit.adds]
        updates = [change for commit in commits for change in commit.updates]
        deletes = [id for commit in commits for id in commit.deletes]
        depends = [id for commit in commits for id in commit.depends]
        key, is_in_doubt = new_key(), False
        while True:
            try:
                try:
                    made = self._store.commit(
                        adds=adds, updates=updates, deletes=deletes, depends=depends, client_id=client_id, key=key
                    )
                except CommitRefused:
                    # The store may know the key no longer, or under another token only.
                    own = self._store.id if client_id is None else client_id
                    if not (is_in_doubt and self._made_of(next(id for entry in batch for id in entry.ids), own)):
                        raise
                    return [(entry, self._tasks_of(entry, own)) for entry in batch]
                break
            except AWAY as problem:
                is_in_doubt |= isinstance(problem, CommitUnknown)
                self._keeper.outage.begin(problem)
                if not (is_patient() and self._is_patient()):
                    raise
            time.sleep(SOON_S)
        self._keeper.outage.end()
        added, updated = iter(made[: len(adds)]), iter(made[len(adds) :])
        return [
            (entry, [*(next(added) for _ in entry.commit.adds), *(next(updated) for _ in entry.commit.updates)])
            for entry in batch
        ]

    def _made_of(self, id: int, own: int) -> End | None:
        """Return how this client has changed the task, so that a commit without an answer has been applied."""
        try:
            history = self._store.history(id)
        except (NotAllowed, InvalidInput):
            return None
        ends = [step.ended for step in history.steps if step.id == id] if history else []
        others = (Ending.CLAIMED, Ending.RENEWED)
        return next((end for end in ends if end and end.client_id == own and end.how not in others), None)

    def _tasks_of(self, entry: Entry, own: int) -> Sequence[Task] | None:
        """Return the new tasks of an entry of which only the history tells that it is written, as for `written`."""
        if entry.is_last:
            return []
        ends = [self._made_of(change.id, own) for change in entry.commit.updates]
        tasks = self._store.tasks([end.successor for end in ends if end and end.successor])
        found = [task for task in tasks if task]
        return found if found and len(found) == len(ends) else None


def is_of_entry(problem: Exception) -> bool:
    """Whether an entry is to blame, and not the store or the way to it."""
    return not isinstance(problem, TaskStoreError) or isinstance(problem, CommitRefused | InvalidInput | NotAllowed)


def batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Yield entries that can share a commit, in order."""
    batch = Batch()
    for entry in entries:
        if not batch.takes(entry):
            yield batch.entries
            batch = Batch()
            batch.takes(entry)
    if batch.entries:
        yield batch.entries
