"""Import and export projects as TDF2's directories, and write results to files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ..commands.files import NotFiles, read_project, write_entries, write_result
from ..errors import TaskStoreError
from ..types.command_record import OF_LISTS, Command, CommandList, NotACommand
from ..types.commands import CommandSeen
from .base import Failure, Scope, Session, command
from .made import project
from .tables import number

MOST_PROBLEMS = 100  # Thousands would push the first ones off the screen.


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
        content = read_project(directory)
    try:
        added = session.store.commands.import_project(project, content.entries)
    except (TaskStoreError, KeyboardInterrupt):
        session.note("earlier parts stay imported; run the same command again to continue")
        raise
    session.tell([{"commands": added.commands, "lists": added.lists, "there_already": added.there_already}])
    more = {"lists": added.lists, "already there": added.there_already}
    told_too = "".join(f"; {name}: {number(count)}" for name, count in more.items() if count)
    session.say(f"imported {commands_of(added.commands)}{told_too}")


@command("export", needs=Scope.READ, below=commands)
@directory
@project
def export(session: Session, /, directory: Path, project: str) -> None:
    """Write all commands and lists of a project into DIR, in the layout of TDF2's directories.

    DIR must be new or empty. It appears only when it is complete.
    """
    with reporting(session, "nothing was written"):
        written = write_entries(session.store.commands.export_project(project), directory)
    session.tell([{"commands": written}])
    session.say(f"{directory}: {commands_of(written)}")


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
