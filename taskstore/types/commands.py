"""Shell commands, lists and projects in requests and responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct, field

from .command_record import Command, CommandStatus, LiveOutput, Run
from .progress import Progress
from .scalars import After, Int64, prepare

Place = Annotated[str, Meta(description="Its position in the sort order; send it as `after` to continue from here.")]
Since = Annotated[int, Meta(description="When it got this status; milliseconds since the Epoch.")]


class Submission(Struct, frozen=True, kw_only=True):
    """A shell command to submit. None means the server's default."""

    cmd: str
    expected_duration: int | None = None  # Seconds.
    until: int | None = None  # The latest time to start it; seconds since the Epoch.
    max_fails: int | None = None  # The number of failures after which it is given up.


class ProjectCounts(Struct, frozen=True, kw_only=True):
    """The counts of a project."""

    project: str
    counts: Annotated[
        Mapping[str, int],
        Meta(description="Commands by status; those in lists have the status of their list."),
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
            "active workers. null: unknown."
        ),
    ]
    durations: Annotated[
        Statistics, Meta(description="How long finished runs took; at most the newest 1 000 are considered.")
    ]
    fails: Annotated[int, Meta(description="The number of failures among them.")]


class CommandSeen(Struct, frozen=True, kw_only=True):
    """A command and its current status."""

    id: str
    first_id: Annotated[str, Meta(description="The id without the number of failures, which all duplicates share.")] = (
        field(name="first")
    )
    project: str
    status: CommandStatus
    task: Annotated[Int64, Meta(description="The id of its task, or of the task of its list.")]
    cmd: Annotated[str, Meta(description="The shell command line.")]
    created: Annotated[int, Meta(description="Seconds since the Epoch.")]
    until: Annotated[int, Meta(description="The latest time to start it; seconds since the Epoch.")]
    expected_duration: Annotated[int, Meta(description="Seconds.")]
    max_fails: int
    fails: int
    list: Annotated[str, Meta(description="The list in which it ran, as TDF2 names its directory.")]
    run: Annotated[Run | None, Meta(description="null: it has not run.")]
    is_whole: Annotated[bool, Meta(description="false: only the beginnings of its outputs are included.")] = field(
        name="whole"
    )
    at_ms: Since = field(name="at")
    place: Place
    progress: Annotated[
        Progress | None, Meta(description="As the running command wrote it; null if it did not. Only of one command.")
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
    expected_duration: Annotated[int, Meta(description="The total of all its commands, in seconds.")]
    worker: Annotated[str, Meta(description="The worker that runs it or has finished it.")]
    left_ms: Annotated[int, Meta(description="For a running list, milliseconds until its lease ends.")] = field(
        name="left"
    )
    done: Annotated[int, Meta(description="Finished commands, as last reported by the worker.")]
    at_ms: Since = field(name="at")
    place: Place
    progress: Annotated[
        Progress | None, Meta(description="As one of its commands last wrote it; null if none did.")
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


class ImportedCommands(Struct, frozen=True, kw_only=True):
    """The result of an import."""

    commands: Annotated[int, Meta(description="New commands, including those in lists.")] = 0
    lists: int = 0
    there_already: Annotated[
        int, Meta(description="Commands added by a previous import, which are left unchanged.")
    ] = 0

    def __add__(self, more: ImportedCommands) -> ImportedCommands:
        return ImportedCommands(
            commands=self.commands + more.commands,
            lists=self.lists + more.lists,
            there_already=self.there_already + more.there_already,
        )


prepare(
    CommandProjects,
    ProjectStatus,
    SubmittedCommands,
    ResultPage,
    CommandWhole,
    ListPage,
    ListWhole,
    ChangedCommands,
    ImportedCommands,
)
