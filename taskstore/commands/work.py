"""A list that a worker has in hand."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..types.command_record import Command, CommandList, LiveOutput, Output, Run, is_late
from ..worker.lease_keeper import Held
from .clock import Clock
from .closing import Finished
from .messages import Ran, Wrote

if TYPE_CHECKING:
    from ..types.tasks import Task
    from .runner_link import RunnerLink

MARGIN_S = 10.0  # That a lease is longer than any of its commands may take: to kill it, and to say so.
MOST_DOUBLINGS = 6
LONGEST_LEASE_S = 10.0 * 366 * 86_400  # What an import expects of a command may be more than a store can lease.


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long commands and lists may take, by what is expected of them."""

    timeout_factor: float = 2
    least_timeout_s: float = 30
    lease_factor: float = 2
    least_lease_s: float = 60

    def limit_s(self, command: Command) -> float:
        return max(self.least_timeout_s, self.timeout_factor * command.expected_duration)

    def lease_s(self, made: CommandList, claims: int) -> float:
        """Twice as long with each further claim: those before were too short, or their workers died."""
        longest_s = max(map(self.limit_s, made.commands), default=0.0)
        once_s = max(self.least_lease_s, self.lease_factor * made.expected_duration, longest_s + MARGIN_S)
        return min(once_s * float(2 ** min(max(claims - 1, 0), MOST_DOUBLINGS)), LONGEST_LEASE_S)


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """What is known of it. Its runner's messages come in by one thread; another one shows what is written."""

    key: int  # The id that its task was claimed with.
    project: str
    commands: CommandList
    worker: str
    held: Held
    clock: Clock
    started: int  # By the clock of the store.
    lease_s: float
    lease_ends_at: float  # By the monotonic clock; math.inf: it is renewed.
    link: RunnerLink | None = None  # To what runs it.
    runs: dict[int, Run] = field(default_factory=dict)  # By the place of the command.
    wrote: Wrote | None = None  # The newest of a command that is running.
    lost: threading.Event = field(default_factory=threading.Event)

    @property
    def task(self) -> Task:
        return self.held.task

    def hear(self, message: Wrote | Ran) -> None:
        if isinstance(message, Ran):
            self.runs[message.place] = message.run
            self.wrote = None
        else:
            self.wrote = message

    @property
    def is_renewed(self) -> bool:
        return self.lease_ends_at == math.inf

    def lease_left_s(self) -> float:
        return self.lease_ends_at - time.monotonic()

    def running_place(self) -> int | None:
        """The place of the command that is running, or is next. None: all have run."""
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
        """What to show of it now: the command that is running. None: all have run."""
        place = self.running_place()
        if place is None:
            return None
        wrote = self.wrote  # Nothing is known of one that has just begun.
        command = self.commands.commands[place]
        shown = LiveOutput(
            list=self.commands.name,
            task=self.task.id,
            command=command.id,
            at=self.clock.now_s(),
            done=len(self.runs),
            due=wrote.started + command.expected_duration if wrote else 0,
            out=wrote.out if wrote else Output(),
            err=wrote.err if wrote else Output(),
        )
        return command, shown
