"""Run a bulk operation: chunk by chunk, at a pace that leaves room for workers."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from django.db import transaction
from django.db.models import Count, F, Q

from taskstore.errors import CommitRefused
from taskstore.types.tasks import Change, Ending, NewTask

from ..access import audit
from ..core.operations import Commit
from ..database.outage import translated
from ..models import BulkItem, BulkOperation, Task
from ..writer.background import BackgroundLoop, Failures
from ..writer.writer import running
from . import chunks, undoing
from .actions import action_of
from .chunks import Chunk, Planned
from .selection import began_by

FIRST, LEAST, MOST = 50, 5, 1_000  # Tasks of a chunk.
BESIDE_WORKERS_S, ALONE_S = 0.008, 0.1  # How long a chunk's commit should keep the writer.
REST = 1.5  # Times as long as a chunk takes have workers the store for themselves after it.


class Pace:
    """Learns from each chunk. `is_considerate`: workers of this process, if there are any, come first."""

    def __init__(self, *, is_considerate: bool) -> None:
        self.size = min(FIRST, MOST)
        self._is_considerate = is_considerate
        self._began_s = monotonic()
        self._committed_s = 0.0
        self._seen = _done_by_writer()
        self._own = 0

    def begin(self) -> None:
        """A chunk begins."""
        self._began_s, self._committed_s, self._own = monotonic(), 0.0, 0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Around a commit of the chunk."""
        began_s = monotonic()
        yield
        self._committed_s += monotonic() - began_s
        self._own += 1

    def rest_s(self) -> float:
        """After a chunk: how long to leave the store to the workers. The size of the next one follows from this one."""
        seen = _done_by_writer()
        others_work = self._is_considerate and seen - self._seen > self._own
        self._seen = seen
        if self._committed_s:
            aim_s = BESIDE_WORKERS_S if others_work else ALONE_S
            # At most twice as many: one commit may have been quick by chance.
            fitting = int(self.size * min(2.0, aim_s / self._committed_s))
            self.size = min(MOST, max(LEAST, fitting))
        return REST * (monotonic() - self._began_s) if others_work else 0.0


def _done_by_writer() -> int:
    """How much the writer of this process has had to do."""
    writer = running(Task.objects.writing_alias)
    return writer.begun if writer else 0


log = logging.getLogger(__name__)

HOLD_MS = 10_000  # A process that has not been heard of for so long has died.
LOOK_EVERY_S = 0.5  # For operations that no other process is at.
IDS_IN_AUDIT = 500
CHANGED_MEANWHILE = "changed in the meantime"

OUTCOMES = tuple(BulkItem.Outcome)


class Runner(BackgroundLoop):
    """Beside the writer of each server process: continues operations that no other process is at."""

    def __init__(self) -> None:
        super().__init__("bulk operations", self._look)

    async def _look(self) -> float:
        await self.aside(go_on, self.stopping)
        return LOOK_EVERY_S


def go_on(stop: threading.Event) -> None:
    """Run all operations that have not ended and that nobody is at, the oldest first, until `stop` is set.

    One that fails does not hold up the others. Raises the first error when all of them had their turn.
    """
    held_by_nobody = Q(state=BulkOperation.State.RUNNING, held_until_ms__lt=Task.objects.now_ms())
    errors: list[Exception] = []
    for operation_id in list(BulkOperation.objects.filter(held_by_nobody).order_by("pk").values_list("pk", flat=True)):
        if stop.is_set():
            break
        try:
            run(operation_id, stop=stop, is_considerate=True)
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


def run(
    operation_id: int,
    *,
    seconds: float | None = None,
    stop: threading.Event | None = None,
    is_considerate: bool = False,
) -> None:
    """Go on with the operation to its end, for so long, or until `stop` is set.

    Does nothing when another process is at it, or when it has ended. `is_considerate`: workers of this
    process, if there are any, have the store for themselves most of the time.
    """
    hold, stop = Hold(operation_id), stop or threading.Event()
    end = None if seconds is None else time.monotonic() + seconds
    if not hold.take():
        return
    pace = Pace(is_considerate=is_considerate)
    failures = Failures(f"operation {operation_id}", is_alone=running(Task.objects.writing_alias) is None)
    try:
        _count_anew(operation_id)
        while not stop.is_set():
            pace.begin()
            try:
                has_ended = _do_chunk(BulkOperation.objects.get(pk=operation_id), pace)
                rest_s = pace.rest_s()
                failures.clear()
            except Exception as error:
                if translated(error) is None:
                    raise
                has_ended, rest_s = False, failures.note(error)
            if has_ended or (end is not None and time.monotonic() > end) or not hold.keep():
                return
            stop.wait(rest_s)
    finally:
        hold.let_go()


class Hold:
    """The right of one process at a time to run an operation. None has it when the operation has ended."""

    def __init__(self, operation_id: int) -> None:
        self._operations = BulkOperation.objects.filter(pk=operation_id)
        self._name = secrets.token_hex(8)
        self._asked_s = 0.0

    def keep(self) -> bool:
        """Whether it still is ours."""
        # Asked seldom enough to cost nothing, and long before another process may take it.
        return time.monotonic() < self._asked_s + HOLD_MS / 4_000 or self.take()

    def take(self) -> bool:
        """Whether it is ours for now. Asked again: for some more time."""
        self._asked_s = time.monotonic()
        now_ms = Task.objects.now_ms()
        free = Q(held_by=self._name) | Q(held_until_ms__lt=now_ms)
        free_ones = self._operations.filter(free, state=BulkOperation.State.RUNNING)
        return bool(free_ones.update(held_by=self._name, held_until_ms=now_ms + HOLD_MS))

    def let_go(self) -> None:
        self._operations.filter(held_by=self._name).update(held_by="", held_until_ms=0)


def _count_anew(operation_id: int) -> None:
    """Who was at it before may have died between a chunk and its numbers."""
    counted = BulkItem.objects.filter(operation=operation_id).values_list("outcome").annotate(Count("pk"))
    numbers = dict.fromkeys(OUTCOMES, 0) | dict(counted.order_by())
    BulkOperation.objects.filter(pk=operation_id).update(**numbers)


def _do_chunk(operation: BulkOperation, pace: Pace) -> bool:
    if operation.cancelled_by:
        _end(operation, BulkOperation.State.CANCELLED)
        return True
    next_chunk = undoing.next_chunk if operation.undoes else chunks.next_chunk
    chunk = next_chunk(operation, pace.size)
    numbers = Counter[str]()
    for portion in chunk.portions():
        with pace.timed():
            numbers += _commit(portion, operation)
    _note(operation, chunk, numbers)
    if chunk.is_last:
        # A process that was at it before may have been taken for dead too early.
        _count_anew(operation.pk)
        operation.refresh_from_db()
        _end(operation, BulkOperation.State.DONE)
    return chunk.is_last


def _note(operation: BulkOperation, chunk: Chunk, numbers: Counter[str]) -> None:
    """What was skipped, and how far it has come."""
    with transaction.atomic():
        BulkItem.objects.bulk_create(chunk.skipped, ignore_conflicts=True)
        BulkOperation.objects.filter(pk=operation.pk).update(
            place=chunk.place,
            done=F("done") + numbers[BulkItem.Outcome.DONE],
            skipped=F("skipped") + len(chunk.skipped),
            failed=F("failed") + numbers[BulkItem.Outcome.FAILED],
        )


def _commit(portion: Sequence[Planned], operation: BulkOperation) -> Counter[str]:
    """Change what can be changed in one commit. Returns how many were done, and how many failed."""
    left = {planned.task or -planned.origin: planned for planned in portion}
    while left:
        try:
            Task.objects.perform(_commit_of(list(left.values()), operation))
            break
        except CommitRefused as refused:
            # A worker was faster. What it left has a new id, so trying again ends.
            gone = {*refused.refusal.changes, *refused.refusal.deletes}
            if not gone:
                return _halves(list(left.values()), operation, refused)
            left = {task_id: planned for task_id, planned in left.items() if task_id not in gone}
        except Exception as error:
            if translated(error):
                raise
            # Whatever it is: the other tasks have nothing to do with it.
            return _halves(list(left.values()), operation, error)
    return Counter({BulkItem.Outcome.DONE: len(left)})


def _halves(portion: list[Planned], operation: BulkOperation, error: Exception) -> Counter[str]:
    """The tasks that can't be changed are found, and only those fail."""
    if len(portion) > 1:
        half = len(portion) // 2
        return _commit(portion[:half], operation) + _commit(portion[half:], operation)
    [planned] = portion
    log.warning("operation %s: task %s failed", operation.pk, planned.task, exc_info=error)
    why = f"{type(error).__name__}: {error}"
    failed = BulkItem(operation=operation.pk, origin=planned.origin, task=planned.task, outcome="failed", why=why)
    BulkItem.objects.bulk_create([failed], ignore_conflicts=True)
    return Counter({BulkItem.Outcome.FAILED: 1})


def _commit_of(portion: Sequence[Planned], operation: BulkOperation) -> Commit:
    actor, steps = began_by(operation), [planned.step for planned in portion]
    ending = Ending.CHANGED if operation.undoes else action_of(operation).ending
    return Commit(
        owner=0,
        adds=tuple(step for step in steps if isinstance(step, NewTask)),
        updates=tuple(step for step in steps if isinstance(step, Change)),
        deletes=tuple(step for step in steps if isinstance(step, int)),
        scope=actor.scope,
        operator=actor.operator(ending, bulk=operation.pk),
    )


def _end(operation: BulkOperation, state: str) -> None:
    """Write down how it ended, once."""
    handled = operation.done + operation.skipped + operation.failed
    gone = max(0, operation.expected - handled) if state == BulkOperation.State.DONE else 0
    now_ms = Task.objects.now_ms()
    unended = BulkOperation.objects.filter(pk=operation.pk, state=BulkOperation.State.RUNNING)
    with transaction.atomic():
        if not unended.update(state=state, gone=gone, ended_at_ms=now_ms, held_by="", held_until_ms=0):
            return
        audit.record(
            began_by(operation),
            operation.verb,
            group=operation.group,
            selection=operation.in_words,
            done=operation.done,
            skipped=operation.skipped + gone,
            details=_details(operation, state, gone),
            duration_ms=now_ms - operation.began_at_ms,
        )


def _details(operation: BulkOperation, state: str, gone: int) -> dict[str, object]:
    ids = BulkItem.objects.filter(operation=operation.pk, outcome=BulkItem.Outcome.DONE).values_list("task", flat=True)
    told = {
        **operation.parameters,
        "result": state,
        "cancelled by": operation.cancelled_by,
        "failed": operation.failed,
    }
    return {
        **{name: value for name, value in told.items() if value},
        "operation": operation.pk,
        "skipped": reasons(operation.pk, gone),
        "ids": list(ids.order_by("origin")[:IDS_IN_AUDIT]),
    }


def reasons(operation_id: int, gone: int = 0) -> dict[str, int]:
    """Why tasks were skipped, and how many for each reason."""
    skipped = BulkItem.objects.filter(operation=operation_id, outcome=BulkItem.Outcome.SKIPPED)
    counted = dict(skipped.values_list("why").annotate(Count("pk")).order_by("why"))
    return counted | ({CHANGED_MEANWHILE: gone} if gone else {})
