"""What a look needs of tasks without reading all of them: sizes of lists, beginnings of data, names of workers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from taskstore.errors import InvalidInput
from taskstore.types.command_record import (
    COUNT_LABEL,
    EXPECTED_LABEL,
    LIST_LABEL,
    CommandList,
    CommandStatus,
    NotACommand,
    Output,
    Run,
    group_of,
    output_group,
    why_no_project,
)
from taskstore.types.tasks import State

from ..core.operations import EVERY_GROUP, GroupScope
from ..models import Client, Task

T = TypeVar("T")

HEAD_BYTES = 4 * 2**10  # Of the data of a task: enough for all but long lines and what was written.
SHOWN_BYTES = 4 * 2**10  # Of an output in a page.
LONGEST_NUMBER = 15  # Digits.


def known_project(project: str) -> str:
    """The name of a project. Raises InvalidInput when nothing can have this name."""
    if why := why_no_project(project):
        raise InvalidInput({"project": [why]})
    return project


def groups_of(project: str, statuses: Iterable[CommandStatus], scope: GroupScope = EVERY_GROUP) -> list[str]:
    """Where the tasks of these statuses lie, as far as the scope allows."""
    return [group for status in statuses if scope.allows(group := group_of(project, status))]


def status_of(group: str, state: State) -> CommandStatus:
    """Of a task in a group of commands."""
    status = CommandStatus(group.rpartition("/")[2])
    return CommandStatus.RUNNING if status is CommandStatus.OPEN and state is State.CLAIMED else status


def sizes_of(task_id: int, labels: Mapping[str, str]) -> tuple[int, int]:
    """How many commands a list has, and how many seconds they are expected to take together."""
    commands, expected = labels.get(COUNT_LABEL, ""), labels.get(EXPECTED_LABEL, "")
    if _is_number(commands) and _is_number(expected):
        return int(commands), int(expected)
    [task] = Task.objects.find([task_id])  # Somebody has added it by hand.
    whole = list_of(task) if task else None
    return (len(whole.commands), whole.expected_duration) if whole else (0, 0)


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= LONGEST_NUMBER


def number_in(head: bytes, member: str) -> int | None:
    """The first number under this name in the beginning of a JSON object; None when it is not there.

    A quote within a text of JSON has a backslash before it: what commands hold or wrote is not taken for a member.
    """
    found = re.search(rb'(?<!\\)"%b":\s*([0-9]{1,15})\b' % member.encode(), head)
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class Told:
    """What the worker of a running list tells with what its commands write."""

    done: int = 0  # So many of them are finished.
    due: int = 0  # When the one that runs should end at the latest. 0: it has only just begun.

    def rest_ms(self, now_ms: int) -> int:
        return max(0, self.due * 1_000 - now_ms)


NOTHING_TOLD = Told()


def told_by_list(project: str) -> dict[str, Told]:
    """What the workers tell of each running list, by its name."""
    found: dict[str, Told] = {}
    for task in Task.objects.get_queryset().in_group(output_group(project)).beginnings(HEAD_BYTES).order_by("id"):
        head = bytes(task.data_start or b"")  # type: ignore[attr-defined]
        name = task.labels.get(LIST_LABEL, "")
        told = Told(number_in(head, "done") or 0, number_in(head, "due") or 0)
        # More than one: of a worker that died, and of the one that has its list now.
        found[name] = Told(max(found.get(name, told).done, told.done), told.due)
    return found


def workers_of(owners: Iterable[int]) -> dict[int, str]:
    """The names of those that were heard."""
    return dict(Client.objects.filter(id__in=set(owners)).values_list("id", "name"))


def shown(run: Run) -> Run:
    """The run with the beginnings of what it wrote."""
    return replace(run, out=_beginning(run.out), err=_beginning(run.err))


def _beginning(written: Output) -> Output:
    try:
        kept = written.kept
    except ValueError:  # Somebody has written what is no Base64: the page of the command says so.
        return written
    if len(kept) <= SHOWN_BYTES:
        return written
    end = min(SHOWN_BYTES, written.cut_at) if written.missing else SHOWN_BYTES
    beginning = kept[:end]
    if not written.base64:  # It may end within a letter.
        beginning = beginning.decode(errors="ignore").encode()
    missing = written.missing + len(kept) - len(beginning)
    return Output.of(beginning, cut_at=len(beginning), missing=missing)


def list_of(task: Task) -> CommandList | None:
    """The list that a task is; None when it is none."""
    try:
        return CommandList.decode(bytes(task.data))
    except NotACommand:
        return None


def in_pieces(things: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (things[start : start + size] for start in range(0, len(things), size))
