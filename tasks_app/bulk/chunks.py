"""Plan the next tasks of an operation, or of an undo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from django.db.models import F, Q
from django.db.models.functions import Length

from taskstore.types.schedules import SCHEDULES
from taskstore.types.tasks import Change, NewTask

from ..core.operations import GroupScope
from ..core.schedules import why_forbidden
from ..models import BulkItem, BulkOperation, Task
from ..reading.pages import Cursor
from ..reading.search.conditions import Condition
from .actions import Skip, Turn, action_of
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
    found = {task.id: task for task in Task.objects.get_queryset().filter(id__in=ids).beginnings(1)}
    for task in (found[task_id] for task_id in ids if task_id in found):
        before = operation.done + operation.skipped + operation.failed + len(planned) + len(skipped)
        turn = Turn(before, operation.expected, operation.began_at_ms)
        step = action.to_do(task, now_ms, turn)
        target = step.group if isinstance(step, Change) else None
        why = why_not(task, selection.scope)
        if not why and target is not None:
            why = why_not_into(target, selection.scope)
        if why:
            step = Skip(why)
        if isinstance(step, Skip):
            skipped.append(_skipped(operation, task.origin, task.id, step))
        else:
            size_of_data: int = task.data_size  # type: ignore[attr-defined]
            planned.append(Planned(origin=task.origin, task=task.id, step=step, size=size_of_data))
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
        why = scope.why_forbidden(item.group) or (why_not(now, scope) if now else "")
        step = Skip(why) if why else action.step_back(item, now, now_ms)
        if isinstance(step, Skip):
            skipped.append(_skipped(operation, item.origin, task_id, step))
        else:
            planned.append(Planned(origin=item.origin, task=task_id, step=step, size=item.size))
    place = str(items[-1].origin) if items else operation.place
    return Chunk(planned=planned, skipped=skipped, place=place, is_last=len(items) == len(found) < size)


def why_not(task: Task, scope: GroupScope) -> str:
    """Return the reason why the task may not be changed; empty when it may.

    The data of a schedule names the group that it adds to, so all of it is read.
    """
    if not scope.no_commands_because or task.group != SCHEDULES:
        return scope.why_forbidden(task.group)
    [whole] = Task.objects.find([task.id])
    return why_forbidden(whole.group, bytes(whole.data), scope) if whole else ""


def why_not_into(group: str, scope: GroupScope) -> str:
    """Return the reason why nothing may be put into the group, as a sentence; empty when it may."""
    return scope.why_forbidden(group) or ("" if scope.allows(group) else f'The group "{group}" may not be changed.')


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
