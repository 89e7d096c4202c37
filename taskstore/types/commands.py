"""Shell commands, their lists and their projects, as the server answers with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct, field

from .command_record import Command, CommandStatus, LiveOutput, Run
from .scalars import After, Int64, prepare

Place = Annotated[str, Meta(description="Where it stands among others: what follows comes `after`.")]
Since = Annotated[int, Meta(description="When it came to be there; milliseconds since the Epoch.")]


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
        Meta(description="Commands by status; open, running and closed are those that the lists hold."),
    ]
    lists: Annotated[Mapping[str, int], Meta(description="Lists by status.")]

    @property
    def is_empty(self) -> bool:
        return not any((*self.counts.values(), *self.lists.values()))


class CommandProjects(Struct, frozen=True, kw_only=True):
    """The projects with commands in groups that the token may touch, sorted by name."""

    projects: tuple[ProjectCounts, ...]


class RunningList(Struct, frozen=True, kw_only=True):
    """A list that a worker has claimed."""

    task: Annotated[Int64, Meta(description="The id that its task has now.")]
    name: str
    worker: Annotated[str, Meta(description="Empty: it was never heard.")]
    owner: Int64 = field(name="ownerid")
    commands: int
    done: Annotated[int, Meta(description="Of its commands, as far as the worker has told.")]
    started_ms: Annotated[int, Meta(description="When it was claimed, or its lease renewed; ms since the Epoch.")] = (
        field(name="started")
    )
    left_ms: Annotated[int, Meta(description="Until it is open again, in milliseconds.")] = field(name="left")


class Statistics(Struct, frozen=True, kw_only=True):
    """How long runs took. All are 0 when there are none."""

    count: int = 0
    mean_ms: float = 0
    p50_ms: int = 0
    p95_ms: int = 0
    max_ms: int = 0


class ProjectStatus(ProjectCounts, frozen=True, kw_only=True):
    """How far the commands of a project are."""

    running: Annotated[tuple[RunningList, ...], Meta(description="The lists that began first, at most 200.")]
    forecast_s: Annotated[
        float | None,
        Meta(
            description="Until all that is new, open or running is done, in seconds, as recent runs and the workers "
            "that were heard make believe. null: there is nothing to tell it from."
        ),
    ]
    durations: Annotated[Statistics, Meta(description="Of the newest finished runs, at most 1 000.")]
    fails: Annotated[int, Meta(description="How many of these runs failed.")]


class CommandSeen(Struct, frozen=True, kw_only=True):
    """A command where it is now."""

    id: str
    first_id: Annotated[str, Meta(description="The id without the number of fails: the same of all duplicates.")] = (
        field(name="first")
    )
    project: str
    status: CommandStatus
    task: Annotated[Int64, Meta(description="Of the task that it is now, or of the list that it lies in.")]
    cmd: Annotated[str, Meta(description="The line for the shell.")]
    created: Annotated[int, Meta(description="Seconds since the Epoch.")]
    until: Annotated[int, Meta(description="It is not started later; seconds since the Epoch.")]
    expected_duration: Annotated[int, Meta(description="Seconds.")]
    max_fails: int
    fails: int
    list: Annotated[str, Meta(description="The directory of the list that it was run in, as TDF2 names it.")]
    run: Annotated[Run | None, Meta(description="null: it was not run.")]
    is_whole: Annotated[bool, Meta(description="false: only the beginnings of its outputs are here.")] = field(
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
            description="Send it as `after` to go on; null: there are no more. A page of a search may be short, or "
            "empty, before that."
        ),
    ]


class CommandWhole(Struct, frozen=True, kw_only=True):
    """A command, whichever of its runs it is, and the runs before it."""

    newest: CommandSeen
    earlier: Annotated[tuple[CommandSeen, ...], Meta(description="The newest first, at most 50.")]
    tail: Annotated[
        LiveOutput | None, Meta(description="What it has written so far; null: it is not running, or wrote nothing.")
    ]


class ListSeen(Struct, frozen=True, kw_only=True):
    """A list without its commands."""

    task: Annotated[Int64, Meta(description="The id that its task has now.")]
    origin: Annotated[Int64, Meta(description="The first id of its task, by which it is found until it is done.")]
    name: str
    status: CommandStatus
    commands: Annotated[int, Meta(description="How many it has.")]
    expected_duration: Annotated[int, Meta(description="Of all its commands together, in seconds.")]
    worker: Annotated[str, Meta(description="Who runs it, or is done with it.")]
    left_ms: Annotated[int, Meta(description="While it is running: until it is open again, in milliseconds.")] = field(
        name="left"
    )
    done: Annotated[int, Meta(description="Commands that the worker is done with, as far as it has told.")]
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
    live: Annotated[tuple[LiveOutput, ...], Meta(description="What its running commands have written so far.")]


class ChangedCommands(Struct, frozen=True, kw_only=True):
    """How many were changed."""

    changed: int


class ImportedCommands(Struct, frozen=True, kw_only=True):
    """What an import has added."""

    commands: Annotated[int, Meta(description="How many, with those in lists.")] = 0
    lists: int = 0
    there_already: Annotated[
        int, Meta(description="Commands that an import before had added: they stay as they are.")
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
