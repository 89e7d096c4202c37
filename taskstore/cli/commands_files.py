"""Import and export projects as TDF2's directories, and write results to files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
from msgspec import structs
from msgspec.json import Decoder

from ..client.calls import encoded
from ..client.verbs import add_on_the_wire
from ..commands.files import NotFiles, read_project, write_entries, write_result
from ..endpoints import COMMAND_LISTS
from ..types.command_record import (
    OF_LISTS,
    PREFIX,
    Command,
    CommandList,
    CommandStatus,
    Entry,
    NotACommand,
    new_command_task,
    new_list_task,
    place_of,
)
from ..types.commands import CommandSeen
from ..types.scalars import MOST_UNIQUE_FOR_MS
from ..types.tasks import NewTask, Task, holds_results
from .base import Failure, Scope, Session, command, telling
from .files import import_piece, pieces
from .made import all_of, project
from .tables import number

MOST_PROBLEMS = 100  # Thousands would push the first ones off the screen.
IN_NO_FILE_NAME = re.compile(r"[^\w.@+-]")
LONGEST_WORKER = 60  # Characters of a name that becomes part of a directory name.
TASK = Decoder(Task)


@click.group("commands")
def commands() -> None:
    """Run shell commands on a pool of machines, and see their results."""


directory = click.argument("directory", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")


@command("import", needs=Scope.COMMANDS, below=commands)
@directory
@project
def import_(session: Session, /, directory: Path, project: str) -> None:
    """Import TDF2's directories from DIR: new/ID.task, open/LIST/ID.task, completed/ID.out and so on.

    All files are read first: if any is invalid, nothing is added. Lists that were running become open. Existing
    commands stay unchanged, so an interrupted import can be repeated.
    """
    with reporting(session, "nothing was imported"):
        content = list(read_project(directory).entries)
    there = {command.id for _, record in _entries(session, project) for command in _commands(record)}
    new = [left for entry in content if (left := _without(entry, there))]
    lines = (encoded(add_on_the_wire(_task_of(project, *entry))) + b"\n" for entry in new)
    imported, skipped = 0, len(content) - len(new)
    for first, piece in pieces(lines):
        note = "earlier parts stay imported; run the same command again to continue"
        with telling(session, imported, note):
            names = [_name_of(entry) for entry in new[first - 1 : first - 1 + len(piece)]]
            part = import_piece(session, piece, "", names)
        imported, skipped = imported + part.imported, skipped + part.skipped
    session.tell([{"imported": imported, "skipped": skipped}])
    told = f"; already there: {number(skipped)}" if skipped else ""
    session.say(f"imported {number(imported)} {'command or list' if imported == 1 else 'commands and lists'}{told}")


def _commands(record: Command | CommandList) -> Sequence[Command]:
    return record.commands if isinstance(record, CommandList) else [record]


def _name_of(entry: Entry) -> str:
    status, record = entry
    return f"{status}/{record.directory if isinstance(record, CommandList) else record.id}"


def _without(entry: Entry, there: Set[str]) -> Entry | None:
    """Return what is left of a command or a list without these ids."""
    status, record = entry
    left = tuple(command for command in _commands(record) if command.id not in there)
    if isinstance(record, CommandList):
        record = structs.replace(record, commands=left)
    return (status, record) if left else None


def _task_of(project: str, status: CommandStatus, record: Command | CommandList) -> NewTask:
    """Return the task to import. The key of one that has not ended is the first id, whatever becomes of it."""
    if isinstance(record, CommandList):
        task = new_list_task(project, record, status)
    else:
        task = new_command_task(project, record, status)
    if holds_results(task.group):
        return task
    return replace(task, unique=_commands(record)[0].id, unique_for_ms=MOST_UNIQUE_FOR_MS)


@command("export", needs=Scope.READ, below=commands)
@directory
@project
def export(session: Session, /, directory: Path, project: str) -> None:
    """Write all commands and lists of a project into DIR, in the layout of TDF2's directories.

    DIR must be new or empty. It appears only when it is complete. What changes in the meantime may be missing: stop
    the workers for an exact copy.
    """
    with reporting(session, "nothing was written"):
        written = write_entries(_entries(session, project), directory)
    session.tell([{"commands": written}])
    session.say(f"{directory}: {commands_of(written)}")


def _entries(session: Session, project: str) -> Iterator[Entry]:
    """Yield all commands and lists, each with its status."""
    lists = all_of(session, COMMAND_LISTS, lambda page: page.lists, project=project, status=CommandStatus.RUNNING)
    running = {each.origin: each for each in lists}
    pattern = json.dumps(f"{PREFIX}{project}/*", ensure_ascii=False)
    for line in _lines(session.store.export_tasks(f"group:{pattern}")):
        task = TASK.decode(line)
        status = CommandStatus.RUNNING if task.origin in running else (place_of(task.group) or ("", ""))[1]
        try:
            if status in OF_LISTS:
                made = CommandList.decode(task.data)
                if status is CommandStatus.RUNNING:
                    seen = running[task.origin]
                    made = CommandList(
                        name=made.name,
                        commands=made.commands,
                        started=seen.at_ms // 1_000,
                        worker=IN_NO_FILE_NAME.sub("-", seen.worker or f"client_{task.owner}")[:LONGEST_WORKER],
                    )
                elif status != CommandStatus.CLOSED:
                    made = CommandList(name=made.name, commands=made.commands)
                yield CommandStatus(status), made
            elif status in [*CommandStatus]:
                yield CommandStatus(status), Command.decode(task.data)
        except NotACommand as problem:
            session.note(f"task {task.id} of the group {task.group} is left out: {problem}")


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file that comes in any pieces."""
    rest: list[bytes] = []
    for piece in pieces:
        first, *others = piece.split(b"\n")
        rest.append(first)
        for other in others:
            yield b"".join(rest)
            rest = [other]


def write_results(session: Session, seen: Iterable[CommandSeen], directory: Path) -> None:
    """Write ID.task, ID.out and ID.err of each command to a directory, and report those that can't be written."""
    written = left_out = 0
    with reporting(session, "some commands were not written"):
        directory.mkdir(parents=True, exist_ok=True)
        for each in whole(session, seen):
            try:
                write_result(each, directory)
                written += 1
            except NotFiles as wrong:
                left_out += 1
                session.note(str(wrong))
    session.tell([{"commands": written}])
    session.say(f"{directory}: {commands_of(written)}")
    if left_out:
        raise Failure(f"{commands_of(left_out)} can't be written as files")


def commands_of(count: int) -> str:
    return f"{number(count)} command{'' if count == 1 else 's'}"


def whole(session: Session, seen: Iterable[CommandSeen]) -> Iterator[Command]:
    """Yield the commands with their whole outputs, which a page of results does not include."""
    for each in seen:
        task = session.store.task(each.task)
        if task is None:
            session.note(f"command {each.id} has changed its status in the meantime and is omitted")
            continue
        try:
            if each.status in OF_LISTS:
                commands = CommandList.decode(task.data).commands
                yield next(command for command in commands if command.id == each.id)
            else:
                yield Command.decode(task.data)
        except NotACommand as problem:
            raise Failure(f"command {each.id}: {problem}") from None


@contextmanager
def reporting(session: Session, nothing: str) -> Iterator[None]:
    """Report problems with files line by line, and end with a failure."""
    try:
        yield
    except NotFiles as wrong:
        for problem in wrong.problems[:MOST_PROBLEMS]:
            session.note(problem)
        if len(wrong.problems) > MOST_PROBLEMS:
            session.note(f"and {number(len(wrong.problems) - MOST_PROBLEMS)} more")
        count = len(wrong.problems)
        raise Failure(f"{nothing}: {number(count)} problem{'' if count == 1 else 's'}") from None
    except OSError as problem:
        raise Failure(f"{problem.filename}: {problem.strerror}") from None
