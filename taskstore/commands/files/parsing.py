"""Read a whole project from TDF2's directories, or report everything that is wrong in them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ...types.command_record import OF_LISTS, Command, CommandList, CommandStatus, fates_of, why_misplaced
from .folders import Folders
from .texts import NotFiles, ProjectContent, list_of

FAILED = "failed"  # A directory that only TDF2 has, for commands on their way to another status.


def read_project(directory: Path, *, now: int | None = None) -> ProjectContent:
    """Read all commands and lists below a directory. Running lists become open; commands in `failed` are settled.

    `now`: the time for that, in seconds since the Epoch; by default the present. Raises NotFiles, which lists every
    problem.
    """
    folders = Folders(root=directory)
    found = {Path(path).name: path for path in folders.directories(directory, {*CommandStatus, FAILED})}
    lists = list(_lists(folders, found))
    commands = list(_commands(folders, found))
    failed = []
    for task, command in folders.commands(found[FAILED]) if FAILED in found else ():
        if command.run and command.run.err:
            failed.append(command)
        else:
            folders.note(task, "must have 10 lines, and a .err file that is not empty: its status is failed")
    if not folders.places and not folders.problems:
        folders.note(directory, "must contain commands")
    if folders.problems:
        raise NotFiles(folders.problems)
    settled = _settled(failed, folders.places, int(time.time()) if now is None else now)
    return ProjectContent(commands=(*commands, *settled), lists=tuple(lists))


def _commands(folders: Folders, found: Mapping[str, Path]) -> Iterator[tuple[CommandStatus, Command]]:
    for status in CommandStatus:
        if status in found and status not in OF_LISTS:
            for command in _placed(folders, found[status], status):
                yield status, command


def _lists(folders: Folders, found: Mapping[str, Path]) -> Iterator[tuple[CommandStatus, CommandList]]:
    names: dict[tuple[CommandStatus, str], Path] = {}
    for status in CommandStatus:
        for path in folders.directories(found[status]) if status in found and status in OF_LISTS else ():
            if made := _list(folders, path, status):
                fate = (status, made)
                if status is CommandStatus.RUNNING:
                    fate = (CommandStatus.OPEN, CommandList(name=made.name, commands=made.commands))
                if (there := names.setdefault((fate[0], fate[1].directory), path)) is not path:
                    folders.note(
                        path, f"must have a unique name: {folders.place(there)} is an open list with the same name"
                    )
                yield fate


def _list(folders: Folders, path: Path, status: CommandStatus) -> CommandList | None:
    problems = len(folders.problems)
    commands = tuple(_placed(folders, path, status))
    with folders.noting(path):
        if not commands and len(folders.problems) == problems:
            raise NotFiles(["must contain commands"])
        return replace(list_of(status, path.name), commands=commands)
    return None


def _placed(folders: Folders, parent: Path, status: CommandStatus) -> Iterator[Command]:
    for task, command in folders.commands(parent):
        if why := why_misplaced(status, command):
            folders.note(task, why)
        else:
            yield command


def _settled(failed: list[Command], places: Mapping[str, str], now: int) -> Iterator[tuple[CommandStatus, Command]]:
    for command in failed:
        status, *more = fates_of(command, now)
        yield status
        # TDF2 may have been stopped after it created the duplicate: don't add a second one.
        yield from (fate for fate in more if fate[1].id not in places)
