"""The next tasks of an operation, and what is to be done to each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from taskstore.types.tasks import Change, NewTask

from ..core.operations import GroupScope
from ..core.schedules import SCHEDULES, why_forbidden
from ..models import BulkItem, BulkOperation, Task
from ..reading.listing import Cursor
from ..reading.search.conditions import Condition
from .actions import Skip, Turn, action_of
from .selection import Selection

MOST_BYTES = 8 * 2**20  # Of their data: a commit reads it all.
LOOK_S = 0.5  # For tasks that meet the terms, until it is said again that somebody is at it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What is to be done to a task of this origin, which has so many bytes of data."""

    origin: int
    task: int  # Its id; 0: it comes back.
    step: Change | NewTask | int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some tasks of an operation, up to a place from which it goes on."""

    planned: Sequence[Planned] = ()
    skipped: Sequence[BulkItem] = ()
    place: str = ""
    is_last: bool = False

    def portions(self) -> Iterator[list[Planned]]:
        """Each as much as one commit should read."""
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
    """The tasks of the selection that come next, up to `size`.

    None, when they are rare: it goes on from where it looked to.
    """
    selection = Selection.read(operation.selection)
    ids, place, is_last = (_selected if selection.ids is not None else _found)(operation, selection, size)
    action = action_of(operation)
    now_ms = Task.objects.now_ms()
    planned: list[Planned] = []
    skipped: list[BulkItem] = []
    for task, data_size in _with_sizes(ids):
        before = operation.done + operation.skipped + operation.failed + len(planned) + len(skipped)
        turn = Turn(before, operation.expected, operation.began_at_ms)
        step = _allowed(task, action.to_do(task, now_ms, turn), selection.scope)
        if isinstance(step, Skip):
            skipped.append(skip(operation, task.origin, task.id, step))
        else:
            planned.append(Planned(origin=task.origin, task=task.id, step=step, size=data_size))
    return Chunk(planned=planned, skipped=skipped, place=place, is_last=is_last)


def _allowed(task: Task, step: Change | int | Skip, scope: GroupScope) -> Change | int | Skip:
    """The step, unless the tasks of this group, or of the one that it goes to, are not to be changed."""
    if why := why_not(task, scope):
        return Skip(why)
    if isinstance(step, Change) and step.group is not None and (why := why_not_into(step.group, scope)):
        return Skip(why)
    return step


def why_not(task: Task, scope: GroupScope) -> str:
    """Why the task may not be changed; empty: it may. What a schedule feeds its data says, so all of it is read."""
    if not scope.no_commands_because or task.group != SCHEDULES:
        return scope.why_forbidden(task.group)
    [whole] = Task.objects.find([task.id])
    return why_forbidden(whole.group, bytes(whole.data), scope) if whole else ""


def why_not_into(group: str, scope: GroupScope) -> str:
    """Why nothing may be put into the group, as a sentence; empty: it may."""
    return scope.why_forbidden(group) or ("" if scope.allows(group) else f'The group "{group}" may not be changed.')


def skip(operation: BulkOperation, origin: int, task_id: int, why: Skip) -> BulkItem:
    return BulkItem(operation=operation.pk, origin=origin, task=task_id, outcome=BulkItem.Outcome.SKIPPED, why=why.why)


def _selected(operation: BulkOperation, selection: Selection, size: int) -> tuple[list[int], str, bool]:
    """Of tasks that were named one by one."""
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
    place = Cursor.read(operation.place, "place") if operation.place else None
    # What it did already is not met again: requeued tasks may lie ahead, and a process may have died.
    items = "SELECT 1 FROM tasks_app_bulkitem AS item WHERE item.operation = %s AND item.origin = found.origin"
    # With the offset PostgreSQL looks up each task in the index. It would join all items of the operation else, as
    # it knows nothing of so new a one, and take longer with each chunk.
    undone = Condition(f"NOT EXISTS ({items} LIMIT 1 OFFSET 0)", (operation.pk,))
    walk = selection.walk(place, size, undone)
    walk.go_on_for(LOOK_S)
    after = walk.place_to_go_on
    ids = [found.id for found in walk.found[:size]]
    is_last = after is None and walk.is_at_end
    return ids, str(after) if after else operation.place, is_last


def _with_sizes(ids: Sequence[int]) -> list[tuple[Task, int]]:
    """The tasks that are still there, in the order of the ids, with the bytes of their data."""
    found = {task.id: task for task in Task.objects.get_queryset().filter(id__in=ids).beginnings(1)}
    return [(found[task_id], found[task_id].data_size) for task_id in ids if task_id in found]  # type: ignore[attr-defined]
