"""An operation at work, chunk by chunk, in whichever process holds it."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Sequence

from django.db import OperationalError, transaction
from django.db.models import Count, F, Q

from .. import audit
from ..errors import CommitRefused, StoreBusy, StoreUnavailable
from ..models import BulkItem, BulkOperation, Task
from ..operations import Change, Commit, Ending, NewTask, Operator
from . import chunks, undoing
from .chunks import Chunk, Planned
from .pace import Pace
from .selection import scope_in
from .verbs import CHANGED_MEANWHILE, ENDINGS, Verb

log = logging.getLogger(__name__)

HOLD_MS = 10_000  # A process that has not been heard of for so long has died.
PATIENCE_S = 1.0  # Before another try, when the store can't be reached.
IDS_IN_AUDIT = 500

OUTCOMES = tuple(BulkItem.Outcome)


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
    try:
        _count_anew(operation_id)
        while not stop.is_set():
            has_ended = _try_chunk(operation_id, pace, stop)
            if has_ended or (end is not None and time.monotonic() > end) or not hold.keep():
                return
            stop.wait(pace.rest_s())
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


def _try_chunk(operation_id: int, pace: Pace, stop: threading.Event) -> bool:
    """Do some more, if the store can be reached. Returns whether the operation has ended."""
    pace.begin()
    try:
        return _do_chunk(BulkOperation.objects.get(pk=operation_id), pace)
    except (StoreBusy, StoreUnavailable, OperationalError) as error:
        log.warning("operation %s waits for the store: %s", operation_id, error)
        stop.wait(PATIENCE_S)
        return False


def _do_chunk(operation: BulkOperation, pace: Pace) -> bool:
    if operation.cancelled_by:
        _end(operation, BulkOperation.State.CANCELLED)
        return True
    next_chunk = undoing.next_chunk if operation.verb == Verb.UNDO else chunks.next_chunk
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
        except (StoreBusy, StoreUnavailable, OperationalError):
            raise
        except Exception as error:  # Whatever it is: the other tasks have nothing to do with it.
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
    steps = [planned.step for planned in portion]
    return Commit(
        owner=0,
        adds=tuple(step for step in steps if isinstance(step, NewTask)),
        updates=tuple(step for step in steps if isinstance(step, Change)),
        deletes=tuple(step for step in steps if isinstance(step, int)),
        scope=scope_in(operation.selection),
        operator=Operator(
            name=operation.by,
            ending=ENDINGS.get(Verb(operation.verb), Ending.CHANGED),
            reason=operation.reason,
            bulk=operation.pk,
        ),
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
            actor=operation.by,
            action=operation.verb,
            group=operation.group,
            selection=operation.in_words,
            reason=operation.reason,
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
