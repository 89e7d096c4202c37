"""Taking an operation back: what it replaced becomes again what it was, unless somebody has changed it since."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from django.db.models import F, Q
from django.db.models.functions import Length

from ..models import BulkItem, BulkOperation, Task
from .actions import Skip, action_of
from .chunks import MOST_BYTES, Chunk, Planned, skip, why_not
from .selection import began_by


def next_chunk(operation: BulkOperation, size: int) -> Chunk:
    """The next tasks of the operation that is taken back, up to `size`, in the order of their origins."""
    assert operation.undoes is not None  # noqa: S101 - an undo has it.
    undone = BulkOperation.objects.get(pk=operation.undoes)
    action = action_of(undone)
    now_ms = Task.objects.now_ms()
    found = _items_to_undo(operation, operation.undoes, size)
    items = _readable(found)
    if action.ends_tasks:
        _read_data(items)
    living = _living([item.origin for item in items])
    scope = began_by(operation).scope
    planned: list[Planned] = []
    skipped: list[BulkItem] = []
    for item in items:
        now = living.get(item.origin)
        why = scope.why_forbidden(item.group) or (why_not(now, scope) if now else "")
        step = Skip(why) if why else action.step_back(item, now, now_ms)
        if isinstance(step, Skip):
            skipped.append(skip(operation, item.origin, now.id if now else 0, step))
        else:
            task_id = now.id if now else 0
            planned.append(Planned(origin=item.origin, task=task_id, step=step, size=item.size))  # type: ignore[attr-defined]
    place = str(items[-1].origin) if items else operation.place
    return Chunk(planned=planned, skipped=skipped, place=place, is_last=len(items) == len(found) < size)


def _items_to_undo(operation: BulkOperation, undone: int, size: int) -> list[BulkItem]:
    """Without their data, but with its `size`."""
    ahead = BulkItem.objects.filter(origin__gt=int(operation.place or 0))
    handled = ahead.filter(operation=operation.pk).values("origin")
    items = ahead.filter(operation=undone, outcome=BulkItem.Outcome.DONE)
    left = items.exclude(origin__in=handled).defer("data").annotate(size=Length("data")).order_by("origin")
    return list(left[:size])


def _readable(items: list[BulkItem]) -> list[BulkItem]:
    """As many of them as there is memory for the data of."""
    sizes = accumulate(item.size for item in items)  # type: ignore[attr-defined]
    return items[: max(1, sum(size <= MOST_BYTES for size in sizes))]


def _read_data(items: Sequence[BulkItem]) -> None:
    """All at once: a look for each would take most of the time."""
    data = dict(BulkItem.objects.filter(pk__in=[item.pk for item in items]).values_list("pk", "data"))
    for item in items:
        item.data = data[item.pk]


def _living(origins: Sequence[int]) -> dict[int, Task]:
    # Two conditions, as there is an index for each.
    tasks = Task.objects.get_queryset().beginnings(1)
    first, later = Q(id__in=origins, origin=F("id")), Q(origin__in=origins) & ~Q(origin=F("id"))
    return {task.origin: task for which in (first, later) for task in tasks.filter(which)}
