"""What became of every id that was ever given out (contract.md section 5), as far as it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from taskstore.types.history import End, History, Step
from taskstore.types.tasks import Ending

from ..conf import retention
from ..core.operations import EVERY_GROUP, GroupScope
from ..models import EndedTask, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A task under the ids that it had: the ended ones that are known, oldest first, and the living one, or None."""

    origin: int
    ended: list[EndedTask]
    living: Task | None

    @property
    def group(self) -> str:
        """The group that it lies in, or lay in at its end."""
        group: str = (self.living or self.ended[-1]).group
        return group

    @property
    def is_whole(self) -> bool:
        """Whether each of its ids is known: history may be reduced, and what is old is pruned."""
        steps: list[EndedTask | Task] = [*self.ended, *([self.living] if self.living else [])]
        return steps[0].id == self.origin and all(_follows(later, ended) for ended, later in pairwise(steps))


def _follows(later: EndedTask | Task, ended: EndedTask | Task) -> bool:
    """Whether there was no id between the two, as far as can be told."""
    assert isinstance(ended, EndedTask)  # noqa: S101 - only the last step of a chain is a living one.
    # What was purged and came back has no successor; a reduced history does not have all that followed.
    return later.id == ended.successor or (ended.successor is None and retention.kept() == retention.FULL)


def chain_of(task_id: int, scope: GroupScope = EVERY_GROUP, *, data_bytes: int | None = None) -> Chain | None:
    """The chain that the id belongs to, or None when no such id is known (or its group is out of the scope).

    The origin of a chain leads to it for as long as anything of it is known. With `data_bytes` only
    so much of the living task's data is read, as TaskQuerySet.beginnings has it.
    """
    entry = _entry(task_id)
    if entry is None or not scope.allows(entry.group):
        return None
    tasks = Task.objects.get_queryset().of_chain(entry.origin)
    living = (tasks if data_bytes is None else tasks.beginnings(data_bytes)).first()
    steps = EndedTask.objects.filter(origin=entry.origin).order_by("id")
    if living:  # It may have ended since: what followed belongs to a later moment.
        steps = steps.filter(id__lt=living.id)
    ended = [step for step in steps if scope.allows(step.group)]
    living = living if living and scope.allows(living.group) else None
    # Without a trail a task that ends meanwhile leaves nothing behind.
    return Chain(origin=entry.origin, ended=ended, living=living) if ended or living else None


def _entry(task_id: int) -> Task | EndedTask | None:
    """A task of the chain that the id belongs to, or that it is the origin of."""
    tasks = Task.objects.get_queryset().defer("data")
    # What lives is looked for first: what ends meanwhile is in the trail then.
    return (
        tasks.filter(id=task_id).first()
        or EndedTask.objects.filter(id=task_id).first()
        or tasks.of_chain(task_id).first()
        or EndedTask.objects.filter(origin=task_id).order_by("id").first()
    )


def history_of(task_id: int, scope: GroupScope = EVERY_GROUP) -> History | None:
    """Return the chain of an id step by step, as the API tells it; None as for `chain_of`."""
    chain = chain_of(task_id, scope)
    if chain is None:
        return None
    steps: list[Task | EndedTask] = [*chain.ended, *([chain.living] if chain.living else [])]
    return History(
        id=task_id,
        origin=chain.origin,
        created_at_ms=steps[0].created_at_ms,
        steps=tuple(
            Step(
                id=step.id,
                group=step.group,
                available_at_ms=step.available_at_ms,
                owner=step.owner,
                error=step.error,
                priority=step.priority,
                claims=step.claims,
                made_at_ms=step.made_at_ms,
                made_by_commit=step.made_by_commit,
                ended=_end(step) if isinstance(step, EndedTask) else None,
            )
            for step in steps
        ),
    )


def _end(ended: EndedTask) -> End:
    return End(
        at_ms=ended.ended_at_ms,
        commit=ended.ended_by_commit,
        client_id=ended.ended_by,
        how=Ending(ended.ending),
        successor=ended.successor,
        operator=ended.operator,
        reason=ended.reason,
    )


def doubt_about(task_id: int) -> str:
    """What to add to the news that an id is not known; empty when it was never given out.

    It says the same of every id that was, so that nobody learns of tasks in groups that they may not see.
    """
    if not 0 < task_id <= Task.objects.newest_id():
        return ""
    return f": {retention.in_words()}, and the task may have another id now"


def epitaph_of(task_id: int, scope: GroupScope = EVERY_GROUP) -> str | None:
    """What became of an id that is no longer there, in a sentence; None when it is not known."""
    ended = EndedTask.objects.filter(id=task_id).first()
    if ended is None:
        return fate_of(task_id, scope)
    if not scope.allows(ended.group):
        return None
    if ended.successor is not None:
        return f"task {task_id} was {ended.ending}: its successor is {ended.successor}"
    return f"task {task_id} was {_end_of(ended)}{_return_of(ended, scope)}"


def _return_of(ended: EndedTask, scope: GroupScope) -> str:
    """What to add to the end of a chain that went on: an undo brought the task back."""
    chain = chain_of(ended.id, scope)
    later = [step.id for step in (*chain.ended, chain.living) if step and step.id > ended.id] if chain else []
    return f", and came back as {later[0]}" if later else ""


def fate_of(origin: int, scope: GroupScope) -> str | None:
    """What became of a chain whose first step is not known."""
    chain = chain_of(origin, scope)
    if chain is None:
        return None
    if chain.living:
        return f"task {origin} is now task {chain.living.id}"
    last = chain.ended[-1]
    return f"task {origin} became task {last.id}, which was {_end_of(last)}"


def _end_of(ended: EndedTask) -> str:
    return ended.ending + (f" by {ended.operator}" if ended.operator else "")
