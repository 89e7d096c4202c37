"""Convert between commands and the lines of `.task` files and the names of files and directories. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from ...types import sentences
from ...types.command_record import LONGEST_CMD, Command, CommandList, CommandStatus, Entry, Output, Run, why_no_id
from ...types.records import MOST


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


def task_text(command: Command) -> str:
    """Return the content of the command's `.task`. Call `why_no_file` first."""
    run = command.run
    numbers = (command.created, command.until, command.expected_duration, command.max_fails, command.fails)
    ran = (run.worker, run.started, run.ended) if run else ()
    return "".join(f"{field}\n" for field in (command.id, *numbers, command.cmd, *ran))


def command_of(name: str, content: bytes, out: bytes = b"", err: bytes = b"") -> Command:
    """Parse `<name>.task` and the command's outputs. Raises NotFiles, which lists each invalid line."""
    try:
        text = content.decode()
    except UnicodeDecodeError as problem:
        number = 1 + content.count(b"\n", 0, problem.start)
        raise NotFiles([f"line {number}: must be valid UTF-8"]) from None
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
        cmd=lines[6],
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
    for number, (field, line) in enumerate(zip(FIELDS, lines, strict=False), 1):
        if line.endswith("\r"):
            yield f"line {number}: must end with LF, not CR LF"
        elif has_line_breaks(line):
            yield f"line {number}: must not contain CR or NUL"
        elif why := _why_wrong(field, line, name):
            yield f"line {number}: {why}"


def _why_wrong(field: str, line: str, name: str) -> str | None:
    match field:
        case "id":
            return None if line == name else f"must be the id in the file's name, not {_quoted(line)}"
        case "cmd" if not line.strip():
            return "must be a command line, not an empty line"
        case "cmd":
            return f"must be at most {LONGEST_CMD} bytes" if len(line.encode()) > LONGEST_CMD else None
        case "worker":
            return None if line else "the name of a worker, not an empty line"
    return None if is_number(line) else f"{field} {sentences.between(0, MOST)}, not {_quoted(line)}"


def _quoted(line: str) -> str:
    return f'"{shown(line[:50])}"'
