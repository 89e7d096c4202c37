"""Paused groups, in which claims find nothing while commits go on, and leases that are ended from outside."""

from __future__ import annotations

from taskstore.errors import CommitRefused, InvalidInput, refuse
from taskstore.types.sentences import group_name
from taskstore.types.tasks import Change, Ending, State

from ..access import audit
from ..core.actors import PROGRAM, Actor
from ..database import atomic
from ..models import PausedGroup, Task

NOT_HELD = "must be a task that a worker holds: no worker holds this one any more"


def pause(group: str, actor: Actor = PROGRAM) -> PausedGroup:
    """From now on claims find nothing in the group, whether it holds tasks or not.

    Returns who paused it, when and why: for a group that is paused already, who did so first.
    Raises InvalidInput for a name that no group can have, or too long a reason, and Forbidden when the actor may not
    change the group.
    """
    _check(group, actor)
    with atomic():
        paused, is_new = PausedGroup.objects.get_or_create(
            group=group, defaults={"by": actor.name, "reason": actor.reason}
        )
        if is_new:
            _record("pause", group, actor)
    return paused


def resume(group: str, actor: Actor = PROGRAM) -> None:
    """Claims find again what is there, those that wait at once. Nothing happens to a group that is not paused."""
    _check(group, actor)
    with atomic():
        deleted, _ = PausedGroup.objects.filter(group=group).delete()
        if deleted:
            _record("resume", group, actor)
            Task.objects.wake([group])


def pause_of(group: str) -> PausedGroup | None:
    """Who paused the group, when and why; None when it is not paused."""
    return PausedGroup.objects.filter(group=group).first()


def paused_groups(first: str, last: str) -> set[str]:
    """The names from `first` to `last` of the groups that are paused, with and without tasks."""
    return set(PausedGroup.objects.filter(group__gte=first, group__lte=last).values_list("group", flat=True))


def _check(group: str, actor: Actor) -> None:
    actor.must_change(group)
    refuse([*group_name("name", group), *actor.problems()])


def _record(action: str, group: str, actor: Actor) -> None:
    audit.record(actor, action, group=group, selection="the group", done=1)


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


@atomic()
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
