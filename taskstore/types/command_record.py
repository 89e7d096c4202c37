"""Shell commands and lists of them as the data of tasks (contract.md section 7, with TDF2's terms). Pure.

The tasks of a project are in the groups `commands/PROJECT/STATUS`. Workers claim lists: one task of `open` or `closed`
carries a `CommandList` with all its commands. In all other groups a task carries one `Command`.
The data is a JSON object with the members of these classes, which workers in any language can read and write.
Times are whole seconds since the Epoch, durations whole seconds, as in TDF2.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Self

from msgspec import Meta, Struct
from msgspec.structs import replace

from . import sentences
from .checks import Name, Number, Record
from .scalars import INT64_MAX, prepare
from .tasks import COMMAND_GROUPS, NewTask

PREFIX = COMMAND_GROUPS
DEFAULT_PROJECT = "default"
COMMAND_LABEL = "command"  # The first id of a command, which all its runs share.
LIST_LABEL = "list"  # The name of its list.
COUNT_LABEL = "commands"  # The number of commands in a list.
EXPECTED_LABEL = "expected"  # Their expected duration.
DONE_LABEL = "done"  # How many others have ended. With these labels pages need not read the data.
LONGEST_PROJECT = 200  # Characters, because it is a part of a group's name.
LONGEST_ID = 200  # Characters without the number of fails, because it is used in file names and a label.
LONGEST_CMD = 64 * 2**10  # Bytes.
ID = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.-]*")
NUMBER_OF_FAILS = re.compile(r"_[0-9]{1,15}\Z")
PACKED_BYTES = 64 * 2**10  # An output of this size is compressed in the data of a task.
LARGEST_OUTPUT = 64 * 2**20  # Bytes.
TaskId = Annotated[int, Meta(ge=1, le=INT64_MAX)]
OUTPUT = "output"  # The end of the name of the group with the live output of running commands.


class CommandStatus(StrEnum):
    """The status of a command, or of the list that contains it."""

    NEW = "new"
    NEW_STASHED = "new_stashed"  # Parked: not put into a list.
    OPEN = "open"  # In a list. A claimed list is running; its task stays in this group, leased.
    OPEN_STASHED = "open_stashed"
    RUNNING = "running"
    CLOSED = "closed"  # A worker has finished the list.
    COMPLETED = "completed"
    COMPLETED_ARCHIVE = "completed_archive"
    FAILED_ARCHIVE = "failed_archive"  # Failed and replaced by a duplicate.
    FAILED_TIME = "failed_time"  # Too late to be started or retried.
    FAILED_COUNT = "failed_count"  # Failed too often.
    CANCELLED = "cancelled"  # By somebody, before it ended. TDF2 does not know it.


OF_LISTS = frozenset({CommandStatus.OPEN, CommandStatus.OPEN_STASHED, CommandStatus.RUNNING, CommandStatus.CLOSED})
FINAL = frozenset(
    {
        CommandStatus.COMPLETED,
        CommandStatus.COMPLETED_ARCHIVE,
        CommandStatus.FAILED_TIME,
        CommandStatus.FAILED_COUNT,
        CommandStatus.CANCELLED,
    }
)
BEFORE_A_RUN = frozenset(
    {
        CommandStatus.NEW,
        CommandStatus.NEW_STASHED,
        CommandStatus.OPEN,
        CommandStatus.OPEN_STASHED,
        CommandStatus.RUNNING,
    }
)
# Possibly without a run, because it was too late or cancelled. A retry moves such commands to the archive.
MAYBE_WITHOUT_RUN = frozenset(
    {CommandStatus.CLOSED, CommandStatus.FAILED_TIME, CommandStatus.FAILED_ARCHIVE, CommandStatus.CANCELLED}
)
RESULTS = FINAL | {CommandStatus.FAILED_ARCHIVE}  # With a run, unless there was none.


class NotACommand(ValueError):
    """The data of a task is not a valid command or list. The message says why."""


class Output(Struct, frozen=True, kw_only=True):
    """One of the outputs of a command: whole, or its beginning and its end."""

    text: str = ""  # If it is UTF-8.
    base64: str = ""  # Otherwise.
    cut_at: Number = 0  # The position of the missing bytes.
    missing: Number = 0  # The number of missing bytes.

    @classmethod
    def of(cls, written: bytes, *, cut_at: int = 0, missing: int = 0) -> Self:
        try:
            return cls(text=written.decode(), cut_at=cut_at, missing=missing)
        except UnicodeDecodeError:
            return cls(base64=base64.b64encode(written).decode(), cut_at=cut_at, missing=missing)

    def packed(self) -> Mapping[str, Any] | None:
        """Return a large output as a compressed JSON object; None for another one."""
        if len(self.text) + len(self.base64) < PACKED_BYTES:
            return None
        squeezed = base64.b64encode(zlib.compress(self.kept, level=1)).decode()
        return {"zlib": squeezed, "cut_at": self.cut_at, "missing": self.missing}

    @property
    def kept(self) -> bytes:
        """The bytes that were kept. Invalid Base64 is returned unchanged."""
        if not self.base64:
            return self.text.encode()
        kept = from_base64(self.base64)
        return self.base64.encode() if kept is None else kept

    @property
    def lines(self) -> list[str]:
        """The lines that are not blank, as text."""
        return [line for line in self.kept.decode(errors="replace").split("\n") if line.strip()]

    @property
    def content(self) -> bytes:
        """The content for a file, with a line that replaces the missing bytes and says how many they are."""
        if not self.missing:
            return self.kept
        kept = self.kept
        said = f"\n... {self.missing} bytes are missing here: a worker keeps the beginning and the end ...\n"
        return kept[: self.cut_at] + said.encode() + kept[self.cut_at :]

    def __bool__(self) -> bool:
        return bool(self.text or self.base64 or self.missing)


def unpacked(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON object of an output that may be compressed; other objects stay the same. Raises ValueError."""
    squeezed = tree.get("zlib")
    if not isinstance(squeezed, str):
        return tree
    unpacker = zlib.decompressobj()
    try:
        kept = unpacker.decompress(base64.b64decode(squeezed, validate=True), LARGEST_OUTPUT)
    except (ValueError, zlib.error):
        kept = None
    if kept is None or not unpacker.eof:
        raise ValueError(f"zlib must be Base64 of a compressed output of at most {LARGEST_OUTPUT} bytes")
    output = Output.of(kept)
    return {**tree, "text": output.text, "base64": output.base64}


class Run(Struct, frozen=True, kw_only=True):
    """One execution of a command."""

    worker: str
    started: Number = 0
    ended: Number = 0
    duration_ms: Number = 0  # More precise than the difference of the times.
    exit_code: Number | None = None  # None: unknown, as in TDF2's files. A signal is 128 plus its number.
    missing: Number = 0  # The number of bytes of both outputs that were not kept.
    allow_stderr: bool = False  # Whether the worker accepts what is written to standard error.
    out: Output = Output()
    err: Output = Output()  # With a line of the worker if the exit code is not 0.

    @property
    def failed(self) -> bool:
        return bool(self.exit_code) or (bool(self.err) and not self.allow_stderr)

    @property
    def complaint(self) -> str:
        """Why it failed: the last line of standard error, if possible not the worker's about the exit code."""
        if not self.failed:
            return ""
        lines = self.err.lines
        if lines[-1:] == [f"ended with {self.exit_code}"]:
            lines = lines[:-1] or lines
        line = "".join(lines[-1:])
        return f"wrote to stderr: {line}" if self.exit_code == 0 else line


class Command(Record, frozen=True, kw_only=True):
    """A shell command and how to run it."""

    called, error_class = "record of a command", NotACommand
    read_object = unpacked

    id: Name
    cmd: Name
    cmd_base64: str = ""  # Of the exact line, if it is not UTF-8; `cmd` then shows other bytes as `\xe9`.
    created: Number = 0
    until: Number = 0  # The latest time to start it.
    expected_duration: Number = 0
    max_fails: Number = 0
    fails: Number = 0
    run: Run | None = None
    list: str = ""  # The name of the directory of the list in which it ran.
    excused: Number = 0  # How many attempts were not counted as failures, because of the worker.

    def __post_init__(self) -> None:
        if self.cmd_base64 and line_of(self.cmd, self.cmd_base64) is None:
            raise ValueError(f"cmd_base64 {OTHER_LINE}")

    @property
    def line(self) -> bytes:
        """The command line as a shell takes it."""
        return line_of(self.cmd, self.cmd_base64) or b""

    @property
    def first_id(self) -> str:
        """The id without the number of failures, which all duplicates share."""
        stem, _, fails = self.id.rpartition("_")
        return stem if stem and fails == str(self.fails) else self.id

    @property
    def duplicate(self) -> Self:
        """The command to run next after this one failed."""
        fails = self.fails + 1
        return replace(self, id=f"{self.first_id}_{fails}", fails=fails, run=None, list="", excused=0)


class CommandList(Record, frozen=True, kw_only=True):
    """Commands that one worker runs one after the other. What has ended leaves the list, in a closed one."""

    called, error_class = "list of commands", NotACommand
    read_object = unpacked

    name: Name  # The creation time of its oldest command in seconds.
    commands: tuple[Command, ...] = ()
    worker: str = ""  # Set once it is running.
    started: Number = 0
    finished: Number = 0
    done: Number = 0  # The number of commands that have left it.
    begun: Number = 0  # When its first command was started; 0: it was not.
    ahead: Number = 0  # So many that follow the first may have been started since: they were recorded together.
    claims: Number = 0  # Of its task, when it was last written.

    @property
    def directory(self) -> str:
        """TDF2's name of the list's directory, with the worker and the times once it is running or closed."""
        claimed = [self.worker, str(self.started)] if self.worker else []
        return "_".join([self.name, *claimed, *([str(self.finished)] if self.finished else [])])

    def reopened(self, claims: int) -> Self:
        """Return the list for the next worker. `claims`: those of its task, of which none is a lost worker's then."""
        return replace(self, worker="", started=0, begun=0, ahead=0, claims=claims)

    def with_only(self, left: tuple[Command, ...]) -> Self:
        """Return the list with these of its commands only."""
        begun = [command for command in self.commands[: self.ahead + 1] if command in left]
        return replace(self, commands=left, begun=self.begun if begun else 0, ahead=max(0, len(begun) - 1))

    @property
    def expected_duration(self) -> int:
        return sum(command.expected_duration for command in self.commands)


class LiveOutput(Record, frozen=True, kw_only=True):
    """The output of a running command so far."""

    called, error_class = "output of a command", NotACommand
    read_object = unpacked

    list: Name  # The name of the list.
    task: TaskId  # The first id of the list's task.
    command: Name  # The id of the command.
    at: Number  # When this was written.
    done: Number = 0  # The number of finished commands of the list.
    due: Number = 0  # When the command is expected to end. 0: it has just started.
    out: Output = Output()
    err: Output = Output()


OTHER_LINE = "must be Base64 of the line that cmd shows"


def members_of(line: bytes) -> Mapping[str, Any]:
    """Return the `cmd` and the `cmd_base64` of a command line, the latter empty if the line is UTF-8."""
    cmd = line.decode(errors="backslashreplace")
    return {"cmd": cmd, "cmd_base64": "" if cmd.encode() == line else base64.b64encode(line).decode()}


def line_of(cmd: str, cmd_base64: str) -> bytes | None:
    """Return the command line that these members mean; None if they are of different lines."""
    line = from_base64(cmd_base64) if cmd_base64 else cmd.encode()
    return line if line and cmd in ("", line.decode(errors="backslashreplace")) else None


def from_base64(text: str) -> bytes | None:
    """Decode Base64; return None if the text is not Base64."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def group_of(project: str, status: CommandStatus) -> str:
    """Return the group of the tasks with this status. Running lists are leased tasks in `open`."""
    return f"{PREFIX}{project}/{CommandStatus.OPEN if status is CommandStatus.RUNNING else status}"


def output_group(project: str) -> str:
    return f"{PREFIX}{project}/{OUTPUT}"


def cancelled_group(group: str) -> str | None:
    """Return the group to which a command or a list of this group moves when it is cancelled; None for other groups.

    A list moves to the closed ones, from which its commands are settled: an error says that it was cancelled.
    """
    place = place_of(group)
    if place is None or place[1] not in BEFORE_A_RUN:
        return None
    return group_of(place[0], CommandStatus.CLOSED if place[1] in OF_LISTS else CommandStatus.CANCELLED)


def place_of(group: str) -> tuple[str, str] | None:
    """Return the project and the last part of the group's name: a status or `output`. None for other groups."""
    project, _, end = group.removeprefix(PREFIX).rpartition("/")
    ends = {*CommandStatus, OUTPUT} - {CommandStatus.RUNNING}
    return (project, end) if group.startswith(PREFIX) and not why_no_project(project) and end in ends else None


def why_no_project(name: str) -> str | None:
    """Return the rule that this name of a project violates; None if it is valid."""
    if not name or "/" in name or "\0" in name:
        return sentences.NO_SLASH
    return sentences.at_most(LONGEST_PROJECT, "characters", len(name)) if len(name) > LONGEST_PROJECT else None


def why_no_id(name: str) -> str | None:
    """Return the rule that this id of a command violates; None if it is valid."""
    if not ID.fullmatch(name):
        return "must consist of letters, digits and _ . -, and must not start with . or -"
    if len(NUMBER_OF_FAILS.sub("", name)) > LONGEST_ID:
        return f"must have at most {LONGEST_ID} characters before the number of failures"
    return None


def why_misplaced(status: CommandStatus, command: Command) -> str | None:
    """Return why the command can't have this status; None if it can."""
    if status in BEFORE_A_RUN and command.run:
        return f"must not have a run: its status is {status}"
    if status not in BEFORE_A_RUN | MAYBE_WITHOUT_RUN and not command.run:
        return f"must have a run: its status is {status}"
    return None


def new_command_task(
    project: str, command: Command, status: CommandStatus = CommandStatus.NEW, error: str = "", *, batch: int = 0
) -> NewTask:
    """Return a new task for a command in this status. `error`: who has cancelled it, and why."""
    labels = {COMMAND_LABEL: command.first_id, **({LIST_LABEL: command.list} if command.list else {})}
    return NewTask(group=group_of(project, status), data=command.encode(), labels=labels, error=error, batch=batch)


def new_list_task(
    project: str, made: CommandList, status: CommandStatus = CommandStatus.OPEN, *, batch: int = 0
) -> NewTask:
    """Return a new task for a list in this status. `batch`: the one that all its commands belong to."""
    return NewTask(group=group_of(project, status), data=made.encode(), labels=list_labels(made), batch=batch)


def live_labels(live: LiveOutput, command: Command) -> Mapping[str, str]:
    """Return the labels of an output. Names of lists need not be unique, so it bears the first id of its task."""
    return {COMMAND_LABEL: command.first_id, LIST_LABEL: str(live.task)}


def list_labels(made: CommandList) -> Mapping[str, str]:
    sizes = {COUNT_LABEL: str(len(made.commands)), EXPECTED_LABEL: str(made.expected_duration)}
    return {LIST_LABEL: made.name, **sizes, **({DONE_LABEL: str(made.done)} if made.done else {})}


def settled(closed: CommandList, now: int, *, is_cancelled: bool = False) -> Sequence[tuple[CommandStatus, Command]]:
    """Return the commands of a closed list with their next statuses, and the duplicates of failed ones as new.

    Of a list that was cancelled nothing is to run again: what has not succeeded is cancelled, too.
    """
    commands = [replace(command, list=closed.directory if command.run else "") for command in closed.commands]
    if is_cancelled:
        succeeded = CommandStatus.COMPLETED
        return [
            (succeeded if command.run and not command.run.failed else CommandStatus.CANCELLED, command)
            for command in commands
        ]
    return [fate for command in commands for fate in fates_of(command, now)]


def fates_of(command: Command, now: int) -> Sequence[tuple[CommandStatus, Command]]:
    """Return a finished command with its next status, and the duplicate that replaces it if it is retried."""
    if command.run is None:  # It was too late, or the worker stopped before it.
        return [(CommandStatus.FAILED_TIME if is_late(command, now) else CommandStatus.NEW, command)]
    if not command.run.failed:
        return [(CommandStatus.COMPLETED, command)]
    if command.fails + 1 >= command.max_fails:
        return [(CommandStatus.FAILED_COUNT, command)]
    if is_late(command, now):
        return [(CommandStatus.FAILED_TIME, command)]
    return [(CommandStatus.FAILED_ARCHIVE, command), (CommandStatus.NEW, command.duplicate)]


def is_late(command: Command, now: int) -> bool:
    """Whether the command may no longer be started."""
    return now > command.until


prepare(Command, CommandList, LiveOutput)


Entry = tuple[CommandStatus, Command | CommandList]
