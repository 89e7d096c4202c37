"""Shell commands, lists and projects in requests and responses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Self

from msgspec import Meta, Struct, field

from . import sentences
from .checks import wrong_members
from .command_record import (
    FINAL,
    LONGEST_CMD,
    LONGEST_PROJECT,
    OF_LISTS,
    Command,
    CommandStatus,
    LiveOutput,
    Run,
    line_of,
    members_of,
)
from .progress import Progress
from .requests import Asked, AskedOperation
from .scalars import LABEL_LENGTH, LATEST_MS, ONE_PART, After, Int64, Key, Limits, NextAfter, PageSize, Reason, SomeIds
from .sentences import is_utf8, text
from .tasks import Problem

MOST_COMMANDS = 1_000  # Of a submission.
MOST_IDS = 10_000
MOST_FAILS = 1_000
LONGEST_DURATION = 366 * 24 * 3_600  # Seconds.


def some_of(name: str, statuses: Collection[CommandStatus]) -> Any:
    return StrEnum(name, {each.name: each.value for each in sorted(statuses)}, module=__name__)


Duration = Annotated[int, Meta(ge=1, le=LONGEST_DURATION)]
Seconds = Annotated[int, Meta(ge=1, le=LATEST_MS // 1_000)]
Fails = Annotated[int, Meta(ge=1, le=MOST_FAILS)]
ProjectName = Annotated[
    str, Meta(max_length=LONGEST_PROJECT, pattern=ONE_PART, description="The project's name, without `/`.")
]
ListId = Annotated[Int64, Meta(description="The id of the list's task, or the first id that it had.")]
# Some of the statuses, for requests about lists, about finished commands, and about those that can be run again.
if TYPE_CHECKING:
    ListStatus = CommandStatus
    ResultStatus = CommandStatus
    FinalStatus = CommandStatus
else:
    ListStatus = some_of("ListStatus", OF_LISTS)
    ResultStatus = some_of("ResultStatus", set(CommandStatus) - OF_LISTS)
    FinalStatus = some_of("FinalStatus", FINAL)

Place = Annotated[str, Meta(description="Its position in the sort order; send it as `after` to continue from here.")]
Since = Annotated[int, Meta(description="When it got this status; milliseconds since the Epoch.")]


class Submission(Asked, frozen=True, kw_only=True):
    """A shell command to submit."""

    cmd: Annotated[str, Meta(description="One line, not empty, at most 64 KiB.")] = ""
    cmd_base64: Annotated[
        str, Meta(description="In place of `cmd`: Base64 of the line, which need not be UTF-8. See `cmd_base64` below.")
    ] = ""
    expected_duration: Annotated[Duration, Meta(description="Seconds; 60 if absent.")] | None = None
    until: (
        Annotated[Seconds, Meta(description="The latest start, in seconds since the Epoch; 7 days from now if absent.")]
        | None
    ) = None
    max_fails: (
        Annotated[Fails, Meta(description="The number of failures after which the command is given up; 3 if absent.")]
        | None
    ) = None

    @classmethod
    def of(cls, line: str | bytes, **how: Any) -> Self:
        """Return the command for a line: bytes, or text in which bytes are escaped as in `sys.argv`."""
        try:
            content = line if isinstance(line, bytes) else line.encode(errors="surrogateescape")
        except UnicodeEncodeError:
            return cls(cmd=str(line), **how)  # The store says what is wrong with it.
        return cls(**members_of(content), **how)

    @property
    def line(self) -> bytes | None:
        """The command line; None if its two members are of different lines."""
        return line_of(self.cmd, self.cmd_base64)


class ProjectCounts(Struct, frozen=True, kw_only=True):
    """The counts of a project."""

    project: str
    counts: Annotated[
        Mapping[str, int], Meta(description="Commands by status; those in lists have the status of their list.")
    ]
    lists: Annotated[Mapping[str, int], Meta(description="The number of lists by status.")]

    @property
    def is_empty(self) -> bool:
        return not any((*self.counts.values(), *self.lists.values()))


class CommandProjects(Struct, frozen=True, kw_only=True):
    """The projects with commands in groups that the token may access, sorted by name."""

    projects: tuple[ProjectCounts, ...]


class RunningList(Struct, frozen=True, kw_only=True):
    """A list that a worker has claimed."""

    task: Annotated[Int64, Meta(description="The current id of its task.")]
    name: str
    worker: Annotated[str, Meta(description="Empty if it has not sent a heartbeat.")]
    owner: Int64 = field(name="ownerid")
    commands: int
    done: Annotated[int, Meta(description="Finished commands, as last reported by the worker.")]
    started_ms: Annotated[int, Meta(description="When it was claimed, or its lease renewed; ms since the Epoch.")] = (
        field(name="started")
    )
    left_ms: Annotated[int, Meta(description="Milliseconds until its lease ends.")] = field(name="left")


class Statistics(Struct, frozen=True, kw_only=True):
    """The durations of runs. All values are 0 if there are no runs."""

    count: int = 0
    mean_ms: float = 0
    p50_ms: int = 0
    p95_ms: int = 0
    max_ms: int = 0


class ProjectStatus(ProjectCounts, frozen=True, kw_only=True):
    """The progress of a project."""

    running: Annotated[tuple[RunningList, ...], Meta(description="The lists that started first, at most 200.")]
    forecast_s: Annotated[
        float | None,
        Meta(
            description="Estimated seconds until all new, open and running commands are done, from recent runs and "
            "active workers; null if unknown."
        ),
    ]
    durations: Annotated[
        Statistics, Meta(description="How long finished runs took; at most the newest 1 000 are considered.")
    ]
    fails: Annotated[int, Meta(description="The number of failures among them.")]
    cut: Annotated[int, Meta(description="How many of them wrote more output than their worker kept.")]


class CommandSeen(Struct, frozen=True, kw_only=True):
    """A command and its current status."""

    id: str
    first_id: Annotated[str, Meta(description="The id without the number of failures, which all duplicates share.")] = (
        field(name="first")
    )
    project: str
    status: CommandStatus
    task: Annotated[Int64, Meta(description="The id of its task, or of the task of its list.")]
    cmd: Annotated[str, Meta(description="The shell command line; bytes that are not UTF-8 are shown as `\\xe9`.")]
    created: Annotated[int, Meta(description="Seconds since the Epoch.")]
    until: Annotated[int, Meta(description="The latest time to start it; seconds since the Epoch.")]
    expected_duration: Annotated[int, Meta(description="Seconds.")]
    max_fails: int
    fails: int
    list: Annotated[str, Meta(description="The list in which it ran, as TDF2 names its directory.")]
    run: Annotated[Run | None, Meta(description="null if it has not run.")]
    is_whole: Annotated[bool, Meta(description="false if only the beginnings of its outputs are included.")] = field(
        name="whole"
    )
    at_ms: Since = field(name="at")
    place: Place
    excused: Annotated[int, Meta(description="Attempts that were not counted, because of the worker.")] = 0
    cmd_base64: Annotated[str, Meta(description="Base64 of the exact line if it is not UTF-8, otherwise empty.")] = ""
    batch: Annotated[Int64, Meta(description="The batch that it belongs to; 0 if none.")] = 0
    progress: Annotated[
        Progress | None,
        Meta(description="The progress that the command reported; null if none. Only for a single command."),
    ] = None


class SubmittedCommands(Struct, frozen=True, kw_only=True):
    """The new commands, in the order of the request."""

    commands: tuple[CommandSeen, ...]


class ResultPage(Struct, frozen=True, kw_only=True):
    """A page of commands, newest first."""

    commands: tuple[CommandSeen, ...]
    after: Annotated[
        str | None,
        Meta(
            description="Send it as `after` for the next page; null on the last page. Other pages of a search may be "
            "short or empty."
        ),
    ]


class CommandWhole(Struct, frozen=True, kw_only=True):
    """A command with its previous runs."""

    newest: CommandSeen
    earlier: Annotated[tuple[CommandSeen, ...], Meta(description="Newest first, at most 50.")]
    tail: Annotated[
        LiveOutput | None, Meta(description="Its output so far; null if it is not running or wrote nothing.")
    ]


class ListSeen(Struct, frozen=True, kw_only=True):
    """A list without its commands."""

    task: Annotated[Int64, Meta(description="The current id of its task.")]
    origin: Annotated[
        Int64, Meta(description="The first id of its task. It identifies the list until the list has finished.")
    ]
    name: str
    status: CommandStatus
    commands: Annotated[int, Meta(description="The number of commands.")]
    expected_duration: Annotated[int, Meta(description="The total of the commands that are left in it, in seconds.")]
    worker: Annotated[str, Meta(description="The worker that runs it or has finished it.")]
    left_ms: Annotated[int, Meta(description="For a running list, milliseconds until its lease ends.")] = field(
        name="left"
    )
    done: Annotated[int, Meta(description="Finished commands, as last reported by the worker.")]
    at_ms: Since = field(name="at")
    place: Place
    error: Annotated[str, Meta(description="Why the last worker could not run it; empty if it could.")] = ""
    progress: Annotated[
        Progress | None, Meta(description="The latest progress that one of its commands reported; null if none.")
    ] = None


class ListPage(Struct, frozen=True, kw_only=True):
    """A page of lists: running ones first, then newest first."""

    lists: tuple[ListSeen, ...]
    after: After


class ListWhole(Struct, frozen=True, kw_only=True):
    """A list with its commands."""

    project: str
    list: ListSeen
    commands: tuple[Command, ...]
    live: Annotated[tuple[LiveOutput, ...], Meta(description="The output so far of its running commands.")]


class ChangedCommands(Struct, frozen=True, kw_only=True):
    """The number of changed commands and lists."""

    changed: int


class ProjectRequest(Asked, frozen=True):
    """A project of commands."""

    project: ProjectName


class SubmitRequest(AskedOperation, frozen=True, kw_only=True):
    """Command lines for the workers of a project, in the order in which they are to be started."""

    project: ProjectName
    commands: Annotated[tuple[Submission, ...], Meta(description=f"At most {MOST_COMMANDS}.")]
    stashed: Annotated[
        bool, Meta(description="Stash the commands: workers do not run them until they are unstashed.")
    ] = False
    then: Annotated[
        tuple[Submission, ...],
        Meta(description="Commands to submit once when these have succeeded: these are a new batch."),
    ] = ()
    hold: Annotated[bool, Meta(description="Keep the new batch open until it is released.")] = False
    batch: Annotated[Int64, Meta(description="The id of an open batch for the commands to join.")] = 0
    after: Annotated[
        Int64, Meta(description="The id of a batch: submit the commands when it has closed, now if it has.")
    ] = 0
    clientid: Int64 = 0
    key: Key = ""

    @property
    def status(self) -> CommandStatus:
        return CommandStatus.NEW_STASHED if self.stashed else CommandStatus.NEW

    def problems(self, limits: Limits) -> Iterator[Problem]:
        yield from wrong_submissions(self.commands)
        yield from wrong_submissions(self.then, "then", least=0)
        if self.batch and (self.then or self.hold):
            yield "batch", sentences.not_together("then", "hold")
        if self.after and (self.then or self.hold or self.batch):
            yield "after", sentences.not_together("then", "hold", "batch")


class ListsRequest(Asked, frozen=True):
    """Which lists to show."""

    project: ProjectName
    status: Annotated[ListStatus, Meta(description="Only lists with this status.")] | None = None
    after: NextAfter | None = None
    limit: PageSize = 50


class ListRequest(Asked, frozen=True):
    """A list of commands."""

    project: ProjectName
    task: ListId


class ReopenRequest(Asked, frozen=True):
    """A list to take from its worker."""

    project: ProjectName
    task: ListId
    reason: Reason = ""


class ResultsRequest(Asked, frozen=True):
    """Which finished commands to show."""

    project: ProjectName
    status: Annotated[ResultStatus, Meta(description="Only commands with this status.")] | None = None
    text: Annotated[
        str, Meta(description="Only commands with this text in the id, the line, the worker or the outputs.")
    ] = ""
    after: NextAfter | None = None
    limit: PageSize = 50


class CommandRequest(Asked, frozen=True):
    """A command."""

    project: ProjectName
    id: Annotated[str, Meta(description="The command's id.")]


class IdsRequest(Asked, frozen=True):
    """The commands or lists to change."""

    project: ProjectName
    ids: Annotated[SomeIds, Meta(description="Ids of tasks; all eligible ones if absent.")] | None = None
    reason: Reason = ""

    def problems(self, limits: Limits) -> Iterator[Problem]:
        if self.ids is not None and not 1 <= len(self.ids) <= MOST_IDS:
            yield "ids", f"must have between 1 and {MOST_IDS} ids, not {len(self.ids)}"


class CancelCommandsRequest(Asked, frozen=True):
    """The commands to cancel."""

    project: ProjectName
    commands: Annotated[tuple[str, ...], Meta(description="Their ids, with or without the number of failures.")]
    reason: Reason = ""

    def problems(self, limits: Limits) -> Iterator[Problem]:
        if not 1 <= len(self.commands) <= MOST_IDS:
            yield "commands", f"must have between 1 and {MOST_IDS} ids, not {len(self.commands)}"
        for place, command_id in enumerate(self.commands):
            yield from text(f"commands[{place}]", command_id, LABEL_LENGTH)


class RetryRequest(IdsRequest, frozen=True):
    """The finished commands to run again. Without `ids` and `status`, those in `failed_count` and `failed_time`."""

    status: Annotated[FinalStatus, Meta(description="Only commands with this status.")] | None = None


def wrong_submissions(
    submissions: Sequence[Submission], field: str = "commands", *, least: int = 1
) -> Iterator[Problem]:
    """Yield the errors of the submissions, by the path of the field."""
    if not least <= len(submissions) <= MOST_COMMANDS:
        yield field, f"must have between {least} and {MOST_COMMANDS} commands, not {len(submissions)}"
    for place, asked in enumerate(submissions[:MOST_COMMANDS]):
        yield from ((f"{field}[{place}].{name}", why) for name, why in _wrong_line(asked))
        # A program may have made them.
        for name, why in wrong_members(asked, "expected_duration", "until", "max_fails"):
            yield f"{field}[{place}].{name}", why


def _wrong_line(asked: Submission) -> Iterator[Problem]:
    """Yield the reasons why this can't be the line of a command, by the member."""
    name = "cmd_base64" if asked.cmd_base64 else "cmd"
    if not is_utf8(asked.cmd):
        yield "cmd", sentences.VALID_UTF8
    elif asked.cmd_base64 and asked.line is None:
        yield name, "must be Base64 of a command line; leave out cmd, or give the same line"
    elif not (line := asked.line or b"").strip() or any(sign in line for sign in b"\n\r\0"):
        yield name, "must be one command line, not empty and without NUL"
    elif len(line) > LONGEST_CMD:
        yield name, sentences.at_most(LONGEST_CMD, "bytes", len(line))
