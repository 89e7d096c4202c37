"""End the lease of a task from outside: for a worker that is known to be gone, or has to be stopped."""

from __future__ import annotations

from django.db import transaction

from taskstore.errors import CommitRefused, InvalidInput
from taskstore.types.tasks import Change, Ending, State

from ..access import audit
from ..core.actors import PROGRAM, Actor
from ..models import Task

NOT_HELD = "must be a task that a worker holds: no worker holds this one any more"


def give_back(task_id: int, actor: Actor = PROGRAM) -> Task:
    """Make a claimed task available now, with its error as it is. What its worker commits for it is refused then.

    Returns the successor. Raises InvalidInput about `id` when the task is not claimed, or no longer there,
    Forbidden when tasks of its group may not be changed.
    """
    [task] = Task.objects.find([task_id])
    if task is None or task.state(Task.objects.now_ms()) is not State.CLAIMED:
        raise InvalidInput({"id": [NOT_HELD]})
    try:
        return _give_back(task, actor)
    except CommitRefused:
        raise InvalidInput({"id": [NOT_HELD]}) from None


@transaction.atomic
def _give_back(task: Task, actor: Actor) -> Task:
    [successor] = Task.objects.commit(
        owner=0,
        updates=[Change(id=task.id, release=True)],
        scope=actor.scope,
        operator=actor.operator(Ending.GIVEN_BACK),
    )
    audit.record(
        actor,
        "give back",
        group=task.group,
        selection=f"task {task.id}",
        done=1,
        details={"ids": [task.id], "owner": task.owner},
    )
    return successor
