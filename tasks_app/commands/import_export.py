"""Export and import a whole project as lines of JSON (command_lines.py), and validate the lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from itertools import chain
from tempfile import SpooledTemporaryFile

from msgspec.structs import replace

from taskstore.errors import InvalidInput, refuse
from taskstore.types import sentences
from taskstore.types.command_record import (
    COMMAND_LABEL,
    LIST_LABEL,
    OF_LISTS,
    Command,
    CommandList,
    CommandStatus,
    Entry,
    Line,
    NotACommand,
    Output,
    from_base64,
    group_of,
    new_command_task,
    new_list_task,
    why_misplaced,
    why_no_id,
)
from taskstore.types.commands import ImportedCommands, why_no_line
from taskstore.types.records import problems_of
from taskstore.types.scalars import LABEL_LENGTH
from taskstore.types.sentences import text
from taskstore.types.tasks import NOBODY, Problem

from ..conf.command_rules import MOST_COMMANDS
from ..core.actors import PROGRAM, Actor
from ..core.operations import GroupScope
from ..core.portions import portions
from ..database import atomic
from ..managers import READ_AT_ONCE
from ..models import Task
from ..reading.importing import read_lines
from ..wire import strict_json
from . import summaries
from .bundling import Names, lock_names
from .changes import must_change, record
from .summaries import decoded, tasks_with

IN_MEMORY_BYTES = 2**20
PIECE_BYTES = 2**16
ASKED_AT_ONCE = 5_000  # Ids: databases limit the parameters of a statement.
LISTS = (CommandStatus.OPEN, CommandStatus.OPEN_STASHED, CommandStatus.CLOSED)
ALONE = tuple(status for status in CommandStatus if status not in OF_LISTS)
ID = re.compile(rb'"id": ?"([^"\\]+)"')  # Quotes within a JSON text would be escaped.
IN_NO_FILE_NAME = re.compile(r"[^\w.@+-]")
LONGEST_WORKER = 60  # Characters of a name that becomes part of a directory name.
ADD = re.compile(r"^adds\[(\d+)\]\.?")

LIST_NAME = re.compile("[0-9]{1,20}")


# ---- Out of the store


def export_project(project: str) -> Iterator[bytes]:
    """Return a line for each command and each list at one moment, in pieces; no piece when there are none.

    A running list has its worker and its start. Reads everything into a file first: a slow reader must not hold an
    old snapshot, which would keep the database from cleaning up. Raises InvalidInput.
    """
    summaries.known_project(project)
    pieces = _pieces(project)
    return chain(filter(None, [next(pieces, b"")]), pieces)


def groups_of(project: str) -> list[str]:
    """Return all groups that an export reads, or an import may write to."""
    return [group_of(project, status) for status in (*ALONE, *LISTS)]


def _pieces(project: str) -> Iterator[bytes]:
    now_ms = Task.objects.now_ms()
    with SpooledTemporaryFile(IN_MEMORY_BYTES) as file:
        for task in Task.objects.get_queryset().filter(group__in=groups_of(project)).order_by("id").of_one_moment():
            status = summaries.status_of(task.group, task.state(now_ms))
            if status not in OF_LISTS:
                record: Command | CommandList | None = decoded(task, Command.decode)
            elif (record := decoded(task, CommandList.decode)) and status is not CommandStatus.CLOSED:
                record = CommandList(name=record.name, commands=record.commands)
            if status is CommandStatus.RUNNING and isinstance(record, CommandList):
                name = summaries.workers_of([task.owner]).get(task.owner) or f"client_{task.owner}"
                worker = IN_NO_FILE_NAME.sub("-", name)[:LONGEST_WORKER]
                record = replace(record, worker=worker, started=task.leased_since_ms // 1_000)
            if record:
                file.write(Line.of((status, record)).encode())
        file.seek(0)
        while piece := file.read(PIECE_BYTES):
            yield piece


# ---- Into the store


def import_project(project: str, entries: Mapping[int, Entry], actor: Actor = PROGRAM) -> ImportedCommands:
    """Add the entries of these lines, as `entries_in` returns them: all of them in one commit, or nothing.

    Commands that an earlier import has added stay as they are, so the lines of an interrupted import can be sent
    again. A list gets the next second as its name when its own is taken. Joins the caller's transaction.
    Raises InvalidInput that names the wrong lines, LimitExceeded and Forbidden.
    """
    summaries.known_project(project)
    must_change(project, actor)
    with atomic():
        lock_names(project)  # Also keeps another import from adding the same commands before the commit.
        imported = _add(project, entries, actor.scope)
        record(actor, "import", project, imported.commands)
        return imported


def _add(project: str, entries: Mapping[int, Entry], scope: GroupScope) -> ImportedCommands:
    ids = {command.id for entry in entries.values() for _, command in commands_of(entry)}
    existing = {
        command.id: command for command in chain(_alone(project, ids), _in_lists(project, ids)) if command.id in ids
    }
    new = {number: entry for number, entry in entries.items() if not _exists(number, entry, existing)}
    groups = [group_of(project, status) for status in (CommandStatus.OPEN, CommandStatus.OPEN_STASHED)]
    labels = Task.objects.get_queryset().filter(group__in=groups).values_list("labels", flat=True)
    names = Names(each[LIST_LABEL] for each in labels if LIST_LABEL in each)
    adds = []
    for status, item in new.values():
        if isinstance(item, Command):
            adds.append(new_command_task(project, item, status))
        else:
            # The names of open lists are unique.
            name = item.name if status is CommandStatus.CLOSED else names.take(item.name)
            adds.append(new_list_task(project, replace(item, name=name), status))
    if adds:
        numbers = list(new)
        try:
            Task.objects.commit(owner=NOBODY, adds=adds, scope=scope)
        except InvalidInput as refused:
            fields = {
                ADD.sub(lambda add: f"line {numbers[int(add[1])]}: ", path): why for path, why in refused.fields.items()
            }
            raise type(refused)(fields) from None
    added = sum(len(list(commands_of(entry))) for entry in new.values())
    lists = sum(status in OF_LISTS for status, _ in new.values())
    all_of_them = sum(len(list(commands_of(entry))) for entry in entries.values())
    return ImportedCommands(commands=added, lists=lists, there_already=all_of_them - added)


def _exists(number: int, entry: Entry, existing: Mapping[str, Command]) -> bool:
    """Return whether the project has the entry.

    Raises InvalidInput when it has other commands of these ids, or only some of them.
    """
    commands = list(commands_of(entry))
    found = [(path, command) for path, command in commands if command.id in existing]
    for path, command in found:
        if _as_submitted(command) != _as_submitted(existing[command.id]):
            raise InvalidInput(
                {f"line {number}: {path}id": [f"must be a new id: the project has another command {command.id}"]}
            )
    if found and len(found) < len(commands):
        why = f"must be all new: {len(found)} of its {len(commands)} commands exist, such as {found[0][1].id}"
        raise InvalidInput({f"line {number}: list": [why]})
    return bool(found)


def _as_submitted(command: Command) -> Command:
    return replace(command, run=None, list="")


def _alone(project: str, ids: Set[str]) -> Iterator[Command]:
    """Yield the commands outside of lists that may have one of these ids; their tasks are labelled by the first id."""
    first_ids = sorted({stem for each in ids for stem in (each, each.rpartition("_")[0])})
    tasks = Task.objects.get_queryset().filter(group__in=[group_of(project, status) for status in ALONE])
    for some in portions(first_ids, ASKED_AT_ONCE):
        named = tasks.filter(**{f"labels__{COMMAND_LABEL}__in": some})
        for few in portions(list(named.values_list("id", flat=True)), READ_AT_ONCE):
            yield from filter(None, (decoded(task, Command.decode) for task in tasks_with(few)))


def _in_lists(project: str, ids: Set[str]) -> Iterator[Command]:
    """Yield all commands of the lists that have one of these ids."""
    names = {each.encode() for each in ids}
    tasks = Task.objects.get_queryset().filter(group__in=[group_of(project, status) for status in LISTS])
    for task in tasks.of_one_moment():
        # Parsing the list takes far longer.
        if not names.isdisjoint(ID.findall(bytes(task.data))) and (made := decoded(task, CommandList.decode)):
            yield from made.commands


def entries_in(body: bytes) -> Mapping[int, Entry]:
    """Return the entries of the lines by number; running lists become open.

    Raises InvalidInput that names up to 20 wrong lines, and LimitExceeded when there are more than a commit may add.
    """
    lines: dict[str, int] = {}  # The line of each id.

    def entry_of(number: int, line: bytes) -> Entry:
        tree = strict_json.read(line)
        try:
            status, record = entry = Line.read(tree).entry
        except NotACommand as problem:
            raise strict_json.wrong(str(problem)) from None
        refuse(problems_of(Line, tree))
        refuse(_problems(status, record))
        duplicates: list[Problem] = []
        for path, command in commands_of(entry):
            if command.id in lines:
                duplicates.append((f"{path}id", f"must be unique: line {lines[command.id]} has {command.id} too"))
            lines[command.id] = number
        refuse(duplicates)
        if isinstance(record, CommandList) and status is CommandStatus.RUNNING:
            return CommandStatus.OPEN, CommandList(name=record.name, commands=record.commands)
        return entry

    return read_lines(body, entry_of)


def commands_of(entry: Entry) -> Iterator[tuple[str, Command]]:
    """Yield the commands of a line, each with its path there."""
    _, record = entry
    if isinstance(record, Command):
        yield "command.", record
    else:
        yield from ((f"list.commands[{place}].", command) for place, command in enumerate(record.commands))


def _problems(status: CommandStatus, record: Command | CommandList) -> Iterator[Problem]:
    if isinstance(record, CommandList):
        yield from _problems_of_list(status, record)
    for path, command in commands_of((status, record)):
        if why := why_no_id(command.id):
            yield f"{path}id", why
        if why := why_no_line(command.cmd):
            yield f"{path}cmd", why
        if why := why_misplaced(status, command):
            yield path.rstrip("."), why
        if command.run:
            yield from _problems_of_output(f"{path}run.out", command.run.out)
            yield from _problems_of_output(f"{path}run.err", command.run.err)


def _problems_of_list(status: CommandStatus, made: CommandList) -> Iterator[Problem]:
    if not LIST_NAME.fullmatch(made.name):
        yield "list.name", "must be a number of seconds"
    if not 1 <= len(made.commands) <= MOST_COMMANDS:
        yield "list.commands", f"must have between 1 and {MOST_COMMANDS} commands, not {len(made.commands)}"
    if status is CommandStatus.CLOSED and not made.worker:
        yield "list.worker", "is required for a closed list"
    yield from text("list.worker", made.worker)
    if len(made.directory) > LABEL_LENGTH:
        yield (
            "list.worker",
            f"must be shorter: name, worker and times must have at most {LABEL_LENGTH} characters together",
        )


def _problems_of_output(path: str, written: Output) -> Iterator[Problem]:
    if written.text and written.base64:
        yield f"{path}.base64", sentences.not_together("text")
    if from_base64(written.base64) is None:
        yield f"{path}.base64", sentences.BASE64
        return
    size = len(written.kept)
    if written.cut_at > size:
        yield f"{path}.cut_at", f"must be at most {size}, the number of bytes, not {written.cut_at}"
