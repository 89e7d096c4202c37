"""Write commands as TDF2's files."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...types.command_lines import Entry
from ...types.command_record import Command, CommandStatus, why_misplaced
from .texts import ERR, OUT, TASK, NotFiles, shown, task_text, why_no_directory, why_no_file


def write_entries(entries: Iterable[Entry], directory: Path) -> int:
    """Write a whole project into a directory, or nothing. Returns the number of commands.

    An existing directory must be empty. Raises NotFiles, which lists every command that TDF2's files can't hold;
    OSError.
    """
    if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        raise NotFiles([f"{directory}: must be a new or an empty directory"])
    # Write to a temporary directory and rename it, because half a project would look like a whole one.
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
    """Write the `.task`, `.out` and `.err` of a command, replacing existing ones. Raises NotFiles and OSError."""
    if why := why_no_file(command):
        raise NotFiles([f"{shown(command.id)}: {why}"])
    for end, content in _files(command):
        file = directory / (command.id + end)
        if content:
            file.write_bytes(content)
        else:
            file.unlink(missing_ok=True)


def _files(command: Command) -> Iterator[tuple[str, bytes]]:
    """Yield the suffix and the content of each of the command's files."""
    run = command.run
    yield TASK, task_text(command).encode()
    yield OUT, run.out.content if run else b""
    yield ERR, run.err.content if run else b""


@dataclass(slots=True)
class ProjectWriter:
    """Writes below `root` until the first problem; after that it only collects further problems."""

    root: Path
    problems: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def write(self, entries: Iterable[Entry]) -> None:
        """Write all entries. Raises NotFiles, which lists everything that can't be written."""
        self.root.mkdir()
        for status in CommandStatus:
            (self.root / status).mkdir()
        for status, entry in entries:
            if isinstance(entry, Command):
                self._write(status, entry, self.root / status)
                continue
            directory = self.root / status / entry.directory
            why = why_no_directory(status, entry)
            if not why and directory.exists():
                why = "must have a unique name: another list has the same"
            if why:
                self.problems.append(f"{status}/{shown(entry.directory)}: {why}")
                continue
            directory.mkdir()
            for command in entry.commands:
                self._write(status, command, directory)
        if self.problems:
            raise NotFiles(self.problems)

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
