"""What lies in the groups of a project: commands and lists. What is neither is left alone, and told once in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from taskstore.types.command_record import Command, CommandList, NotACommand, place_of

from ..core.operations import EVERY_GROUP, GroupScope
from ..managers import TaskQuerySet
from ..models import Task

PAGE = 500  # Tasks that are looked at together.
MOST_TOLD = 10_000  # Ids that are remembered.

log = logging.getLogger(__name__)

Record = TypeVar("Record", Command, CommandList)

_told: set[int] = set()


def projects(scope: GroupScope = EVERY_GROUP) -> list[str]:
    """The names of the projects that have a command or a list in a group that the scope allows, sorted."""
    places = map(place_of, Task.objects.groups(scope))
    return sorted({place[0] for place in places if place})


def available(group: str) -> TaskQuerySet:
    """The tasks of a group that nobody holds, the longest available first."""
    return Task.objects.get_queryset().in_group(group).available(Task.objects.now_ms()).longest_available_first()


def pages_of(tasks: TaskQuerySet) -> Iterator[Sequence[int]]:
    """The ids of all these tasks, page by page. Those that were told of are left out."""
    last: Task | None = None
    while page := list((tasks.after(last) if last else tasks).only("id", "available_at_ms")[:PAGE]):
        yield [task.id for task in page if task.id not in _told]
        last = page[-1]


def ids_of(tasks: TaskQuerySet, most: int) -> list[int]:
    """The first ids of these tasks, so many at most. Those that were told of are left out."""
    return list(islice((task_id for page in pages_of(tasks) for task_id in page), most))


def tasks_with(ids: Sequence[int]) -> list[Task]:
    """The tasks in the order of their ids here; those that are gone are left out."""
    return [task for task in Task.objects.find(ids) if task]


def understood(task: Task, decode: Callable[[bytes], Record]) -> Record | None:
    """What the task carries; None when that makes no sense, which the log tells once."""
    try:
        return decode(bytes(task.data))
    except NotACommand as problem:
        leave_alone(task.id, task.group, problem)
        return None


def leave_alone(task_id: int, group: str, problem: Exception) -> None:
    """Say once why nothing is done to the task, and look at it no more."""
    if task_id in _told:
        return
    if len(_told) >= MOST_TOLD:
        _told.clear()  # They are told of once more.
    _told.add(task_id)
    log.warning("task %s of the group %s is left alone: %s", task_id, group, problem)
