"""A list that a worker is running, its time limits, and the commits that end it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from ..types.command_record import (
    Command,
    CommandList,
    CommandStatus,
    LiveOutput,
    Output,
    Run,
    group_of,
    is_late,
    list_labels,
)
from ..types.tasks import Change, NewTask
from ..worker.children import Child, News
from ..worker.handlers import Result
from ..worker.lease_keeper import Held

if TYPE_CHECKING:
    from ..types.tasks import Task

MARGIN_S = 10.0  # A lease exceeds the longest time limit by this, to kill the command and report it.
MOST_DOUBLINGS = 6
LONGEST_LEASE_S = 10.0 * 366 * 86_400  # Imported commands may have expected durations beyond the range of a lease.

LEFT_BYTES = 4 * 2**10  # Kept of each output when the store rejects the whole.


@dataclass(frozen=True, slots=True)
class Clock:
    """The store's time, learned from a claim, because this machine's clock may be days off."""

    ahead_s: float  # Ahead of the monotonic clock.

    @classmethod
    def of_claim(cls, task: Task, duration_ms: int) -> Self:
        """Return the clock according to a task that was just claimed for that long."""
        return cls((task.available_at_ms - duration_ms) / 1_000 - time.monotonic())

    def now_s(self) -> int:
        """Return whole seconds since the Epoch."""
        return int(time.monotonic() + self.ahead_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The time limits of commands and leases of lists, derived from expected durations."""

    timeout_factor: float = 2
    least_timeout_s: float = 30
    lease_factor: float = 2
    least_lease_s: float = 60

    def limit_s(self, command: Command) -> float:
        return max(self.least_timeout_s, self.timeout_factor * command.expected_duration)

    def lease_s(self, made: CommandList, claims: int) -> float:
        """Return the lease of a list. It doubles with each claim, because the previous leases were too short."""
        longest_s = max(map(self.limit_s, made.commands), default=0.0)
        once_s = max(self.least_lease_s, self.lease_factor * made.expected_duration, longest_s + MARGIN_S)
        return min(once_s * float(2 ** min(max(claims - 1, 0), MOST_DOUBLINGS)), LONGEST_LEASE_S)


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """A list in progress. One thread handles its runner's messages; another one publishes its live output."""

    key: int  # The id with which its task was claimed.
    project: str
    commands: CommandList
    worker: str
    held: Held
    clock: Clock
    started: int  # By the store's clock.
    lease_s: float
    lease_ends_at: float  # By the monotonic clock; math.inf: it is renewed.
    child: Child | None = None
    runs: dict[int, Run] = field(default_factory=dict)  # By the position of the command in the list.
    begun: int = 0  # When the running command was started.
    news: News | None = None  # The latest output of the running command.
    lost: threading.Event = field(default_factory=threading.Event)

    @property
    def task(self) -> Task:
        return self.held.task

    @property
    def is_renewed(self) -> bool:
        return self.lease_ends_at == math.inf

    def lease_left_s(self) -> float:
        return self.lease_ends_at - time.monotonic()

    def running_place(self) -> int | None:
        """Return the position of the running or next command; None once all have run."""
        now = self.clock.now_s()
        places = (
            place
            for place, command in enumerate(self.commands.commands)
            if place not in self.runs and place > max(self.runs, default=-1) and not is_late(command, now)
        )
        return next(places, None)

    def finished(self) -> Finished:
        return Finished(
            project=self.project,
            commands=self.commands,
            runs=self.runs,
            worker=self.worker,
            started=self.started,
            finished=self.clock.now_s(),
        )

    def live(self) -> tuple[Command, LiveOutput] | None:
        """Return the running command and its live output; None once all have run."""
        place = self.running_place()
        if place is None:
            return None
        news = self.news  # None for a command that has just started.
        command = self.commands.commands[place]
        shown = LiveOutput(
            list=self.commands.name,
            task=self.task.id,
            command=command.id,
            at=self.clock.now_s(),
            done=len(self.runs),
            due=self.begun + command.expected_duration if news else 0,
            out=news.out if news else Output(),
            err=news.err if news else Output(),
        )
        return command, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A list whose work has ended, with the runs of all or some of its commands."""

    project: str
    commands: CommandList
    runs: Mapping[int, Run]  # By the position of the command in the list.
    worker: str
    started: int
    finished: int
    is_shortened: bool = False

    def closed(self) -> CommandList:
        """Return the list with the commands that have a run or are too late for one."""
        done = [replace(command, run=self.runs.get(place)) for place, command in self._split(is_done=True)]
        return replace(
            self.commands,
            commands=tuple(done),
            worker=self.worker,
            started=self.started,
            finished=self.finished,
        )

    def rest(self) -> CommandList:
        """Return the list with the commands that remain for other workers."""
        return replace(self.commands, commands=tuple(command for _, command in self._split(is_done=False)))

    def without_most_output(self) -> Finished:
        """Return it with only the ends of the outputs, for a store that rejects the whole as too large."""
        runs = {place: replace(run, out=_end_of(run.out), err=_end_of(run.err)) for place, run in self.runs.items()}
        return replace(self, runs=runs, is_shortened=True)

    def _split(self, *, is_done: bool) -> Sequence[tuple[int, Command]]:
        return [
            (place, command)
            for place, command in enumerate(self.commands.commands)
            if (place in self.runs or is_late(command, self.finished)) is is_done
        ]


def closed(task: Task, finished: Finished, others: Collection[int]) -> Result:
    """Return the commit that closes a list and reopens the commands that were not started.

    `others`: ids of further tasks to delete with it.
    """
    done, rest = finished.closed(), finished.rest()
    if not done.commands:
        return given_back(task, others)
    parts = [(task.id, CommandStatus.CLOSED, done)] + ([(0, CommandStatus.OPEN, rest)] if rest.commands else [])
    adds = [
        NewTask.successor_of(
            task,
            id=id,
            group=group_of(finished.project, status),
            data=part.encode(),
            data_type="",
            error="",
            labels=list_labels(part),
        )
        for id, status, part in parts
    ]
    return Result(adds=adds, deletes=[task.id, *others])


def given_back(task: Task, others: Collection[int] = ()) -> Result:
    """Return the commit that reopens a list unchanged."""
    return Result(updates=[Change(id=task.id, release=True)], deletes=[*others])


def laid_aside(task: Task, project: str, why: str) -> Result:
    """Return the commit that parks a task that is not a list, so that no worker claims it again."""
    aside = NewTask.successor_of(task, group=group_of(project, CommandStatus.OPEN_STASHED), error=why)
    return Result(adds=[aside], deletes=[task.id])


def _end_of(output: Output) -> Output:
    kept = output.kept
    lost = max(0, len(kept) - LEFT_BYTES)
    return Output.of(kept[lost:], missing=output.missing + lost) if lost else output
