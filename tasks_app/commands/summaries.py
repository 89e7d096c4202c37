"""Read summaries of tasks instead of all their data: sizes of lists, beginnings of data, names of workers."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from msgspec.structs import replace

from taskstore.errors import InvalidInput
from taskstore.types.command_record import (
    COUNT_LABEL,
    DONE_LABEL,
    EXPECTED_LABEL,
    LIST_LABEL,
    Command,
    CommandList,
    CommandStatus,
    NotACommand,
    Output,
    Run,
    group_of,
    output_group,
    place_of,
    why_no_project,
)
from taskstore.types.scalars import whole
from taskstore.types.tasks import State

from ..core.operations import EVERY_GROUP, GroupScope
from ..managers import TaskQuerySet
from ..models import Client, Task

HEAD_BYTES = 4 * 2**10  # Of a task's data: enough for all but long lines and outputs.
SHOWN_BYTES = 4 * 2**10  # Of an output on a page.


def known_project(project: str) -> str:
    """Return the name of a project. Raises InvalidInput when the name is invalid."""
    if why := why_no_project(project):
        raise InvalidInput({"project": [why]})
    return project


def groups_of(project: str, statuses: Iterable[CommandStatus], scope: GroupScope = EVERY_GROUP) -> list[str]:
    """Return the groups of these statuses that are within the scope."""
    return [group for status in statuses if scope.allows(group := group_of(project, status))]


def status_of(group: str, state: State) -> CommandStatus:
    """Return the status of a task in a group of commands."""
    status = CommandStatus(group.rpartition("/")[2])
    return CommandStatus.RUNNING if status is CommandStatus.OPEN and state is State.CLAIMED else status


def sizes_of(task_id: int, labels: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of commands that are left in a list, and their total expected duration in seconds."""
    count, expected_s = (whole(labels.get(name, "")) for name in (COUNT_LABEL, EXPECTED_LABEL))
    if count is not None and expected_s is not None:
        return count, expected_s
    [task] = Task.objects.find([task_id])  # A list without valid labels was not made by the server.
    listed = list_of(task) if task else None
    return (len(listed.commands), listed.expected_duration) if listed else (0, 0)


def number_in(head: bytes, member: str) -> int | None:
    """Return the first number with this name in the beginning of a JSON object; None without one.

    Quotes within JSON texts are escaped, so the texts of commands and outputs don't match.
    """
    found = re.search(rb'(?<!\\)"%b":\s*([0-9]{1,15})\b' % member.encode(), head)
    return int(found[1]) if found else None


def done_of(labels: Mapping[str, str]) -> int:
    """Return how many commands have left a list."""
    return whole(labels.get(DONE_LABEL, "")) or 0


def due_by_list(project: str) -> dict[str, int]:
    """Return when the running commands are expected to end, in seconds since the Epoch, by the first ids of lists."""
    outputs = Task.objects.get_queryset().in_group(output_group(project)).beginnings(HEAD_BYTES).order_by("id")
    heads = {task.labels.get(LIST_LABEL, ""): bytes(task.data_start or b"") for task in outputs}  # type: ignore[attr-defined]
    return {origin: number_in(head, "due") or 0 for origin, head in heads.items()}


def workers_of(owners: Iterable[int]) -> dict[int, str]:
    """Return the names of the owners that have sent heartbeats."""
    return dict(Client.objects.filter(id__in=set(owners)).values_list("id", "name"))


def shown(run: Run) -> Run:
    """Return the run with the beginnings of its outputs."""
    return replace(run, out=_beginning(run.out), err=_beginning(run.err))


def _beginning(written: Output) -> Output:
    try:
        kept = written.kept
    except ValueError:  # Invalid Base64: the page of the command says so.
        return written
    if len(kept) <= SHOWN_BYTES:
        return written
    end = min(SHOWN_BYTES, written.cut_at) if written.missing else SHOWN_BYTES
    beginning = kept[:end]
    if not written.base64:  # The cut may be within a character.
        beginning = beginning.decode(errors="ignore").encode()
    missing = written.missing + len(kept) - len(beginning)
    return Output.of(beginning, cut_at=len(beginning), missing=missing)


def list_of(task: Task) -> CommandList | None:
    """Return the list of a task; None when it is not a list."""
    try:
        return CommandList.decode(bytes(task.data))
    except NotACommand:
        return None


# ---- The tasks in the groups of a project: commands and lists. Other tasks are skipped, and logged once


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
