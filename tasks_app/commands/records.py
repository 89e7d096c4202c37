"""The tasks in the groups of a project: commands and lists. Other tasks are skipped, and logged once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from taskstore.types.command_record import Command, CommandList, NotACommand, place_of

from ..core.operations import EVERY_GROUP, GroupScope
from ..managers import TaskQuerySet
from ..models import Task

PAGE = 500  # Tasks of one query.
MOST_SKIPPED = 10_000  # Ids to remember.

log = logging.getLogger(__name__)

Record = TypeVar("Record", Command, CommandList)

_skipped: set[int] = set()


def projects(scope: GroupScope = EVERY_GROUP) -> list[str]:
    """Return the sorted names of the projects that have a command or a list within the scope."""
    places = map(place_of, Task.objects.groups(scope))
    return sorted({place[0] for place in places if place})


def available(group: str) -> TaskQuerySet:
    """Return the available tasks of a group, the longest available first."""
    return Task.objects.get_queryset().in_group(group).available(Task.objects.now_ms()).longest_available_first()


def pages_of(tasks: TaskQuerySet) -> Iterator[Sequence[int]]:
    """Yield the ids of all these tasks in pages, without skipped ones."""
    last: Task | None = None
    while page := list((tasks.after(last) if last else tasks).only("id", "available_at_ms")[:PAGE]):
        yield [task.id for task in page if task.id not in _skipped]
        last = page[-1]


def ids_of(tasks: TaskQuerySet, most: int) -> list[int]:
    """Return the first ids of these tasks, at most `most`, without skipped ones."""
    return list(islice((task_id for page in pages_of(tasks) for task_id in page), most))


def tasks_with(ids: Sequence[int]) -> list[Task]:
    """Return the tasks in the order of the ids, without those that no longer exist."""
    return [task for task in Task.objects.find(ids) if task]


def decoded(task: Task, decode: Callable[[bytes], Record]) -> Record | None:
    """Return the record of the task; None when it is invalid, which is logged once."""
    try:
        return decode(bytes(task.data))
    except NotACommand as problem:
        leave_alone(task.id, task.group, problem)
        return None


def leave_alone(task_id: int, group: str, problem: Exception) -> None:
    """Log once why the task is skipped, and skip it from now on."""
    if task_id in _skipped:
        return
    if len(_skipped) >= MOST_SKIPPED:
        _skipped.clear()  # They are logged again.
    _skipped.add(task_id)
    log.warning("task %s of the group %s is skipped: %s", task_id, group, problem)
