"""The history of every id that the store has given out (contract.md section 5), as far as it is kept."""

from __future__ import annotations

from dataclasses import dataclass

from taskstore.types.history import End, History, Step
from taskstore.types.tasks import Ending

from ..conf import retention
from ..core.operations import EVERY_GROUP, GroupScope
from ..models import EndedTask, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The ids of a task: the known ended ones, oldest first, and the living one, or None."""

    origin: int
    ended: list[EndedTask]
    living: Task | None

    @property
    def group(self) -> str:
        """Return the group of the living task, or the last group of an ended one."""
        group: str = (self.living or self.ended[-1]).group
        return group

    @property
    def is_whole(self) -> bool:
        """Return whether each of its ids is known; a reduced or pruned history has gaps."""
        later: list[EndedTask | Task] = [*self.ended, *([self.living] if self.living else [])]
        # A purged task that an undo restored has no successor; nor has one whose history was reduced.
        return later[0].id == self.origin and all(
            step.id == ended.successor or (ended.successor is None and retention.kept() == retention.FULL)
            for ended, step in zip(self.ended, later[1:], strict=False)
        )


def chain_of(task_id: int, scope: GroupScope = EVERY_GROUP, *, data_bytes: int | None = None) -> Chain | None:
    """Return the chain that the id belongs to; None when the id is unknown or its group is out of the scope.

    The origin of a chain finds it for as long as any of its ids is known. With `data_bytes`, only
    so much of the living task's data is read, as in TaskQuerySet.beginnings.
    """
    tasks = Task.objects.get_queryset().defer("data")
    # Living tasks first: a task that ends between two of these queries is found by the next one.
    entry = (
        tasks.filter(id=task_id).first()
        or EndedTask.objects.filter(id=task_id).first()
        or tasks.of_chain(task_id).first()
        or EndedTask.objects.filter(origin=task_id).order_by("id").first()
    )
    if entry is None or not scope.allows(entry.group):
        return None
    tasks = Task.objects.get_queryset().of_chain(entry.origin)
    living = (tasks if data_bytes is None else tasks.beginnings(data_bytes)).first()
    steps = EndedTask.objects.filter(origin=entry.origin).order_by("id")
    if living:  # The task may have ended since: leave out all later steps.
        steps = steps.filter(id__lt=living.id)
    ended = [step for step in steps if scope.allows(step.group)]
    living = living if living and scope.allows(living.group) else None
    # Without history, a task that ends between the queries leaves nothing behind.
    return Chain(origin=entry.origin, ended=ended, living=living) if ended or living else None


def history_of(task_id: int, scope: GroupScope = EVERY_GROUP) -> History | None:
    """Return the chain of an id step by step, in the API's form; None as for `chain_of`."""
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
    """Return the text to add to an error about an unknown id; empty when the id was never given out.

    The text is the same for every id, so that it reveals nothing about tasks in hidden groups.
    """
    if not 0 < task_id <= Task.objects.newest_id():
        return ""
    return f": {retention.in_words()}, and the task may have another id now"


def epitaph_of(task_id: int, scope: GroupScope = EVERY_GROUP) -> str | None:
    """Describe the end of an id in a clause; None when it is unknown."""
    ended = EndedTask.objects.filter(id=task_id).first()
    if ended is None:
        return fate_of(task_id, scope)
    if not scope.allows(ended.group):
        return None
    if ended.successor is not None:
        return f"task {task_id} was {ended.ending}: its successor is {ended.successor}"
    chain = chain_of(ended.id, scope)
    # An undo may have restored the task.
    later = [step.id for step in (*chain.ended, chain.living) if step and step.id > ended.id] if chain else []
    return f"task {task_id} was {_end_of(ended)}" + (f", and came back as {later[0]}" if later else "")


def fate_of(origin: int, scope: GroupScope) -> str | None:
    """Describe the last known step of a chain whose first step is unknown; None when the chain is unknown too."""
    chain = chain_of(origin, scope)
    if chain is None:
        return None
    if chain.living:
        is_same = chain.living.id == origin
        return f"task {origin} is " + (f"in the group {chain.group}" if is_same else f"now task {chain.living.id}")
    last = chain.ended[-1]
    successor = "" if last.id == origin else f"became task {last.id}, which "
    return f"task {origin} {successor}was {_end_of(last)}"


def _end_of(ended: EndedTask) -> str:
    return ended.ending + (f" by {ended.operator}" if ended.operator else "")
