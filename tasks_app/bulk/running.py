"""Run a bulk operation in chunks, at a pace that leaves time for workers."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from time import monotonic

from django.db.models import Count, F, Q
from django.db.models.functions import Length

from taskstore.errors import CommitRefused
from taskstore.types.schedules import SCHEDULES
from taskstore.types.tasks import Change, Ending, NewTask

from ..access import audit
from ..core.operations import Apart, BatchStep, Commit, Duplicate, GroupScope, Step, TaskRecord, why_may_not_add
from ..core.portions import by_halves
from ..database import atomic, read
from ..database.outage import translated
from ..models import Batch, BulkItem, BulkOperation, Task
from ..reading.pages import Cursor
from ..reading.search.conditions import Condition
from ..writer.background import BackgroundLoop, Failures
from ..writer.writer import running
from .actions import KEY_TAKEN, Skip, Turn, action_of
from .selection import Selection, began_by

MOST_BYTES = 8 * 2**20  # Of the data in a commit, which reads all of it.
LOOK_S = 0.5  # For one search; between searches the process renews its hold on the operation.


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A planned step on the task of this origin."""

    origin: int
    task: int  # Its id; 0: an undo adds it again.
    step: Change | NewTask | int
    size: int  # Bytes of its data.


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some tasks of an operation, and the place at which it continues."""

    planned: Sequence[Planned] = ()
    skipped: Sequence[BulkItem] = ()
    place: str = ""
    is_last: bool = False

    def portions(self) -> Iterator[list[Planned]]:
        """Yield portions with as much data as one commit should read."""
        portion: list[Planned] = []
        size = 0
        for planned in self.planned:
            if portion and size + planned.size > MOST_BYTES:
                yield portion
                portion, size = [], 0
            portion.append(planned)
            size += planned.size
        if portion:
            yield portion


def next_chunk(operation: BulkOperation, size: int) -> Chunk:
    """Return up to `size` next tasks of the selection; perhaps none while matching tasks are rare."""
    selection = Selection.read(operation.selection)
    ids, place, is_last = (_selected if selection.ids is not None else _found)(operation, selection, size)
    action = action_of(operation)
    now_ms = Task.objects.now_ms()
    planned: list[Planned] = []
    skipped: list[BulkItem] = []
    found = {task.id: task for task in read(ids)}
    for task in (found[task_id] for task_id in ids if task_id in found):
        before = operation.done + operation.skipped + operation.failed + len(planned) + len(skipped)
        turn = Turn(before, operation.expected, operation.began_at_ms, operation.by, operation.reason)
        step = action.to_do(task, now_ms, turn)
        target = step.group if isinstance(step, Change) else None
        # Operators may delete every task, also in groups to which they may not add.
        why = "" if isinstance(step, int) else why_not(task, selection.scope)
        if not why and target is not None:
            why = selection.scope.why_out_of_reach(target)
        if why:
            step = Skip(why)
        if isinstance(step, Skip):
            skipped.append(_skipped(operation, task.origin, task.id, step))
        else:
            size = task.data.size if isinstance(task.data, Apart) else len(task.data)
            planned.append(Planned(origin=task.origin, task=task.id, step=step, size=size))
    return Chunk(planned=planned, skipped=skipped, place=place, is_last=is_last)


def next_undo_chunk(operation: BulkOperation, size: int) -> Chunk:
    """Return up to `size` next tasks of an undo, in the order of their origins.

    A task becomes again what it was before the undone operation, unless it has changed since.
    """
    assert operation.undoes is not None  # noqa: S101 - an undo has it.
    action = action_of(BulkOperation.objects.get(pk=operation.undoes))
    now_ms = Task.objects.now_ms()
    ahead = BulkItem.objects.filter(origin__gt=int(operation.place or 0))
    left = ahead.filter(operation=operation.undoes, outcome=BulkItem.Outcome.DONE).exclude(
        origin__in=ahead.filter(operation=operation.pk).values("origin")
    )
    found = list(left.defer("data").annotate(size=Length("data")).order_by("origin")[:size])
    # At most as many as there is memory for their data, but at least one.
    sizes = accumulate(item.size for item in found)
    items = found[: max(1, sum(total <= MOST_BYTES for total in sizes))]
    if action.ends_tasks:
        # One query for all data: a query for each would take most of the time.
        data = dict(BulkItem.objects.filter(pk__in=[item.pk for item in items]).values_list("pk", "data"))
        for item in items:
            item.data = data[item.pk]
    # Two queries, as there is an index for each.
    origins = [item.origin for item in items]
    first, later = Q(id__in=origins, origin=F("id")), Q(origin__in=origins) & ~Q(origin=F("id"))
    tasks = Task.objects.get_queryset().beginnings(1)
    living = {task.origin: task for which in (first, later) for task in tasks.filter(which)}
    scope = began_by(operation).scope
    planned: list[Planned] = []
    skipped: list[BulkItem] = []
    for item in items:
        now = living.get(item.origin)
        task_id = now.id if now else 0
        why = why_may_not_add(item.group, bytes(item.data) if action.ends_tasks else b"", scope)
        why = why or (why_not(now, scope) if now else "")
        step = Skip(why) if why else action.step_back(item, now, now_ms)
        if isinstance(step, Skip):
            skipped.append(_skipped(operation, item.origin, task_id, step))
        else:
            planned.append(Planned(origin=item.origin, task=task_id, step=step, size=item.size))
    place = str(items[-1].origin) if items else operation.place
    return Chunk(planned=planned, skipped=skipped, place=place, is_last=len(items) == len(found) < size)


def why_not(task: Task | TaskRecord, scope: GroupScope) -> str:
    """Return the reason why the task may not be changed; empty when it may.

    The data of a schedule names the group that it adds to, so all of it is read.
    """
    if not scope.is_restricted or task.group != SCHEDULES:
        return scope.why_forbidden(task.group)
    [whole] = Task.objects.find([task.id])
    return why_may_not_add(whole.group, bytes(whole.data), scope) if whole else ""


def _skipped(operation: BulkOperation, origin: int, task_id: int, why: Skip) -> BulkItem:
    return BulkItem(operation=operation.pk, origin=origin, task=task_id, outcome=BulkItem.Outcome.SKIPPED, why=why.why)


def _selected(operation: BulkOperation, selection: Selection, size: int) -> tuple[list[int], str, bool]:
    """Return the next of the tasks that were selected by id, the place after them, and whether they are the last."""
    begin = int(operation.place or 0)
    ids = (selection.ids or ())[begin : begin + size]
    items = BulkItem.objects.filter(operation=operation.pk, task__in=ids)
    handled = set(items.values_list("task", flat=True))
    left = [task_id for task_id in ids if task_id not in handled]
    living = Task.objects.get_queryset().within(selection.scope).filter(id__in=left)
    if selection.group:
        living = living.in_group(selection.group)
    found = list(living.order_by("id").values_list("id", flat=True))
    return found, str(begin + size), begin + size >= len(selection.ids or ())


def _found(operation: BulkOperation, selection: Selection, size: int) -> tuple[list[int], str, bool]:
    """Return the next tasks that match the search, the place after them, and whether they are the last."""
    place = Cursor.read(operation.place or None)
    # Exclude handled tasks: requeued ones may be ahead, and a process may have died after a commit.
    items = "SELECT 1 FROM tasks_app_bulkitem AS item WHERE item.operation = %s AND item.origin = found.origin"
    # The offset makes PostgreSQL look up each task in the index. Otherwise it would join all items of the operation,
    # because it has no statistics on a new one, and take longer with each chunk.
    unhandled = Condition(f"NOT EXISTS ({items} LIMIT 1 OFFSET 0)", (operation.pk,))
    scan = selection.scan(place, size, unhandled)
    scan.run_for(LOOK_S)
    after = scan.next_place
    ids = [found.id for found in scan.found[:size]]
    is_last = after is None and scan.is_at_end
    return ids, str(after) if after else operation.place, is_last


FIRST, LEAST, MOST = 50, 5, 1_000  # Tasks of a chunk.
MOST_BESIDE_WORKERS = 250  # For more the writer needs a thread, which takes longer.
BESIDE_WORKERS_S, ALONE_S = 0.005, 0.1  # How long a chunk's commit should take.
ACTIVE_S = 1.0  # So long after their last request workers are active.
REST = 1.0  # The pause after a chunk, as a multiple of its duration, while workers are active.


class Pace:
    """Adapts the size of chunks and the pauses. With `is_considerate`, workers of this process come first."""

    def __init__(self, *, is_considerate: bool) -> None:
        self.size = min(FIRST, MOST)
        self._is_considerate = is_considerate
        self._began_s = monotonic()
        self._committed_s = 0.0
        self._seen = _done_by_writer()
        self._own = 0
        self._others_s = float("-inf")  # When somebody else last asked the writer for something.

    def begin(self) -> None:
        """Note the start of a chunk."""
        self._began_s, self._committed_s, self._own = monotonic(), 0.0, 0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Measure a commit of the chunk."""
        began_s = monotonic()
        yield
        self._committed_s += monotonic() - began_s
        self._own += 1

    def rest_s(self) -> float:
        """Set the size of the next chunk from the last one, and return the pause in seconds before it."""
        seen = _done_by_writer()
        if seen - self._seen > self._own:
            self._others_s = monotonic()
        self._seen = seen
        others_work = self._is_considerate and monotonic() - self._others_s < ACTIVE_S
        aim_s = BESIDE_WORKERS_S if others_work else ALONE_S
        # At most double: one commit may have been quick by chance, or none was necessary.
        fitting = int(self.size * min(2.0, aim_s / self._committed_s if self._committed_s else 2.0))
        self.size = min(MOST_BESIDE_WORKERS if others_work else MOST, max(LEAST, fitting))
        return REST * (monotonic() - self._began_s) if others_work else 0.0


def _done_by_writer() -> int:
    """Return how many operations the writer of this process has started."""
    writer = running(Task.objects.writing_alias)
    return writer.begun if writer else 0


log = logging.getLogger(__name__)

HOLD_MS = 10_000  # A process that has not renewed its hold for so long has died.
LOOK_EVERY_S = 0.5  # For operations without a process.
IDS_IN_AUDIT = 500
CHANGED_MEANWHILE = "changed in the meantime"

OUTCOMES = tuple(BulkItem.Outcome)


class Runner(BackgroundLoop):
    """Continues operations without a process, in each server process beside the writer."""

    def __init__(self) -> None:
        super().__init__("bulk operations", self._look)

    async def _look(self) -> float:
        await self.aside(continue_free, self.stopping)
        return LOOK_EVERY_S


def continue_free(stop: threading.Event) -> None:
    """Run all operations that no process holds, the oldest first, until `stop` is set.

    A failing operation does not delay the others. Raises the first error after all of them.
    """
    free = BulkOperation.objects.filter(_is_free(Task.objects.now_ms()), state=BulkOperation.State.RUNNING)
    errors: list[Exception] = []
    for operation_id in list(free.order_by("pk").values_list("pk", flat=True)):
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
    """Run the operation to its end, for so many seconds, or until `stop` is set.

    Does nothing when another process holds it, or when it has ended. With `is_considerate`, it leaves most of the
    time to workers of this process.
    """
    hold, stop = Hold(operation_id), stop or threading.Event()
    end = None if seconds is None else time.monotonic() + seconds
    if not hold.take():
        return
    pace = Pace(is_considerate=is_considerate)
    failures = Failures(f"operation {operation_id}", is_alone=running(Task.objects.writing_alias) is None)
    try:
        _recount(operation_id)
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
        hold.release()


def _is_free(now_ms: int) -> Q:
    # A hold for longer than any process takes one is from when a clock was ahead.
    return ~Q(held_until_ms__range=(now_ms, now_ms + HOLD_MS))


class Hold:
    """The exclusive right of a process to run an operation that has not ended."""

    def __init__(self, operation_id: int) -> None:
        self._operations = BulkOperation.objects.filter(pk=operation_id)
        self._name = secrets.token_hex(8)
        self._asked_s = 0.0

    def keep(self) -> bool:
        """Renew the hold if it is time. Returns whether this process still has it."""
        # Seldom enough to cost nothing, and long before another process may take it.
        return time.monotonic() < self._asked_s + HOLD_MS / 4_000 or self.take()

    def take(self) -> bool:
        """Take or renew the hold. Returns whether this process has it."""
        self._asked_s = time.monotonic()
        now_ms = Task.objects.now_ms()
        is_free = Q(held_by=self._name) | _is_free(now_ms)
        free = self._operations.filter(is_free, state=BulkOperation.State.RUNNING)
        with atomic():
            return bool(free.update(held_by=self._name, held_until_ms=now_ms + HOLD_MS))

    def release(self) -> None:
        with atomic():
            self._operations.filter(held_by=self._name).update(held_by="", held_until_ms=0)


def _recount(operation_id: int) -> None:
    """Count the items again: another process may have died between a chunk and its numbers."""
    counted = BulkItem.objects.filter(operation=operation_id).values_list("outcome").annotate(Count("pk"))
    numbers = dict.fromkeys(OUTCOMES, 0) | dict(counted.order_by())
    with atomic():
        BulkOperation.objects.filter(pk=operation_id).update(**numbers)


def _do_chunk(operation: BulkOperation, pace: Pace) -> bool:
    if operation.cancelled_by:
        _end(operation, BulkOperation.State.CANCELLED)
        return True
    chunk = (next_undo_chunk if operation.undoes else next_chunk)(operation, pace.size)
    numbers = Counter[str]()
    for portion in chunk.portions():
        with pace.timed():
            numbers += sum(_commit(portion, operation), Counter())
    _save_progress(operation, chunk, numbers)
    if chunk.is_last:
        # Another process may have continued after it was considered dead.
        _recount(operation.pk)
        operation.refresh_from_db()
        _end(operation, BulkOperation.State.DONE)
    return chunk.is_last


def _save_progress(operation: BulkOperation, chunk: Chunk, numbers: Counter[str]) -> None:
    with atomic():
        BulkItem.objects.bulk_create(chunk.skipped, ignore_conflicts=True)
        BulkOperation.objects.filter(pk=operation.pk).update(
            place=chunk.place,
            done=F("done") + numbers[BulkItem.Outcome.DONE],
            skipped=F("skipped") + len(chunk.skipped) + numbers[BulkItem.Outcome.SKIPPED],
            failed=F("failed") + numbers[BulkItem.Outcome.FAILED],
        )


def _commit(portion: Sequence[Planned], operation: BulkOperation) -> Iterator[Counter[str]]:
    """Commit all steps that can be made. Yields how many were done, and how many failed."""
    return by_halves(
        portion,
        partial(_commit_all, operation=operation),
        partial(_failed, operation=operation),
        lambda error: translated(error) is None,
    )


def _commit_all(portion: Sequence[Planned], operation: BulkOperation) -> Counter[str]:
    """Commit the steps of all tasks that still exist. Raises the error of any of them."""
    actor = began_by(operation)
    action = None if operation.undoes else action_of(operation)
    ending = action.ending if action else Ending.CHANGED
    counts_as_done = bool(action and action.counts_as_done)
    batch = reopening(BulkOperation.objects.get(pk=operation.undoes)) if operation.undoes else None
    left = {planned.task or -planned.origin: planned for planned in portion}
    answer: list[TaskRecord] = []
    while left:
        steps = [planned.step for planned in left.values()]
        commit = Commit(
            owner=0,
            adds=tuple(step for step in steps if isinstance(step, NewTask)),
            updates=tuple(step for step in steps if isinstance(step, Change)),
            deletes=tuple(step for step in steps if isinstance(step, int)),
            scope=actor.scope,
            operator=actor.operator(ending, counts_as_done=counts_as_done, bulk=operation.pk),
            batch=batch,
        )
        try:
            answer = Task.objects.perform(commit)
            break
        except CommitRefused as refused:
            # A worker was faster. Its successors have new ids, so the retries end.
            gone = {*refused.refusal.changes, *refused.refusal.deletes}
            if not gone:
                raise
            left = {task_id: planned for task_id, planned in left.items() if task_id not in gone}
    added = [planned for planned in left.values() if isinstance(planned.step, NewTask)]
    taken = [planned for planned, task in zip(added, answer, strict=False) if isinstance(task, Duplicate)]
    BulkItem.objects.bulk_create(
        [
            BulkItem(
                operation=operation.pk, origin=planned.origin, outcome=BulkItem.Outcome.SKIPPED, why=KEY_TAKEN, task=0
            )
            for planned in taken
        ],
        ignore_conflicts=True,
    )
    return Counter({BulkItem.Outcome.DONE: len(left) - len(taken), BulkItem.Outcome.SKIPPED: len(taken)})


def reopening(undone: BulkOperation) -> BatchStep | None:
    """Return what opens the batch again that the operation deleted, with those within it; None if it deleted none."""
    if not (batch := undone.parameters.get("batch")):
        return None
    within = Batch.objects.tree(batch).filter(refuses=1).values_list("pk", flat=True)
    return BatchStep(batch, Step.REOPEN, also=tuple(within))


def _failed(planned: Planned, error: Exception, operation: BulkOperation) -> Counter[str]:
    """Record that a task can't be changed."""
    log.warning("operation %s: task %s failed", operation.pk, planned.task, exc_info=error)
    why = f"{type(error).__name__}: {error}"
    failed = BulkItem(operation=operation.pk, origin=planned.origin, task=planned.task, outcome="failed", why=why)
    BulkItem.objects.bulk_create([failed], ignore_conflicts=True)
    return Counter({BulkItem.Outcome.FAILED: 1})


def _end(operation: BulkOperation, state: str) -> None:
    """Record the end of the operation and its audit entry, once."""
    handled = operation.done + operation.skipped + operation.failed
    gone = max(0, operation.expected - handled) if state == BulkOperation.State.DONE else 0
    now_ms = Task.objects.now_ms()
    unended = BulkOperation.objects.filter(pk=operation.pk, state=BulkOperation.State.RUNNING)
    done = BulkItem.objects.filter(operation=operation.pk, outcome=BulkItem.Outcome.DONE)
    optional = {
        **operation.parameters,
        "result": state,
        "cancelled by": operation.cancelled_by,
        "failed": operation.failed,
    }
    with atomic():
        if not unended.update(state=state, gone=gone, ended_at_ms=now_ms, held_by="", held_until_ms=0):
            return
        audit.record(
            began_by(operation),
            operation.words,
            group=operation.group,
            selection=operation.in_words,
            done=operation.done,
            skipped=operation.skipped + gone,
            details={
                **{name: value for name, value in optional.items() if value},
                "operation": operation.pk,
                "skipped": reasons(operation.pk, gone),
                "ids": list(done.order_by("origin").values_list("task", flat=True)[:IDS_IN_AUDIT]),
            },
            duration_ms=now_ms - operation.began_at_ms,
        )


def reasons(operation_id: int, gone: int = 0) -> dict[str, int]:
    """Return the number of skipped tasks by reason."""
    skipped = BulkItem.objects.filter(operation=operation_id, outcome=BulkItem.Outcome.SKIPPED)
    counted = dict(skipped.values_list("why").annotate(Count("pk")).order_by("why"))
    return counted | ({CHANGED_MEANWHILE: gone} if gone else {})
