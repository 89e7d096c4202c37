"""A whole project out of the store and into one, as lines of JSON (command_lines.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain
from tempfile import SpooledTemporaryFile

from django.db import transaction

from taskstore.errors import InvalidInput
from taskstore.types.command_lines import Entry, Line
from taskstore.types.command_record import (
    COMMAND_LABEL,
    LIST_LABEL,
    OF_LISTS,
    Command,
    CommandList,
    CommandStatus,
    group_of,
    new_command_task,
    new_list_task,
)
from taskstore.types.commands import ImportedCommands
from taskstore.types.tasks import NOBODY, NewTask

from ..core.actors import PROGRAM, Actor
from ..core.operations import GroupScope
from ..managers import READ_AT_ONCE
from ..models import Task
from . import summaries
from .bundling import Names, lock_names
from .changes import must_change, record
from .lines import commands_of
from .records import tasks_with, understood

IN_MEMORY_BYTES = 2**20
PIECE_BYTES = 2**16
ASKED_AT_ONCE = 5_000  # Ids: databases take only so many in one statement.
LISTS = (CommandStatus.OPEN, CommandStatus.OPEN_STASHED, CommandStatus.CLOSED)
ALONE = tuple(status for status in CommandStatus if status not in OF_LISTS)
ID = re.compile(rb'"id": ?"([^"\\]+)"')  # Within a text of JSON the quotes would have backslashes before them.
IN_NO_FILE_NAME = re.compile(r"[^\w.@+-]")
LONGEST_WORKER = 60  # Characters of a name that becomes a part of a directory's.
ADD = re.compile(r"^adds\[(\d+)\]\.?")


# ---- Out of the store


def export_project(project: str) -> Iterator[bytes]:
    """A line for each command and each list, in pieces, as they are at one moment; none when there are none.

    A list that is running has its worker and its start. All is read before this returns, into a file: a slow reader
    holds no old snapshot, which would keep the database from cleaning up behind the workers. Raises InvalidInput.
    """
    summaries.known_project(project)
    pieces = _pieces(project)
    return chain(filter(None, [next(pieces, b"")]), pieces)


def groups_of(project: str) -> list[str]:
    """All groups that an export reads, or an import may write to."""
    return [group_of(project, status) for status in (*ALONE, *LISTS)]


def _pieces(project: str) -> Iterator[bytes]:
    with SpooledTemporaryFile(IN_MEMORY_BYTES) as file:
        for entry in _entries(project):
            file.write(Line.of(entry).encode())
        file.seek(0)
        while piece := file.read(PIECE_BYTES):
            yield piece


def _entries(project: str) -> Iterator[Entry]:
    now_ms = Task.objects.now_ms()
    for task in Task.objects.get_queryset().filter(group__in=groups_of(project)).order_by("id").of_one_moment():
        status = summaries.status_of(task.group, task.state(now_ms))
        if status not in OF_LISTS:
            record: Command | CommandList | None = understood(task, Command.decode)
        elif (record := understood(task, CommandList.decode)) and status is CommandStatus.RUNNING:
            record = replace(record, worker=_worker(task.owner), started=task.leased_since_ms // 1_000)
        if record:
            yield status, record


def _worker(owner: int) -> str:
    """A name that can be a part of a directory's."""
    return IN_NO_FILE_NAME.sub("-", summaries.workers_of([owner]).get(owner) or f"client_{owner}")[:LONGEST_WORKER]


# ---- Into the store


def import_project(project: str, entries: Mapping[int, Entry], actor: Actor = PROGRAM) -> ImportedCommands:
    """Add what the lines of these numbers hold, as `entries_in` reads them: all of it in one commit, or nothing.

    What an import before has added stays as it is by now: after one that was cut off the same lines can be sent
    again. A list whose name another one has gets the next second as its name. Joins the caller's transaction.
    Raises InvalidInput that names the wrong lines, LimitExceeded and Forbidden.
    """
    summaries.known_project(project)
    must_change(project, actor)
    with transaction.atomic(using=Task.objects.writing_alias):
        lock_names(project)  # Nor does another import add the same between the look and the commit.
        imported = _add(project, entries, actor.scope)
        record(actor, "import", project, imported.commands)
        return imported


def _add(project: str, entries: Mapping[int, Entry], scope: GroupScope) -> ImportedCommands:
    there = _there(project, {command.id for entry in entries.values() for _, command in commands_of(entry)})
    new = {number: entry for number, entry in entries.items() if not _is_there(number, entry, there)}
    names = Names(_names_of_open_lists(project))
    adds = [_task(project, entry, names) for entry in new.values()]
    if adds:
        _commit(adds, list(new), scope)
    added = sum(len(list(commands_of(entry))) for entry in new.values())
    lists = sum(status in OF_LISTS for status, _ in new.values())
    all_of_them = sum(len(list(commands_of(entry))) for entry in entries.values())
    return ImportedCommands(commands=added, lists=lists, there_already=all_of_them - added)


def _is_there(number: int, entry: Entry, there: Mapping[str, Command]) -> bool:
    """Whether the project has it. Raises InvalidInput when it has other commands of these ids, or only some of them."""
    commands = list(commands_of(entry))
    found = [(path, command) for path, command in commands if command.id in there]
    for path, command in found:
        if _as_submitted(command) != _as_submitted(there[command.id]):
            raise InvalidInput(
                {f"line {number}: {path}id": [f"must be a new id: the project has another command {command.id}"]}
            )
    if found and len(found) < len(commands):
        why = f"must be all new: {len(found)} of its {len(commands)} commands exist, such as {found[0][1].id}"
        raise InvalidInput({f"line {number}: list": [why]})
    return bool(found)


def _as_submitted(command: Command) -> Command:
    return replace(command, run=None, list="")


def _there(project: str, ids: Set[str]) -> dict[str, Command]:
    """The commands of the project that have one of these ids."""
    return {
        command.id: command for command in chain(_alone(project, ids), _in_lists(project, ids)) if command.id in ids
    }


def _alone(project: str, ids: Set[str]) -> Iterator[Command]:
    """Those that lie by themselves and may have one of these ids: their tasks are known by the first ones."""
    first_ids = sorted({stem for each in ids for stem in (each, each.rpartition("_")[0])})
    tasks = Task.objects.get_queryset().filter(group__in=[group_of(project, status) for status in ALONE])
    for some in summaries.in_pieces(first_ids, ASKED_AT_ONCE):
        named = tasks.filter(**{f"labels__{COMMAND_LABEL}__in": some})
        for few in summaries.in_pieces(list(named.values_list("id", flat=True)), READ_AT_ONCE):
            yield from filter(None, (understood(task, Command.decode) for task in tasks_with(few)))


def _in_lists(project: str, ids: Set[str]) -> Iterator[Command]:
    """All of the lists that have one of these ids."""
    names = {each.encode() for each in ids}
    tasks = Task.objects.get_queryset().filter(group__in=[group_of(project, status) for status in LISTS])
    for task in tasks.of_one_moment():
        # To read the list takes far longer.
        if not names.isdisjoint(ID.findall(bytes(task.data))) and (made := understood(task, CommandList.decode)):
            yield from made.commands


def _names_of_open_lists(project: str) -> set[str]:
    groups = [group_of(project, status) for status in (CommandStatus.OPEN, CommandStatus.OPEN_STASHED)]
    labels = Task.objects.get_queryset().filter(group__in=groups).values_list("labels", flat=True)
    return {each[LIST_LABEL] for each in labels if LIST_LABEL in each}


def _task(project: str, entry: Entry, names: Names) -> NewTask:
    """The task to add. Open lists have each a name of their own."""
    status, record = entry
    if isinstance(record, Command):
        return new_command_task(project, record, status)
    if status is not CommandStatus.CLOSED:
        record = replace(record, name=names.take(record.name))
    return new_list_task(project, record, status)


def _commit(adds: Sequence[NewTask], numbers: Sequence[int], scope: GroupScope) -> None:
    try:
        Task.objects.commit(owner=NOBODY, adds=adds, scope=scope)
    except InvalidInput as refused:
        fields = {
            ADD.sub(lambda add: f"line {numbers[int(add[1])]}: ", path): why for path, why in refused.fields.items()
        }
        raise type(refused)(fields) from None
