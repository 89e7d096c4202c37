"""What is answered about commands, their lists and projects, as types (contract.md section 7)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from taskstore.types.command_record import OF_LISTS, Command, CommandStatus, LiveOutput, Run

from ..commands.looking import (
    CommandSeen,
    CommandWhole,
    ListPage,
    ListSeen,
    ListWhole,
    ProjectCounts,
    ProjectStatus,
    ResultPage,
    RunningList,
    Statistics,
)
from ..reading.listing import Cursor
from ..wire.scalars import Int64

After = Annotated[str | None, Meta(description="Send it as `after` to go on; null: there are no more.")]
Seconds = Annotated[int, Meta(description="Seconds since the Epoch.")]
At = Annotated[int, Meta(description="When it came to be there; milliseconds since the Epoch.")]
PlaceText = Annotated[str, Meta(description="Where it stands among others: what follows comes `after`.")]
Commands = Annotated[
    dict[str, int], Meta(description="Commands by status; open, running and closed are those that the lists hold.")
]


class ProjectAnswer(Struct, frozen=True, kw_only=True):
    """A project in numbers."""

    project: str
    counts: Commands
    lists: Annotated[dict[str, int], Meta(description="Lists by status.")]

    @classmethod
    def of(cls, seen: ProjectCounts) -> ProjectAnswer:
        return cls(project=seen.project, **numbers_of(seen))


def numbers_of(seen: ProjectCounts) -> dict[str, dict[str, int]]:
    """Of every status, also those in which there is nothing."""
    return {
        "counts": {status.value: seen.counts.get(status, 0) for status in CommandStatus},
        "lists": {status.value: seen.lists.get(status, 0) for status in CommandStatus if status in OF_LISTS},
    }


class ProjectsAnswer(Struct, frozen=True, kw_only=True):
    """The projects with commands in groups that the token may touch, sorted by name."""

    projects: tuple[ProjectAnswer, ...]


class RunningListAnswer(Struct, frozen=True, kw_only=True):
    """A list that a worker has claimed."""

    task: Annotated[Int64, Meta(description="The id that its task has now.")]
    name: str
    worker: Annotated[str, Meta(description="Empty: it was never heard.")]
    ownerid: Int64
    commands: int
    done: Annotated[int, Meta(description="Of its commands, as far as the worker has told.")]
    started: Annotated[int, Meta(description="When it was claimed, or its lease renewed; ms since the Epoch.")]
    left: Annotated[int, Meta(description="Until it is open again, in milliseconds.")]

    @classmethod
    def of(cls, seen: RunningList) -> RunningListAnswer:
        return cls(
            task=seen.task,
            name=seen.name,
            worker=seen.worker,
            ownerid=seen.owner,
            commands=seen.commands,
            done=seen.done,
            started=seen.started_ms,
            left=seen.left_ms,
        )


class StatusAnswer(Struct, frozen=True, kw_only=True):
    """How far the commands of a project are."""

    project: str
    counts: Commands
    lists: dict[str, int]
    running: Annotated[tuple[RunningListAnswer, ...], Meta(description="The lists that began first, at most 200.")]
    forecast_s: Annotated[
        float | None,
        Meta(
            description="Until all that is new, open or running is done, in seconds, as recent runs and the workers "
            "that were heard make believe. null: there is nothing to tell it from."
        ),
    ]
    durations: Annotated[Statistics, Meta(description="Of the newest finished runs, at most 1 000.")]
    fails: Annotated[int, Meta(description="How many of these runs failed.")]

    @classmethod
    def of(cls, seen: ProjectStatus) -> StatusAnswer:
        return cls(
            project=seen.project,
            **numbers_of(seen),
            running=tuple(map(RunningListAnswer.of, seen.running)),
            forecast_s=seen.forecast_s,
            durations=seen.durations,
            fails=seen.fails,
        )


class CommandAnswer(Struct, frozen=True, kw_only=True):
    """A command."""

    id: str
    first: Annotated[str, Meta(description="The id without the number of fails: the same of all duplicates.")]
    project: str
    status: CommandStatus
    task: Annotated[Int64, Meta(description="Of the task that it is now, or of the list that it lies in.")]
    cmd: Annotated[str, Meta(description="The line for the shell.")]
    created: Seconds
    until: Annotated[int, Meta(description="It is not started later; seconds since the Epoch.")]
    expected_duration: Annotated[int, Meta(description="Seconds.")]
    max_fails: int
    fails: int
    list: Annotated[str, Meta(description="The directory of the list that it was run in, as TDF2 names it.")]
    run: Annotated[Run | None, Meta(description="null: it was not run.")]
    whole: Annotated[bool, Meta(description="false: only the beginnings of its outputs are here.")]
    at: At
    place: PlaceText

    @classmethod
    def of(cls, seen: CommandSeen) -> CommandAnswer:
        command = seen.command
        return cls(
            id=command.id,
            first=command.first_id,
            project=seen.project,
            status=seen.status,
            task=seen.task,
            cmd=command.cmd,
            created=command.created,
            until=command.until,
            expected_duration=command.expected_duration,
            max_fails=command.max_fails,
            fails=command.fails,
            list=command.list,
            run=command.run,
            whole=seen.is_whole,
            at=seen.at_ms,
            place=str(seen.place),
        )


class SubmittedAnswer(Struct, frozen=True, kw_only=True):
    """The commands that were added, in the order of the request."""

    commands: tuple[CommandAnswer, ...]


class ResultsAnswer(Struct, frozen=True, kw_only=True):
    """Some commands, the newest first."""

    commands: tuple[CommandAnswer, ...]
    after: Annotated[
        str | None,
        Meta(
            description="Send it as `after` to go on; null: there are no more. A page of a search may be short, or "
            "empty, before that."
        ),
    ]

    @classmethod
    def of(cls, page: ResultPage) -> ResultsAnswer:
        return cls(commands=tuple(map(CommandAnswer.of, page.results)), after=text_of(page.after))


class OneCommandAnswer(Struct, frozen=True, kw_only=True):
    """A command, whichever of its runs it is, and the runs before it."""

    newest: CommandAnswer
    earlier: Annotated[tuple[CommandAnswer, ...], Meta(description="The newest first, at most 50.")]
    tail: Annotated[
        LiveOutput | None, Meta(description="What it has written so far; null: it is not running, or wrote nothing.")
    ]

    @classmethod
    def of(cls, whole: CommandWhole) -> OneCommandAnswer:
        earlier = tuple(map(CommandAnswer.of, whole.earlier))
        return cls(newest=CommandAnswer.of(whole.newest), earlier=earlier, tail=whole.tail)


class ListAnswer(Struct, frozen=True, kw_only=True):
    """A list."""

    task: Annotated[Int64, Meta(description="The id that its task has now.")]
    origin: Annotated[Int64, Meta(description="The first id of its task, by which it is found until it is done.")]
    name: str
    status: CommandStatus
    commands: Annotated[int, Meta(description="How many it has.")]
    expected_duration: Annotated[int, Meta(description="Of all its commands together, in seconds.")]
    worker: Annotated[str, Meta(description="Who runs it, or is done with it.")]
    left: Annotated[int, Meta(description="While it is running: until it is open again, in milliseconds.")]
    done: Annotated[int, Meta(description="Commands that the worker is done with, as far as it has told.")]
    at: At
    place: PlaceText

    @classmethod
    def of(cls, seen: ListSeen) -> ListAnswer:
        return cls(
            task=seen.task,
            origin=seen.origin,
            name=seen.name,
            status=seen.status,
            commands=seen.commands,
            expected_duration=seen.expected_s,
            worker=seen.worker,
            left=seen.left_ms,
            done=seen.done,
            at=seen.at_ms,
            place=str(seen.place),
        )


class ListsAnswer(Struct, frozen=True, kw_only=True):
    """Some lists: those that are running first, then the newest first."""

    lists: tuple[ListAnswer, ...]
    after: After

    @classmethod
    def of(cls, page: ListPage) -> ListsAnswer:
        return cls(lists=tuple(map(ListAnswer.of, page.lists)), after=text_of(page.after))


class OneListAnswer(Struct, frozen=True, kw_only=True):
    """A list, and what is in it."""

    project: str
    list: ListAnswer
    commands: tuple[Command, ...]
    live: Annotated[tuple[LiveOutput, ...], Meta(description="What its running commands have written so far.")]

    @classmethod
    def of(cls, whole: ListWhole) -> OneListAnswer:
        seen = ListAnswer.of(whole.seen)
        return cls(project=whole.project, list=seen, commands=whole.list.commands, live=tuple(whole.live))


class ChangedAnswer(Struct, frozen=True, kw_only=True):
    """How many were changed."""

    changed: int


def text_of(place: Cursor | None) -> str | None:
    return str(place) if place else None
