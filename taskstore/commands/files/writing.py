"""Commands written as the files of TDF2."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...types.command_lines import Entry
from ...types.command_record import Command, CommandList, CommandStatus, why_misplaced
from .content import NotFiles, ProjectContent
from .texts import ERR, OUT, TASK, shown, task_text, why_no_directory, why_no_file


def write_project(content: ProjectContent, directory: Path) -> None:
    """As `write_entries`."""
    write_entries(content.entries, directory)


def write_entries(entries: Iterable[Entry], directory: Path) -> int:
    """Make the directory with all of a project in it, or nothing. Returns the number of commands.

    A directory that is there has to be empty. Raises NotFiles, which names every command that TDF2's files can't
    hold, and OSError.
    """
    _refuse_full(directory)
    # Beside it, to be moved there as a whole: half of a project would pass for one.
    made = directory.absolute().parent / f".{directory.absolute().name}-{secrets.token_hex(4)}"
    try:
        writer = ProjectWriter(root=made)
        writer.write(entries)
        made.rename(directory)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return len(writer.ids)


def write_result(command: Command, directory: Path) -> None:
    """Its `.task`, `.out` and `.err`, in place of those that are there. Raises NotFiles and OSError."""
    if why := why_no_file(command):
        raise NotFiles([f"{shown(command.id)}: {why}"])
    for end, content in _files(command):
        file = directory / (command.id + end)
        if content:
            file.write_bytes(content)
        else:
            file.unlink(missing_ok=True)


def _refuse_full(directory: Path) -> None:
    if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        raise NotFiles([f"{directory}: must be a new or an empty directory"])


def _files(command: Command) -> Iterator[tuple[str, bytes]]:
    """The ends of the names of its files, and what they hold."""
    run = command.run
    yield TASK, task_text(command).encode()
    yield OUT, run.out.content if run else b""
    yield ERR, run.err.content if run else b""


@dataclass(slots=True)
class ProjectWriter:
    """Writes below `root`, until there is something that can't be written; from then on it only looks for more."""

    root: Path
    problems: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def write(self, entries: Iterable[Entry]) -> None:
        """Raises NotFiles, which names all that can't be written."""
        self.root.mkdir()
        for status in CommandStatus:
            (self.root / status).mkdir()
        for status, entry in entries:
            if isinstance(entry, CommandList):
                self._write_list(status, entry)
            else:
                self._write(status, entry, self.root / status)
        if self.problems:
            raise NotFiles(self.problems)

    def _write_list(self, status: CommandStatus, made: CommandList) -> None:
        directory = self.root / status / made.directory
        why = why_no_directory(status, made) or (
            "must have a unique name: another list has the same" if directory.exists() else None
        )
        if why:
            self.problems.append(f"{status}/{shown(made.directory)}: {why}")
            return
        directory.mkdir()
        for command in made.commands:
            self._write(status, command, directory)

    def _write(self, status: CommandStatus, command: Command, directory: Path) -> None:
        why = why_no_file(command) or why_misplaced(status, command)
        if not why and command.id in self.ids:
            why = "must have a unique id: another command has the same"
        self.ids.add(command.id)
        if why:
            self.problems.append(f"{status}/{shown(command.id)}: {why}")
        if not self.problems:
            for end, content in _files(command):
                if content:
                    (directory / (command.id + end)).write_bytes(content)
