"""Shell commands and lists of them as their tasks carry them (contract.md section 7, TDF2's words). Pure.

The tasks of a project lie in the groups `commands/PROJECT/STATUS`. What is to be done lies in lists: one task of `open`
or `closed` carries a `CommandList` with all its commands. In all other groups a task carries one `Command`.
Their data are JSON objects with the members of these classes. Workers in any language can read and write them.
Times are whole seconds since the Epoch, durations whole seconds, as in TDF2.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from . import records, sentences
from .tasks import COMMAND_GROUPS, NewTask

PREFIX = COMMAND_GROUPS
DEFAULT_PROJECT = "default"
COMMAND_LABEL = "command"  # The first id of a command: all its runs bear it.
LIST_LABEL = "list"  # The name of its list.
COUNT_LABEL = "commands"  # Of a list: how many it has,
EXPECTED_LABEL = "expected"  # and how long they are expected to take together. Pages need not read them then.
LONGEST_PROJECT = 200  # Characters: with what stands around it, it is the name of a group.
LONGEST_ID = 200  # Characters, without the number of fails: it is the name of files, and a label.
LONGEST_CMD = 64 * 2**10  # Bytes.
ID = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.-]*")
NUMBER_OF_FAILS = re.compile(r"_[0-9]{1,15}\Z")
OUTPUT = "output"  # The end of the group with what running commands have written so far.


class CommandStatus(StrEnum):
    """Where a command, or the list that it lies in, is on its way."""

    NEW = "new"
    NEW_STASHED = "new_stashed"  # Parked: no list is made of it.
    OPEN = "open"  # In a list. A list that a worker has claimed is running; its task stays here, leased.
    OPEN_STASHED = "open_stashed"
    RUNNING = "running"
    CLOSED = "closed"  # A worker is done with the list.
    COMPLETED = "completed"
    COMPLETED_ARCHIVE = "completed_archive"
    FAILED_ARCHIVE = "failed_archive"  # A duplicate of it took its place.
    FAILED_TIME = "failed_time"  # Too late to be started again, or at all.
    FAILED_COUNT = "failed_count"  # It failed too often.


OF_LISTS = frozenset({CommandStatus.OPEN, CommandStatus.OPEN_STASHED, CommandStatus.RUNNING, CommandStatus.CLOSED})
FINAL = frozenset(
    {
        CommandStatus.COMPLETED,
        CommandStatus.COMPLETED_ARCHIVE,
        CommandStatus.FAILED_TIME,
        CommandStatus.FAILED_COUNT,
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
# It may have been too late for a run; what is retried then goes into the archive.
MAYBE_TOO_LATE = frozenset({CommandStatus.CLOSED, CommandStatus.FAILED_TIME, CommandStatus.FAILED_ARCHIVE})
RESULTS = FINAL | {CommandStatus.FAILED_ARCHIVE}  # With a run, unless it was too late for one.


class NotACommand(ValueError):
    """The data of a task is not that of a command, or of a list of them. The text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a command wrote to one of its outputs: all of it, or its beginning and its end."""

    text: str = ""  # When it is UTF-8.
    base64: str = ""  # Otherwise.
    cut_at: int = 0  # After so many bytes some are missing,
    missing: int = 0  # so many.

    @classmethod
    def of(cls, written: bytes, *, cut_at: int = 0, missing: int = 0) -> Self:
        try:
            return cls(text=written.decode(), cut_at=cut_at, missing=missing)
        except UnicodeDecodeError:
            return cls(base64=base64.b64encode(written).decode(), cut_at=cut_at, missing=missing)

    @property
    def kept(self) -> bytes:
        """What there is of it. What a worker calls Base64 and is none stays as it stands."""
        if not self.base64:
            return self.text.encode()
        kept = from_base64(self.base64)
        return self.base64.encode() if kept is None else kept

    @property
    def lines(self) -> list[str]:
        """Those that are not blank, as text."""
        return [line for line in self.kept.decode(errors="replace").split("\n") if line.strip()]

    @property
    def content(self) -> bytes:
        """As a file holds it: where bytes are missing, a line says how many."""
        if not self.missing:
            return self.kept
        kept = self.kept
        said = f"\n... {self.missing} bytes are missing here: a worker keeps the beginning and the end ...\n"
        return kept[: self.cut_at] + said.encode() + kept[self.cut_at :]

    def __bool__(self) -> bool:
        return bool(self.text or self.base64 or self.missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution of a command."""

    worker: str
    started: int = 0
    ended: int = 0
    duration_ms: int = 0  # More exact than the difference.
    exit_code: int | None = None  # None: not known, as in TDF2's files. A signal counts as 128 and its number.
    out: Output = Output()
    err: Output = Output()  # With a line of the worker when the exit code is not 0.

    @property
    def failed(self) -> bool:
        return bool(self.err) or bool(self.exit_code)

    @property
    def complaint(self) -> str:
        """The last line of standard error, and what only repeats the exit code when there is no other. Empty: none."""
        lines = self.err.lines
        if lines[-1:] == [f"ended with {self.exit_code}"]:
            lines = lines[:-1] or lines
        return "".join(lines[-1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A line for a shell, and how it is to be run."""

    id: str
    cmd: str
    created: int = 0
    until: int = 0  # It is not started later.
    expected_duration: int = 0
    max_fails: int = 0
    fails: int = 0
    run: Run | None = None
    list: str = ""  # The name of the directory of the list that it was run in.

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises NotACommand, which names the member that is wrong."""
        try:
            return records.decode(cls, data)
        except (ValueError, RecursionError) as problem:
            raise NotACommand(f"invalid record of a command: {problem}") from None

    def encode(self) -> bytes:
        return records.encode(self)

    @property
    def first_id(self) -> str:
        """The id without the number of fails: the same of all duplicates."""
        stem, _, fails = self.id.rpartition("_")
        return stem if stem and fails == str(self.fails) else self.id

    @property
    def duplicate(self) -> Self:
        """To be run again after one more failure."""
        fails = self.fails + 1
        return replace(self, id=f"{self.first_id}_{fails}", fails=fails, run=None, list="")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandList:
    """Commands that one worker runs, one after the other."""

    name: str  # A number of seconds: when the oldest of its commands was created, or the next one that is free.
    commands: tuple[Command, ...] = ()
    worker: str = ""  # Once it is closed.
    started: int = 0
    finished: int = 0

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises NotACommand, which names the member that is wrong."""
        try:
            return records.decode(cls, data)
        except (ValueError, RecursionError) as problem:
            raise NotACommand(f"invalid list of commands: {problem}") from None

    def encode(self) -> bytes:
        return records.encode(self)

    @property
    def directory(self) -> str:
        """As TDF2 names it: with the worker and the times once it is running or closed."""
        claimed = [self.worker, str(self.started)] if self.worker else []
        return "_".join([self.name, *claimed, *([str(self.finished)] if self.finished else [])])

    @property
    def expected_duration(self) -> int:
        return sum(command.expected_duration for command in self.commands)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOutput:
    """What a running command has written so far: one task of the output group for each."""

    list: str  # The name of the list.
    task: int  # The id of the task that the list is.
    command: str  # The id of the command.
    at: int  # When this was written.
    done: int = 0  # So many commands of the list are finished.
    due: int = 0  # When it should end at the latest, as is expected of it. 0: it has only just begun.
    out: Output = Output()
    err: Output = Output()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises NotACommand, which names the member that is wrong."""
        try:
            return records.decode(cls, data)
        except (ValueError, RecursionError) as problem:
            raise NotACommand(f"invalid output of a command: {problem}") from None

    def encode(self) -> bytes:
        return records.encode(self)


def from_base64(text: str) -> bytes | None:
    """What the text stands for; None when it is no Base64."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def group_of(project: str, status: CommandStatus) -> str:
    """Where the tasks of this status lie. Lists that are running lie in `open`, leased."""
    return f"{PREFIX}{project}/{CommandStatus.OPEN if status is CommandStatus.RUNNING else status}"


def output_group(project: str) -> str:
    return f"{PREFIX}{project}/{OUTPUT}"


def place_of(group: str) -> tuple[str, str] | None:
    """The project and the end of the name, which is a status or `output`; None for a group without commands."""
    project, _, end = group.removeprefix(PREFIX).rpartition("/")
    ends = {*CommandStatus, OUTPUT} - {CommandStatus.RUNNING}
    return (project, end) if group.startswith(PREFIX) and not why_no_project(project) and end in ends else None


def why_no_project(name: str) -> str | None:
    """Why this can't be the name of a project; None when it can."""
    if not name or "/" in name or "\0" in name:
        return sentences.NO_SLASH
    return sentences.at_most(LONGEST_PROJECT, "characters", len(name)) if len(name) > LONGEST_PROJECT else None


def why_no_id(name: str) -> str | None:
    """Why this can't be the id of a command, which is the name of files too; None when it can."""
    if not ID.fullmatch(name):
        return "must consist of letters, digits and _ . -, and must not start with . or -"
    if len(NUMBER_OF_FAILS.sub("", name)) > LONGEST_ID:
        return f"must have at most {LONGEST_ID} characters before the number of fails"
    return None


def why_misplaced(status: CommandStatus, command: Command) -> str | None:
    """Why a command, as it is, can't be in this status; None when it can."""
    if status in BEFORE_A_RUN and command.run:
        return f"must not have a run: its status is {status}"
    if status not in BEFORE_A_RUN | MAYBE_TOO_LATE and not command.run:
        return f"must have a run: its status is {status}"
    return None


def new_command_task(project: str, command: Command, status: CommandStatus = CommandStatus.NEW) -> NewTask:
    """The task that a command is in this status."""
    labels = {COMMAND_LABEL: command.first_id, **({LIST_LABEL: command.list} if command.list else {})}
    return NewTask(group=group_of(project, status), data=command.encode(), labels=labels)


def new_list_task(project: str, made: CommandList, status: CommandStatus = CommandStatus.OPEN) -> NewTask:
    """The task that a list is in this status."""
    return NewTask(group=group_of(project, status), data=made.encode(), labels=list_labels(made))


def live_labels(live: LiveOutput, command: Command) -> Mapping[str, str]:
    return {COMMAND_LABEL: command.first_id, LIST_LABEL: live.list}


def list_labels(made: CommandList) -> Mapping[str, str]:
    sizes = {COUNT_LABEL: str(len(made.commands)), EXPECTED_LABEL: str(made.expected_duration)}
    return {LIST_LABEL: made.name, **sizes}


def settled(closed: CommandList, now: int) -> Sequence[tuple[CommandStatus, Command]]:
    """What becomes of the commands of a closed list, each with its status; duplicates are among them as new."""
    return [
        fate
        for command in closed.commands
        for fate in fates_of(replace(command, list=closed.directory if command.run else ""), now)
    ]


def fates_of(command: Command, now: int) -> Sequence[tuple[CommandStatus, Command]]:
    """What becomes of a command that a worker is done with, and the duplicate that takes its place."""
    if command.run is None:  # It was too late, or the worker had no time for it.
        return [(CommandStatus.FAILED_TIME if is_late(command, now) else CommandStatus.NEW, command)]
    if not command.run.failed:
        return [(CommandStatus.COMPLETED, command)]
    if command.fails + 1 >= command.max_fails:
        return [(CommandStatus.FAILED_COUNT, command)]
    if is_late(command, now):
        return [(CommandStatus.FAILED_TIME, command)]
    return [(CommandStatus.FAILED_ARCHIVE, command), (CommandStatus.NEW, command.duplicate)]


def is_late(command: Command, now: int) -> bool:
    """Whether it may no longer be started."""
    return now > command.until
