"""A list that a worker is running, its time limits, and what is committed of it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple, Self

from msgspec.structs import replace

from ..types.checks import MOST
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
    new_list_task,
)
from ..types.tasks import Change, NewTask
from ..types.texts import clean
from ..worker.children import Child, News, Over
from ..worker.engine import Attempt
from ..worker.handlers import Result

if TYPE_CHECKING:
    from ..types.tasks import Task

MARGIN_S = 10.0  # A lease exceeds the longest time limit by this, to kill the command and report it.
MOST_DOUBLINGS = 6
LONGEST_LEASE_S = 10.0 * 366 * 86_400  # Imported commands may have expected durations beyond the range of a lease.
RENEWALS = 3  # Per lease, so that one may fail or two may be late.
EXCUSED = 3  # How often an attempt at a command may end with its worker before it counts as a failure.
QUICK_S, TOGETHER_S, TOGETHER_BYTES = 0.25, 0.5, 2**20  # Results of quick commands are written together.
MOST_AHEAD = 8  # Quick commands that a runner has at a time, of which it runs one.
TOGETHER = 10  # Quick commands that must not run again, whose starts are recorded together.
SHORTEST_BYTES = 4 * 2**10  # Kept of each output when the store rejects more.


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
    """The time limits of commands and leases of lists. `renew`: leases last while the worker lives."""

    timeout_factor: float = 2
    least_timeout_s: float = 30
    lease_factor: float = 2
    least_lease_s: float = 60
    renew: bool = True

    def limit_s(self, command: Command) -> float:
        return max(self.least_timeout_s, self.timeout_factor * command.expected_duration)

    def lease_s(self, made: CommandList, claims: int) -> float:
        """Return the lease of a list.

        Without renewal it is as long as the commands may take, and doubles with each claim, because the previous
        leases were too short.
        """
        if self.renew:
            return self.least_lease_s
        longest_s = max(map(self.limit_s, made.commands), default=0.0)
        once_s = max(self.least_lease_s, self.lease_factor * made.expected_duration, longest_s + MARGIN_S)
        return min(once_s * float(2 ** min(max(claims - 1, 0), MOST_DOUBLINGS)), LONGEST_LEASE_S)


class Written(NamedTuple):
    """A commit of a list, and what is left of the list then."""

    commit: Result
    made: CommandList
    recorded: int = 0  # So many commands of these are recorded as started.


@dataclass(slots=True, kw_only=True, eq=False)
class Work(Attempt):
    """A list in progress. The thread that runs its commands also writes it.

    Each write takes what has ended out of the list, in a closed one, so that the list is what is left of it: first the
    command that runs, or runs next. It is recorded as begun before it is started.
    """

    project: str
    made: CommandList  # As it is to be written.
    worker: str
    clock: Clock
    started: int  # By the store's clock.
    lease_s: float
    lease_ends_at: float = math.inf  # By the monotonic clock; math.inf: it is renewed.
    ended: list[Command] = field(default_factory=list)  # That are to be written.
    lost: CommandList | None = None  # The same, of an earlier worker.
    child: Child | None = None
    handed: dict[int, Command] = field(default_factory=dict)  # To the child, by their numbers there, in order.
    overs: dict[int, Over] = field(default_factory=dict)  # What it has said of these.
    news: News | None = None  # The latest output of the running command.
    keep: int = MOST  # How many commands; others are for idle workers.
    output: int = 0  # The id of the task that shows the output; 0: there is none.
    shown: object = None  # What it shows.
    is_begun: bool = False  # Its own thread writes it.
    is_closed: bool = False  # It is written for the last time.
    was_lost: bool = False  # With another worker.
    is_quick: bool = False  # The last commands were, and no worker has been lost with this list.
    is_recorded: bool = False  # That the first command has been started.
    recorded: int = 0  # So many commands, from the first on, were recorded as started before that.
    shows_begun: bool = False  # What was last written has a command that was started, maybe an earlier one.
    written_at: float = -math.inf  # By the monotonic clock.
    last_renewed_at: float = field(default_factory=time.monotonic)
    times_again: int = 0  # How often this worker has claimed it again after the end of its lease.
    seen_again: int = 0  # The same, as far as the thread of the list has seen.

    def claimed_again(self) -> None:
        self.times_again += 1
        self.is_recorded = False  # So that it is written soon: by the list the next worker counts the claims.

    @property
    def is_renewed(self) -> bool:
        return self.lease_ends_at == math.inf

    @property
    def renewed_at(self) -> float:
        """When the lease was last renewed; math.inf: it ends as it was claimed."""
        return self.last_renewed_at if self.is_renewed else math.inf

    @property
    def waiting(self) -> int:
        """How many commands have not been started."""
        return len(self.made.commands) - bool(self.made.begun)

    def lease_left_s(self) -> float:
        return self.lease_ends_at - time.monotonic()

    def charge(self) -> None:
        """Count the attempt at the first command that ended with an earlier worker.

        Up to three don't count if the worker had not recorded the start.
        """
        before = self.made
        first, *others = before.commands
        losses = self.current.claims - before.claims - 1
        self.was_lost = bool(losses)
        self.made = before.reopened(self.current.claims)
        also = [command for command in others[: before.ahead] if command.max_fails <= 1]
        if before.begun and also:
            why = f"the worker {before.worker} was lost, and it is unknown whether it had started this command\n"
        elif before.begun:
            why = f"the worker {before.worker} was lost while it ran this command\n"
        elif losses and first.excused + losses > EXCUSED:
            why = f"{losses} workers were lost before they could start this command\n"
        else:
            self.excuse(losses)
            return
        now = self.clock.now_s()
        worker, started = before.worker or self.worker, before.begun or now
        err = Output.of(why.encode())
        run = Run(worker=worker, started=started, ended=now, duration_ms=max(0, now - started) * 1_000, err=err)
        lost = tuple(replace(command, run=run) for command in (first, *also))
        self.lost = replace(before, commands=lost, worker=worker, started=before.started or now, finished=now)
        left = tuple(command for command in others if command not in also)
        self.made = replace(self.made, commands=left, done=self.made.done + len(lost))

    def excuse(self, attempts: int = 1) -> None:
        """Note that attempts at the first command do not count."""
        first, *others = self.made.commands
        first = replace(first, excused=first.excused + attempts)
        self.made = replace(self.made, commands=(first, *others), begun=0)

    def begin(self) -> None:
        """Note that the first command is about to be started."""
        self.made = replace(self.made, worker=self.worker, started=self.started, begun=max(1, self.clock.now_s()))
        self.news, self.is_recorded = None, False

    @property
    def may_be_unrecorded(self) -> bool:
        """Whether the first command is likely to be quick, and may run again if the worker dies meanwhile.

        Its start is not recorded at first, and the attempt does not count then.
        """
        return self._is_cheap(self.made.commands[0])

    def _is_cheap(self, command: Command) -> bool:
        return self.is_quick and command.max_fails > 1 and not command.excused

    def next(self) -> Sequence[Command]:
        """Return the commands to hand over: the first one, and before their turn others that may run again."""
        number, now_s = len(self.handed), self.clock.now_s()
        if number > MOST_AHEAD // 2:
            return ()
        others = self.made.commands[max(1, number) : MOST_AHEAD]
        ahead = takewhile(lambda each: self._is_cheap(each) and not is_late(each, now_s), others)
        return (*self.made.commands[number:1], *ahead)

    @property
    def can_wait(self) -> bool:
        """Whether what has ended is to be written with what follows."""
        may_start = bool(self.recorded) or (self.may_be_unrecorded and not self.shows_begun)
        if not may_start or time.monotonic() > self.written_at + TOGETHER_S:
            return False
        runs = [command.run for command in self.ended if command.run]
        return sum(len(run.out.kept) + len(run.err.kept) for run in runs) < TOGETHER_BYTES

    def adopt(self, task: Task) -> bool:
        """Go on with a successor that an operator has made, without commands that were cancelled.

        Returns whether it is one: otherwise somebody else has the list.
        """
        before, after = (CommandList.decode(each.data).commands for each in (self.current, task))
        gone = {command.id for command in before} - {command.id for command in after}
        if not gone or task.group != self.current.group or task.owner != self.current.owner or not task.claims:
            return False
        self.current = task
        first, self.ended = self.made.commands[:1], [command for command in self.ended if command.id not in gone]
        left = tuple(command for command in self.made.commands if command.id not in gone)
        self.recorded = sum(command.id not in gone for command in self.made.commands[: self.recorded])
        self.made = replace(self.made, commands=left, begun=self.made.begun if left[:1] == first else 0)
        return True

    def undo(self) -> None:
        """Note that the first command is to be run by another worker, without counting this attempt."""
        self.made = replace(self.made, begun=0)

    def end(self, run: Run | None) -> None:
        """Take out the first command, with its run or because it is too late for one."""
        self.ended.append(replace(self.made.commands[0], run=run))
        self._drop_first()

    def _drop_first(self) -> None:
        self.recorded = max(0, self.recorded - 1)
        self.made = replace(self.made, commands=self.made.commands[1:], begun=0, done=self.made.done + 1)

    def shorten(self) -> bool:
        """Shorten the longest output that is to be written. Returns False if none is left to shorten."""
        outputs = [output for command in self.ended if command.run for output in (command.run.out, command.run.err)]
        most = max((len(output.kept) for output in outputs), default=0) // 2
        if most < SHORTEST_BYTES:
            return False
        self.ended = [
            replace(
                each, run=each.run and replace(each.run, out=end_of(each.run.out, most), err=end_of(each.run.err, most))
            )
            for each in self.ended
        ]
        return True

    # ---- Commits

    def going_on(self) -> Written:
        """Write what has ended, the start of the first command and a longer lease; leave commands for others."""
        rest = self.rest()
        left = self.made.commands[: len(self.made.commands) - len(rest)]
        made = replace(self.made, commands=left, claims=self.current.claims)
        adds = self._closed()
        if rest:
            named = CommandList(name=str(min(each.created for each in rest)), commands=rest)
            adds = [*adds, new_list_task(self.project, named, batch=self.task.batch)]
        self.is_recorded = not self.may_be_unrecorded
        number = min(TOGETHER if self.is_quick and not left[0].excused else 1, len(left)) if self.is_recorded else 0
        recorded = replace(made, ahead=number - 1) if number else replace(made, begun=0)
        left_s = self.lease_s if self.is_renewed else max(self.lease_left_s(), 0.001)
        change = Change(
            id=self.current.id,
            data=recorded.encode(),
            labels=list_labels(recorded),
            timespec_ms=-round(left_s * 1_000),
            error="",
        )
        return Written(Result(adds=adds, updates=[change]), made, number)

    def given_back(self, error: str = "") -> Written:
        """End the work: what has ended is closed, the rest is open."""
        made = self.made.reopened(self.current.claims)
        deletes = [self.output] if self.output else []
        if made.commands:
            change = Change(
                id=self.current.id, data=made.encode(), labels=list_labels(made), error=clean(error), release=True
            )
            return Written(Result(adds=self._closed(), updates=[change], deletes=deletes), made)
        *others, last = self._closed()
        successor = NewTask.successor_of(
            self.current, group=last.group, data=last.data, data_type="", labels=last.labels, error=""
        )
        return Written(Result(adds=[*others, successor], deletes=[self.current.id, *deletes]), made)

    def rest(self) -> tuple[Command, ...]:
        """Return the commands for idle workers."""
        return self.made.commands[max(1, self.keep, len(self.handed)) :]

    def _closed(self) -> Sequence[NewTask]:
        own = replace(
            self.made,
            commands=tuple(map(counted, self.ended)),
            worker=self.worker,
            started=self.started,
            finished=self.clock.now_s(),
        )
        parts = [*([self.lost] if self.lost else []), *([own] if self.ended else [])]
        return [
            new_list_task(
                self.project, replace(part, done=0, begun=0, ahead=0), CommandStatus.CLOSED, batch=self.task.batch
            )
            for part in parts
        ]

    def live(self) -> tuple[Command, LiveOutput]:
        """Return the running command and its live output."""
        news = self.news  # None for a command that has just started.
        command = self.made.commands[0]
        shown = LiveOutput(
            list=self.made.name,
            task=self.current.origin,
            command=command.id,
            at=self.clock.now_s(),
            done=self.made.done,
            due=self.made.begun + command.expected_duration if news else 0,
            out=news.out if news else Output(),
            err=news.err if news else Output(),
        )
        return command, shown


def counted(command: Command) -> Command:
    """Return the command with the number of bytes that are missing of its outputs."""
    run = command.run
    return replace(command, run=run and replace(run, missing=run.out.missing + run.err.missing))


def laid_aside(task: Task, project: str, why: str) -> Result:
    """Return the commit that parks a task that is not a list, so that no worker claims it again."""
    aside = NewTask.successor_of(task, group=group_of(project, CommandStatus.OPEN_STASHED), error=clean(why))
    return Result(adds=[aside], deletes=[task.id])


def end_of(output: Output, most: int) -> Output:
    """Return the output with at most so many bytes, from its end."""
    kept = output.kept
    lost = max(0, len(kept) - most)
    return Output.of(kept[lost:], missing=output.missing + lost) if lost else output
