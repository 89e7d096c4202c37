"""What became of every id that was ever given out (contract.md section 5)."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Max

from .models import EndedTask, Task
from .operations import EVERY_GROUP, GroupScope


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A task under all the ids it ever had: the ended ones, oldest first, and the living one, or None."""

    origin: int
    ended: list[EndedTask]
    living: Task | None

    @property
    def group(self) -> str:
        """The group that it lies in, or lay in at its end."""
        group: str = (self.living or self.ended[-1]).group
        return group


def chain_of(task_id: int, scope: GroupScope = EVERY_GROUP) -> Chain | None:
    """The chain that the id belongs to, or None when no such id is known (or its group is out of the scope)."""
    entry = Task.objects.filter(id=task_id).first() or EndedTask.objects.filter(id=task_id).first()
    if entry is None or not scope.allows(entry.group):
        return None
    living = Task.objects.get_queryset().of_chain(entry.origin).first()
    ended = EndedTask.objects.filter(origin=entry.origin).order_by("id")
    if living:  # It may have ended since: what followed belongs to a later moment.
        ended = ended.filter(id__lt=living.id)
    return Chain(
        origin=entry.origin,
        ended=[step for step in ended if scope.allows(step.group)],
        living=living if living and scope.allows(living.group) else None,
    )


def newest_id() -> int:
    """The largest id that is known to have been given out; 0 in a store that was never used."""
    newest = (model.objects.aggregate(newest=Max("id"))["newest"] for model in (Task, EndedTask))
    return max(number or 0 for number in newest)


def epitaph_of(task_id: int, scope: GroupScope = EVERY_GROUP) -> str | None:
    """What became of an id that is no longer there, in a sentence; None when it is not known."""
    ended = EndedTask.objects.filter(id=task_id).first()
    if ended is None or not scope.allows(ended.group):
        return None
    if ended.successor is not None:
        return f"task {task_id} was {ended.ending}: its successor is {ended.successor}"
    return f"task {task_id} was {ended.ending}" + (f" by {ended.operator}" if ended.operator else "")
