"""Shell commands, their lists and their projects, as the server answers with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct, field

from .command_record import Command, CommandStatus, LiveOutput, Run
from .scalars import After, Int64, prepare

Place = Annotated[str, Meta(description="The position in the list, for `after`.")]
Since = Annotated[int, Meta(description="When it reached this status, in milliseconds since the Epoch.")]


class Submission(Struct, frozen=True, kw_only=True):
    """A line for a shell, as somebody submits it. None: as the server has it by default."""

    cmd: str
    expected_duration: int | None = None  # Seconds.
    until: int | None = None  # Seconds since the Epoch: it is not started later.
    max_fails: int | None = None  # It is given up after so many.


class ProjectCounts(Struct, frozen=True, kw_only=True):
    """A project in numbers."""

    project: str
    counts: Annotated[
        Mapping[str, int],
        Meta(description="The number of commands by status; open, running and closed commands are in lists."),
    ]
    lists: Annotated[Mapping[str, int], Meta(description="The number of lists by status.")]

    @property
    def is_empty(self) -> bool:
        return not any((*self.counts.values(), *self.lists.values()))


class CommandProjects(Struct, frozen=True, kw_only=True):
    """The projects with commands in groups that the token may touch, sorted by name."""

    projects: tuple[ProjectCounts, ...]


class RunningList(Struct, frozen=True, kw_only=True):
    """A list that a worker has claimed."""

    task: Annotated[Int64, Meta(description="The current id of its task.")]
    name: str
    worker: Annotated[str, Meta(description="Empty if it never reported.")]
    owner: Int64 = field(name="ownerid")
    commands: int
    done: Annotated[int, Meta(description="The number of finished commands that the worker has reported.")]
    started_ms: Annotated[
        int, Meta(description="When it was claimed or its lease renewed, in milliseconds since the Epoch.")
    ] = field(name="started")
    left_ms: Annotated[int, Meta(description="Milliseconds until the list is open again.")] = field(name="left")


class Statistics(Struct, frozen=True, kw_only=True):
    """How long runs took. All are 0 when there are none."""

    count: int = 0
    mean_ms: float = 0
    p50_ms: int = 0
    p95_ms: int = 0
    max_ms: int = 0


class ProjectStatus(ProjectCounts, frozen=True, kw_only=True):
    """How far the commands of a project are."""

    running: Annotated[tuple[RunningList, ...], Meta(description="The running lists that started first, at most 200.")]
    forecast_s: Annotated[
        float | None,
        Meta(
            description="Estimated seconds until all new, open and running commands are done, from recent runs and "
            "active workers. null if there is not enough data."
        ),
    ]
    durations: Annotated[
        Statistics, Meta(description="The number of finished runs considered, at most the newest 1 000.")
    ]
    fails: Annotated[int, Meta(description="The number of failures among them.")]


class CommandSeen(Struct, frozen=True, kw_only=True):
    """A command where it is now."""

    id: str
    first_id: Annotated[str, Meta(description="The id without the number of failures, shared by all duplicates.")] = (
        field(name="first")
    )
    project: str
    status: CommandStatus
    task: Annotated[Int64, Meta(description="The id of its task, or of the list that it is in.")]
    cmd: Annotated[str, Meta(description="The shell command line.")]
    created: Annotated[int, Meta(description="Seconds since the Epoch.")]
    until: Annotated[int, Meta(description="The latest start, in seconds since the Epoch.")]
    expected_duration: Annotated[int, Meta(description="Seconds.")]
    max_fails: int
    fails: int
    list: Annotated[str, Meta(description="TDF2's name of the directory of its list.")]
    run: Annotated[Run | None, Meta(description="null before a run.")]
    is_whole: Annotated[bool, Meta(description="Whether the outputs are complete, not only their beginnings.")] = field(
        name="whole"
    )
    at_ms: Since = field(name="at")
    place: Place


class SubmittedCommands(Struct, frozen=True, kw_only=True):
    """The commands that were added, in the order of the request."""

    commands: tuple[CommandSeen, ...]


class ResultPage(Struct, frozen=True, kw_only=True):
    """Some commands, the newest first."""

    commands: tuple[CommandSeen, ...]
    after: Annotated[
        str | None,
        Meta(
            description="Send it as `after` for the next page; null on the last page. A page of a search may be "
            "short or empty before that."
        ),
    ]


class CommandWhole(Struct, frozen=True, kw_only=True):
    """A command, whichever of its runs it is, and the runs before it."""

    newest: CommandSeen
    earlier: Annotated[tuple[CommandSeen, ...], Meta(description="Newest first, at most 50.")]
    tail: Annotated[
        LiveOutput | None, Meta(description="Its output so far; null if it is not running or wrote nothing.")
    ]


class ListSeen(Struct, frozen=True, kw_only=True):
    """A list without its commands."""

    task: Annotated[Int64, Meta(description="The current id of its task.")]
    origin: Annotated[Int64, Meta(description="The first id of its task, under which it is found until it is closed.")]
    name: str
    status: CommandStatus
    commands: Annotated[int, Meta(description="The number of its commands.")]
    expected_duration: Annotated[int, Meta(description="The sum over its commands, in seconds.")]
    worker: Annotated[str, Meta(description="The worker that runs or ran it.")]
    left_ms: Annotated[int, Meta(description="While it is running: milliseconds until it is open again.")] = field(
        name="left"
    )
    done: Annotated[int, Meta(description="The number of finished commands that the worker has reported.")]
    at_ms: Since = field(name="at")
    place: Place


class ListPage(Struct, frozen=True, kw_only=True):
    """Some lists: those that are running first, then the newest first."""

    lists: tuple[ListSeen, ...]
    after: After


class ListWhole(Struct, frozen=True, kw_only=True):
    """A list, and what is in it."""

    project: str
    list: ListSeen
    commands: tuple[Command, ...]
    live: Annotated[tuple[LiveOutput, ...], Meta(description="The output of its running commands so far.")]


class ChangedCommands(Struct, frozen=True, kw_only=True):
    """How many were changed."""

    changed: int


class ImportedCommands(Struct, frozen=True, kw_only=True):
    """What an import has added."""

    commands: Annotated[int, Meta(description="The number of added commands, including those in lists.")] = 0
    lists: int = 0
    there_already: Annotated[
        int, Meta(description="The number of commands that a previous import added; they stay unchanged.")
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
