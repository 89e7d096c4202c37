"""Projects of commands in directories, as TDF2 has them, and results in files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ..commands.files import NotFiles, read_project, write_entries, write_result
from ..errors import TaskStoreError
from ..types.command_record import OF_LISTS, Command, CommandList, NotACommand
from ..types.commands import CommandSeen
from ..types.tasks import Task
from .base import Scope, command
from .commands_group import commands, project
from .context import Session
from .errors import Failure
from .tables import number

MOST_TOLD = 100  # Problems: with thousands the first ones would be out of sight.

directory = click.argument("directory", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")


@command("import", needs=Scope.COMMANDS, below=commands)
@directory
@project
def import_(session: Session, /, directory: Path, project: str) -> None:
    """Import TDF2's directories from DIR: new/ID.task, open/LIST/ID.task, completed/ID.out and so on.

    All files are read first: if any is invalid, nothing is added. Lists that were running become open. Commands that
    exist already stay unchanged, so an interrupted import can be repeated.
    """
    with told(session, "nothing was imported"):
        content = read_project(directory)
    try:
        added = session.store.commands.import_project(project, content.entries)
    except (TaskStoreError, KeyboardInterrupt):
        session.note("earlier parts stay imported; run the same command again to continue")
        raise
    if session.is_json:
        session.tell([{"commands": added.commands, "lists": added.lists, "there_already": added.there_already}])
    more = {"lists": added.lists, "already there": added.there_already}
    told_too = "".join(f"; {name}: {number(count)}" for name, count in more.items() if count)
    session.say(f"imported {commands_of(added.commands)}{told_too}")


@command("export", needs=Scope.READ, below=commands)
@directory
@project
def export(session: Session, /, directory: Path, project: str) -> None:
    """Write all commands and lists of a project into DIR, as TDF2's directories have them.

    DIR is new, or empty; it is there only when it is whole.
    """
    with told(session, "nothing was written"):
        written = write_entries(session.store.commands.export_project(project), directory)
    if session.is_json:
        session.tell([{"commands": written}])
    session.say(f"{directory}: {commands_of(written)}")


def write_results(session: Session, seen: Iterable[CommandSeen], directory: Path) -> None:
    """Write the files of each of them into a directory: ID.task, ID.out, ID.err. What can't be files is told."""
    written = left_out = 0
    with told(session, "some commands were not written"):
        directory.mkdir(parents=True, exist_ok=True)
        for each in whole(session, seen):
            try:
                write_result(each, directory)
                written += 1
            except NotFiles as wrong:
                left_out += 1
                session.note(str(wrong))
    if session.is_json:
        session.tell([{"commands": written}])
    session.say(f"{directory}: {commands_of(written)}")
    if left_out:
        raise Failure(f"{commands_of(left_out)} can't be written as files")


def commands_of(count: int) -> str:
    return f"{number(count)} command{'' if count == 1 else 's'}"


def whole(session: Session, seen: Iterable[CommandSeen]) -> Iterator[Command]:
    """The commands with all that they wrote, of which a list has only the beginnings."""
    for each in seen:
        task = session.store.task(each.task)
        if task is None:
            session.note(f"command {each.id} has moved in the meantime and is left out")
        else:
            yield _command_of(task, each)


def _command_of(task: Task, seen: CommandSeen) -> Command:
    """The command as its task has it, or that of its list."""
    try:
        if seen.status not in OF_LISTS:
            return Command.decode(task.data)
        return next(command for command in CommandList.decode(task.data).commands if command.id == seen.id)
    except NotACommand as problem:
        raise Failure(f"command {seen.id}: {problem}") from None


@contextmanager
def told(session: Session, nothing: str) -> Iterator[None]:
    """What is wrong with files, line by line, as a failure."""
    try:
        yield
    except NotFiles as wrong:
        for problem in wrong.problems[:MOST_TOLD]:
            session.note(problem)
        if len(wrong.problems) > MOST_TOLD:
            session.note(f"and {number(len(wrong.problems) - MOST_TOLD)} more")
        count = len(wrong.problems)
        raise Failure(f"{nothing}: {number(count)} problem{'' if count == 1 else 's'}") from None
    except OSError as problem:
        raise Failure(f"{problem.filename}: {problem.strerror}") from None
