"""Commands, their lists and their projects, as whoever looks at them sees them.

Times that end in `_ms` are milliseconds since the Epoch, or so long; those that end in `_s` are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taskstore.types.command_record import Command, CommandList, CommandStatus, LiveOutput

from ..reading.listing import Cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectCounts:
    """A project in numbers. A status in which there is nothing has none."""

    project: str
    counts: Mapping[CommandStatus, int]  # Commands: what is open, running or closed are those that the lists hold.
    lists: Mapping[CommandStatus, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningList:
    """A list that a worker has claimed."""

    task: int
    name: str
    worker: str  # Empty: it was never heard.
    owner: int
    commands: int
    done: int  # Of its commands, as far as the worker has told.
    rest_ms: int  # What the one that runs is expected to take still; 0 also when the worker has not told.
    started_ms: int
    left_ms: int  # Until it is open again, unless the worker is done with it or renews its lease.


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """How long runs took. All are 0 when there are none."""

    count: int = 0
    mean_ms: float = 0
    p50_ms: int = 0
    p95_ms: int = 0
    max_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectStatus(ProjectCounts):
    """How far the commands of a project are."""

    running: Sequence[RunningList]  # Those that began first, at most SHOWN.
    forecast_s: float | None  # Until all that is new, open or running is done. None: there is nothing to tell it from.
    durations: Statistics  # Of the newest runs that are finished, at most SAMPLE.
    fails: int  # How many of them failed.


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSeen:
    """A list without its commands."""

    task: int  # The id that its task has now.
    origin: int  # The first id of its task, by which it is found until it is done.
    name: str
    status: CommandStatus  # Open, open_stashed, running or closed.
    commands: int
    expected_s: int  # How long its commands are expected to take together.
    worker: str = ""  # Who runs it, or is done with it.
    left_ms: int = 0  # While it is running: until it is open again.
    done: int = 0  # Commands that the worker is done with, as far as it has told.
    at_ms: int  # When it came to be what it is: made, claimed or closed.
    place: Cursor  # Where it stands among others.


@dataclass(frozen=True, slots=True, kw_only=True)
class ListWhole:
    """A list, and what is in it."""

    project: str
    seen: ListSeen
    list: CommandList
    live: Sequence[LiveOutput] = ()  # What its running commands have written so far.


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSeen:
    """A command where it is now."""

    task: int  # Its task, or that of the list that it lies in.
    project: str
    status: CommandStatus
    command: Command
    is_whole: bool = True  # False: only the beginnings of its outputs are here, and `missing` counts all the rest.
    at_ms: int  # When it came to be there.
    place: Cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandWhole:
    """A command, whichever of its runs it is, and the runs before it."""

    newest: CommandSeen
    earlier: Sequence[CommandSeen]  # The newest first.
    tail: LiveOutput | None  # What it has written so far; None: it is not running, or has not written yet.


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage:
    lists: Sequence[ListSeen]
    after: Cursor | None  # Where the next page begins; None: there is none.
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPage:
    """Results, the newest first."""

    results: Sequence[CommandSeen]
    # Where the next page begins; None: there is none. A page of a search may be short before that.
    after: Cursor | None
    at_ms: int
