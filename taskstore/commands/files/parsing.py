"""Read a whole project from TDF2's directories, or report everything that is wrong in them; write commands there."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from ...types import sentences
from ...types.checks import MOST
from ...types.command_record import (
    LONGEST_CMD,
    OF_LISTS,
    Command,
    CommandList,
    CommandStatus,
    Entry,
    Output,
    Run,
    fates_of,
    members_of,
    why_misplaced,
    why_no_id,
)


class NotFiles(ValueError):
    """Directories that are not in TDF2's format, or commands that its files can't hold. Nothing was read or written.

    `problems` lists all of them, each with its file.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectContent:
    """All commands of a project: those in lists, and the others."""

    commands: Sequence[tuple[CommandStatus, Command]] = ()
    lists: Sequence[tuple[CommandStatus, CommandList]] = ()

    @property
    def entries(self) -> Iterator[Entry]:
        yield from self.commands
        yield from self.lists


FIELDS = ("id", "created", "until", "expected_duration", "max_fails", "fails", "cmd", "worker", "started", "ended")
TASK, OUT, ERR = ".task", ".out", ".err"
BEFORE_A_RUN = 7  # The number of fields before a run.
NUMBER = re.compile(r"0|[1-9][0-9]{0,14}")  # Only the form in which it is written again.
NAME = "(?P<name>[0-9]{1,20})"
RUNNING = NAME + "_(?P<worker>[^/]+)_(?P<started>[0-9]+)"  # Greedy, because worker names may contain underscores.
CLOSED = RUNNING + "_(?P<finished>[0-9]+)"
LISTS = {
    CommandStatus.OPEN: re.compile(NAME),
    CommandStatus.OPEN_STASHED: re.compile(NAME),
    CommandStatus.RUNNING: re.compile(RUNNING),
    CommandStatus.CLOSED: re.compile(CLOSED),
}
LONGEST_NAME = 255  # Bytes, on nearly every file system.


def task_content(command: Command) -> bytes:
    """Return the content of the command's `.task`. Call `why_no_file` first."""
    run = command.run
    numbers = (command.created, command.until, command.expected_duration, command.max_fails, command.fails)
    ran = (run.worker, run.started, run.ended) if run else ()
    lines = [f"{field}".encode() for field in (command.id, *numbers, "", *ran)]
    lines[FIELDS.index("cmd")] = command.line
    return b"".join(line + b"\n" for line in lines)


def command_of(name: str, content: bytes, out: bytes = b"", err: bytes = b"") -> Command:
    """Parse `<name>.task` and the command's outputs. Raises NotFiles, which lists each invalid line."""
    text = content.decode(errors="surrogateescape")
    *lines, rest = text.split("\n")
    if rest:
        raise NotFiles(["the last line has no end"])
    if len(lines) not in (BEFORE_A_RUN, len(FIELDS)):
        raise NotFiles([f"must have 7 lines, or 10 after a run, not {len(lines)}"])
    wrong = list(_wrong_fields(name, lines))
    if wrong:
        raise NotFiles(wrong)
    created, until, expected_duration, max_fails, fails = map(int, lines[1:6])
    return Command(
        id=name,
        created=created,
        until=until,
        expected_duration=expected_duration,
        max_fails=max_fails,
        fails=fails,
        **members_of(lines[6].encode(errors="surrogateescape")),
        run=_run(lines[BEFORE_A_RUN:], out, err),
    )


def list_of(status: CommandStatus, directory: str) -> CommandList:
    """Parse the name of a list's directory into a list without commands. Raises NotFiles for an invalid name."""
    found = LISTS[status].fullmatch(directory)
    parts = found.groupdict() if found else {}
    if not found or not directory.isprintable() or not all(map(is_number, list(parts.values())[2:])):
        raise NotFiles([f"must be a valid name of a list with the status {status}"])
    started, finished = int(parts.get("started", 0)), int(parts.get("finished", 0))
    return CommandList(name=parts["name"], worker=parts.get("worker", ""), started=started, finished=finished)


def why_no_file(command: Command) -> str | None:
    """Return why TDF2's files can't hold the command; None if they can."""
    run = command.run
    if has_line_breaks(command.cmd):
        return "its command line must not contain line breaks, which TDF2's files can't hold"
    if run and has_line_breaks(run.worker):
        return "the name of its worker must not contain line breaks"
    if run and run.failed and not run.err:
        return f"it ended with {run.exit_code} and wrote nothing to stderr, which TDF2 would count as a success"
    return why_no_id(command.id)


def why_no_directory(status: CommandStatus, made: CommandList) -> str | None:
    """Return why no directory of this status can hold the list; None if one can."""
    if not made.commands:
        return "must contain commands"
    try:
        is_named = list_of(status, made.directory) == replace(made, commands=())
    except NotFiles:
        is_named = False
    if len(made.directory.encode()) > LONGEST_NAME or not is_named:
        return "must have a name that fits a directory: a number of seconds, the worker, start and end"
    return None


def has_line_breaks(text: str) -> bool:
    """Whether the text contains line breaks, or NUL, which ends a line for a shell."""
    return any(sign in text for sign in "\n\r\0")


def is_number(text: str) -> bool:
    return bool(NUMBER.fullmatch(text)) and int(text) <= MOST


def shown(text: str) -> str:
    """Return the text in one line, with the control characters of terminals escaped."""
    return text if text.isprintable() else ascii(text)[1:-1]


def _run(lines: Sequence[str], out: bytes, err: bytes) -> Run | None:
    if not lines and (out or err):
        raise NotFiles(["it has an output, and 7 lines: those of a command that was not run"])
    if not lines:
        return None
    worker, (started, ended) = lines[0], map(int, lines[1:])
    return Run(
        worker=worker,
        started=started,
        ended=ended,
        duration_ms=min(max(0, ended - started) * 1_000, MOST),
        out=Output.of(out),
        err=Output.of(err),
    )


def _wrong_fields(name: str, lines: Sequence[str]) -> Iterator[str]:
    for number, (name_of_field, line) in enumerate(zip(FIELDS, lines, strict=False), 1):
        if line.endswith("\r"):
            yield f"line {number}: must end with LF, not CR LF"
        elif has_line_breaks(line):
            yield f"line {number}: must not contain CR or NUL"
        elif name_of_field != "cmd" and not sentences.is_utf8(line):
            yield f"line {number}: must be valid UTF-8"
        elif why := _why_wrong(name_of_field, line, name):
            yield f"line {number}: {why}"


def _why_wrong(field: str, line: str, name: str) -> str | None:
    match field:
        case "id":
            return None if line == name else f"must be the id in the file's name, not {_quoted(line)}"
        case "cmd" if not line.strip():
            return "must be a command line, not an empty line"
        case "cmd":
            size = len(line.encode(errors="surrogateescape"))
            return f"must be at most {LONGEST_CMD} bytes" if size > LONGEST_CMD else None
        case "worker":
            return None if line else "the name of a worker, not an empty line"
    return None if is_number(line) else f"{field} {sentences.between(0, MOST)}, not {_quoted(line)}"


def _quoted(line: str) -> str:
    return f'"{shown(line[:50])}"'


FAILED = "failed"  # A directory that only TDF2 has, for commands on their way to another status.

LONGEST_TASK = LONGEST_CMD + 16 * 2**10  # Bytes.
LONGEST_OUTPUT = 10 * 2**20  # Bytes: the largest task that the store accepts.


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


@dataclass(slots=True)
class Folders:
    """The directories and files below `root`. Problems are collected instead of raised."""

    root: Path
    problems: list[str] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)  # The path of each command's file, by its id.

    def note(self, path: Path, why: str) -> None:
        self.problems.append(f"{self.place(path)}: {why}")

    @contextmanager
    def noting(self, path: Path) -> Iterator[None]:
        """Collect the problems that are raised about a path."""
        try:
            yield
        except NotFiles as wrong:
            for problem in wrong.problems:
                self.note(path, problem)
        except OSError as problem:
            self.note(path, f"can't be read: {problem.strerror}")

    def place(self, path: Path) -> str:
        """Return the path as problems name it."""
        return str(self.root) if path == self.root else shown(str(path.relative_to(self.root)))

    def directories(self, parent: Path, known: Collection[str] | None = None) -> Iterator[Path]:
        """Yield the directories in a directory, sorted. `known`: the allowed names; None allows any."""
        for entry in self._entries(parent):
            path = parent / entry.name
            if known is not None and entry.name not in known:
                self.note(path, sentences.one_of(sorted(known), entry.name))
            elif not entry.is_dir(follow_symlinks=False):
                self.note(path, "must be a directory, not a file or a link")
            else:
                yield path

    def commands(self, parent: Path) -> Iterator[tuple[Path, Command]]:
        """Yield the commands whose files are in a directory, sorted by id, each with the path of its `.task`."""
        names = set(self._files(parent))
        for name in sorted(names, key=lambda name: name.rpartition(".")):
            task = parent / (name.rpartition(".")[0] + TASK)
            if name.endswith(TASK):
                with self.noting(task):
                    yield task, self._command(task, names)
            elif task.name not in names:
                self.note(parent / name, f"needs {self.place(task)}, which does not exist")

    def _files(self, parent: Path) -> Iterator[str]:
        for entry in self._entries(parent):
            if not entry.is_file(follow_symlinks=False):
                self.note(parent / entry.name, "must be a file, not a directory or a link")
            elif not entry.name.endswith((TASK, OUT, ERR)):
                self.note(parent / entry.name, f"must have a name that ends in {TASK}, {OUT} or {ERR}")
            else:
                yield entry.name

    def _entries(self, parent: Path) -> list[os.DirEntry[str]]:
        with self.noting(parent), os.scandir(parent) as found:
            return sorted(found, key=lambda entry: entry.name)
        return []

    def _command(self, task: Path, names: Collection[str]) -> Command:
        name = task.name.removesuffix(TASK)
        if why := why_no_id(name):
            raise NotFiles([why])
        if (place := self.places.setdefault(name, self.place(task))) != self.place(task):
            raise NotFiles([f"must have a unique id: {place} has the same"])
        out, err = (
            _content(task.with_name(name + end), LONGEST_OUTPUT) if name + end in names else b"" for end in (OUT, ERR)
        )
        return command_of(name, _content(task, LONGEST_TASK), out, err)


def _content(file: Path, most: int) -> bytes:
    with file.open("rb") as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise NotFiles([f"its {file.suffix} file must be at most {most} bytes"])
    return content


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
    yield TASK, task_content(command)
    yield OUT, run.out.content if run else b""
    yield ERR, run.err.content if run else b""


@dataclass(slots=True)
class ProjectWriter:
    """Writes below `root` until the first problem; after that it only collects further problems."""

    root: Path
    problems: list[str] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)  # With the hash of each line.

    def write(self, entries: Iterable[Entry]) -> None:
        """Write all entries. Raises NotFiles, which lists everything that can't be written."""
        self.root.mkdir()
        for status in set(CommandStatus) - {CommandStatus.CANCELLED}:  # Which TDF2 does not know.
            (self.root / status).mkdir()
        for status, entry in entries:
            if isinstance(entry, Command):
                self._write(status, entry, self.root / status)
                continue
            if why := why_no_directory(status, entry):
                self.problems.append(f"{status}/{shown(entry.directory)}: {why}")
                continue
            # Parts of a list that were closed in the same second belong together. Other lists have their own names.
            directory = self.root / status / entry.directory
            while status is not CommandStatus.CLOSED and directory.exists():
                entry = replace(entry, name=str(int(entry.name) + 1))
                directory = self.root / status / entry.directory
            for command in entry.commands:
                self._write(status, command, directory)
        if self.problems:
            raise NotFiles(self.problems)

    def _write(self, status: CommandStatus, command: Command, directory: Path) -> None:
        why = why_no_file(command) or why_misplaced(status, command)
        if command.id in self.ids:
            if self.ids[command.id] == hash(command.line):
                return  # It has changed its status while it was exported.
            why = "must have a unique id: another command has the same"
        self.ids[command.id] = hash(command.line)
        if why:
            self.problems.append(f"{status}/{shown(command.id)}: {why}")
        if not self.problems:
            directory.mkdir(exist_ok=True, parents=True)
            for end, content in _files(command):
                if content:
                    (directory / (command.id + end)).write_bytes(content)
