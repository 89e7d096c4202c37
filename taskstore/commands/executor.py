"""The executor of commands. The thread of a claimed list has a runner run its commands, and writes the list.

Before a command is started, the list says so; the same commit has the result of the command before it. Quick commands
that may run again are written together instead (Work.can_wait). While a command runs, the thread renews the lease,
shows the output, and leaves commands to idle workers.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..errors import CommitRefused, InvalidInput
from ..types.checks import MOST
from ..types.command_record import (
    Command,
    CommandList,
    NotACommand,
    Output,
    Run,
    is_late,
    live_labels,
    output_group,
    place_of,
)
from ..types.tasks import Change, Ending, NewTask
from ..worker import children
from ..worker.children import LEAVE_S, Child, Children, Gone, News, NotPrepared, Over, Shell, Why
from ..worker.engine import LOOK_AGAIN_S, PATIENCE_S
from ..worker.handlers import Result
from ..worker.heartbeat import Chore
from ..worker.lease_keeper import AWAY, EXPECTED_S, SOON_S, named, renewal
from ..worker.orphans import LOOK_EVERY_S, Orphans
from ..worker.outputs import OutputTo, copied_after
from ..worker.process_tree import whereabouts
from ..worker.settling import Entry
from .work import EXCUSED, QUICK_S, RENEWALS, Clock, Times, Work, Written, laid_aside

if TYPE_CHECKING:
    from ..types.history import End
    from ..types.tasks import Task
    from ..worker.engine import Engine
    from ..worker.store import ClientStatus

logger = logging.getLogger(__name__)

CAN_NOT_RUN, KILLED = 126, 137  # The exit codes that shells use.
LINGER_S = 0.5  # Background processes may finish after the shell: bash does not wait for `>(gzip > file)`.
POLL_S = 0.25  # The longest wait before a command can be stopped.
MEGABYTE = 2**20
SHOW_EVERY_S = 1.0
CHECK_EVERY_S = 5.0  # Check that the worker still holds a list when no write has shown it.
ASK_EVERY_S, ASK_SELDOM_S = 2.0, 10.0  # Whether idle workers want a part.
TROUBLES = 3  # In a row; then the worker stops.
NOT_BEGUN = Over(why=Why.NOT_BEGUN)
TRY_S = 10.0  # For `true` in a shell.


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How commands are run."""

    worker: str
    shell: str
    cwd: str
    env: Mapping[str, str]
    memory_bytes: int | None  # Of a command with all its child processes. None: no limit.
    output_bytes: int  # Kept of each output.
    output: OutputTo
    allow_stderr: bool  # Whether what is written to standard error is no failure.


class Trouble(Exception):
    """The worker can't run commands. The message says why."""


class Lists:
    """Runs lists of commands."""

    end_s = PATIENCE_S
    given_back = None

    def __init__(self, projects: Sequence[str], setup: Setup, times: Times, *, lists_at_once: int) -> None:
        self._projects, self._setup, self._times = projects, setup, times
        self.at_once = lists_at_once
        self._idle: list[Child] = []
        self._troubles = 0  # In a row.
        self._asks_at, self._asks_in_s = math.inf, ASK_EVERY_S
        self._are_quick = False  # The last commands were.

    def start(self, engine: Engine[Work, None]) -> Sequence[Chore]:
        self._engine = engine
        self._children = Children(cwd=self._setup.cwd)
        self._children.start()
        orphans = Orphans(engine.store, engine.groups, engine.settling, "lists", given_back)
        return [(ASK_EVERY_S, self._ask_again), (LOOK_EVERY_S, orphans.look)]

    def place(self) -> Callable[[Work], None]:
        return self._run

    def begin(self, attempts: Sequence[Work]) -> Sequence[Work]:
        return attempts

    def room(self, in_work: int) -> int:
        return max(0, self.at_once - in_work)

    def attempts(self, tasks: Sequence[Task], own: Mapping[int, Work]) -> Iterator[Work]:
        claimed_at = time.monotonic()
        claimed_ms = self._engine.keeper.duration_ms
        for task in tasks:
            project, _ = place_of(task.group) or ("", "")
            try:
                made = list_of(task)
                if task.origin in own:
                    made = made.reopened(task.claims - 1)
            except NotACommand as problem:
                logger.error(
                    "task %d of %s is not a valid list and is removed from the queue: %s", task.id, task.group, problem
                )
                self._settle(laid_aside(task, project, str(problem)))
                continue
            clock = Clock.of_claim(task, claimed_ms)
            lease_s = self._times.lease_s(made, task.claims)
            yield Work(
                task=task,
                project=project,
                made=made,
                worker=self._setup.worker,
                clock=clock,
                started=clock.now_s(),
                lease_s=lease_s,
                lease_ends_at=math.inf if self._times.renew else claimed_at + lease_s,
            )

    def renewed_at(self) -> float:
        return min((work.renewed_at for work in list(self._engine.works) if work.is_begun), default=math.inf)

    def entry(self, attempt: Work, outcome: None) -> Entry | None:
        """Return what gives back a list that was not begun. Others are written by their threads."""
        if not attempt.is_begun:
            return Entry(commit=attempt.given_back().commit, refused=self._not_settled)
        if not (attempt.is_closed or attempt.is_lost):
            logger.warning(
                "list %s of %s can't be written: other workers get it when its lease ends",
                attempt.made.name,
                attempt.project,
            )
        return None

    def end(self) -> None:
        self._children.end()

    def info(self) -> Mapping[str, Any]:
        """Return the `info` of a heartbeat.

        `slots`: how many lists it runs at once. `waiting`: the groups of lists with commands that are not started.
        """
        works = list(self._engine.works)
        return {
            **whereabouts(os.getpid()),
            "projects": self._projects,
            "lists": {work.made.name: work.made.done for work in works},
            "slots": 0 if self._engine.stopping.is_set() else self.at_once,
            "waiting": sorted({work.current.group for work in works if work.waiting > 0}),
        }

    # ---- Leaving commands to idle workers

    def _ask_again(self) -> None:
        """Ask now and then whether others are idle."""
        if time.monotonic() > self._asks_at:
            self._ask()

    def _ask_anew(self) -> None:
        self._asks_in_s = ASK_EVERY_S
        self._ask()

    def _ask(self) -> None:
        """Ask how much to keep of each list. Without idle workers, ask more and more rarely."""
        keep = getattr(self._engine.beat(), "keep", {})
        works = [work for work in list(self._engine.works) if work.waiting > 0]
        for work in works:
            work.keep = keep.get(work.current.group, work.keep)
        self._asks_in_s = ASK_EVERY_S if keep else min(2 * self._asks_in_s, ASK_SELDOM_S)
        self._asks_at = time.monotonic() + self._asks_in_s if works else math.inf

    # ---- The thread of a list

    def _run(self, work: Work) -> None:
        work.is_begun = True
        try:
            work.child = self._spare_child()
            self._run_all(work)
            self._idle += [work.child] if work.child else []
            self._troubles = 0 if work.made.done else self._troubles
            self._close(work, work.given_back)
        except Trouble as trouble:
            if work.child:
                self._children.discard(work.child)
            self._give_back(work, trouble)

    def _spare_child(self) -> Child:
        with suppress(IndexError):  # There is none.
            return self._idle.pop()
        return self._new_child()

    def _new_child(self) -> Child:
        try:
            return self._children.new()
        except (OSError, NotPrepared) as problem:
            raise Trouble(str(problem)) from problem

    def _run_all(self, work: Work) -> None:
        work.charge()
        work.is_quick, work.written_at = self._are_quick and not work.was_lost, time.monotonic()
        if len(work.made.commands) > 1 and not work.is_quick:
            self._ask_anew()
        while work.made.commands and self._may_go_on(work):
            command = work.made.commands[0]
            if not work.handed and is_late(command, work.clock.now_s()):
                work.end(None)
                continue
            work.begin()
            is_written = work.can_wait or self._write(work, work.going_on)
            if not is_written or not self._may_go_on(work):
                work.undo()
                break
            child = work.child = work.child or self._new_child()
            if work.made.commands[:1] != (command,):  # It was cancelled meanwhile.
                work.undo()
                continue
            number = self._hand_over(work, child)
            over = NOT_BEGUN if number is None else self._wait(work, child, number)
            if over and over.why is Why.NOT_BEGUN:
                work.undo()
                continue
            self._engine.reports.forget(work.current.origin)  # The next command must not get it.
            if over is None or over.others:
                self._discard(work, child)
                child = work.child = self._new_child()
            if work.made.begun:
                self._end(work, command, over)
        if work.child and work.handed:
            self._discard(work, work.child)

    def _may_go_on(self, work: Work) -> bool:
        """Whether to go on to the next command: when the worker stops, only to one that was handed over."""
        return not self._is_to_stop(work) and (bool(work.handed) or not self._engine.stopping.is_set())

    def _discard(self, work: Work, child: Child) -> None:
        self._children.discard(child)
        work.child = None
        work.handed.clear()
        work.overs.clear()

    def _hand_over(self, work: Work, child: Child) -> int | None:
        """Hand over the first command, and quick ones before their turn. Returns the number of the first.

        When the worker stops, it takes back what has not begun. None: nothing is left.
        """
        ids = {command.id for command in work.made.commands[: len(work.handed)]}
        for number, command in [*work.handed.items()]:
            if command.id not in ids:  # It was cancelled meanwhile.
                child.stop(number)
                del work.handed[number]
        if self._engine.stopping.is_set():
            self._take_back(work, child)
        else:
            commands = work.next()
            numbers = child.run_all((self._order(each), ()) for each in commands)
            work.handed |= dict(zip(numbers, commands, strict=True))
        return next(iter(work.handed), None)

    def _take_back(self, work: Work, child: Child) -> None:
        """Take back what was handed over before its turn and has not begun. The others go on."""
        for number in reversed(work.handed):
            child.stop(number, only_waiting=True)

    def _end(self, work: Work, command: Command, over: Over | None) -> None:
        """Record how a command ended, unless the worker is to blame. Raises Trouble."""
        run = self._run_of(work, command, over)
        # What ends the worker may have been sent to all processes, and so have ended the command.
        is_stopped = over.why is Why.STOPPED or (over.was_signalled and run.failed) if over else self._is_to_stop(work)
        if work.is_lost or is_stopped:
            work.undo()
            return
        if run.failed and not (over and over.why in (Why.TIME, Why.MEMORY)) and (trouble := self._trouble()):
            if command.excused < EXCUSED:
                raise Trouble(trouble)
            run = replace(run, err=with_line(run.err, f"the worker can't run commands: {trouble}"))
        work.end(run)
        self._say_ended(work, command, run)

    def _trouble(self) -> str:
        """Return why `true` can't be run here either. "": it can, so a failure is that of its command."""
        child = self._spare_child()  # That of the list may have begun the next command.
        number = child.run(children.Work(shell=Shell(self._setup.shell, "true", self._setup.env), limit_s=TRY_S))
        until = time.monotonic() + 2 * TRY_S
        while time.monotonic() < until:
            for event in child.wait(POLL_S):
                if isinstance(event, Gone):
                    self._children.discard(child)
                    return "the process that runs the commands is killed"
                if isinstance(event, Over) and event.number == number:
                    self._idle.append(child)
                    return self._trouble_of(event)
        self._children.discard(child)
        return "a shell does not end"

    def _trouble_of(self, over: Over) -> str:
        said = " ".join([*over.out.lines, *over.err.lines])
        if over.why is Why.NOT_STARTED:
            return over.text
        if over.code or said:
            return f"`true` ended with {over.code}: {said}"
        disk = os.statvfs(self._setup.cwd)
        is_full = not disk.f_bavail and not disk.f_flag & os.ST_RDONLY
        return f"the disk of {self._setup.cwd} is full" if is_full else ""

    def _give_back(self, work: Work, trouble: Trouble) -> None:
        """Give back a list because of the worker, which stops when it happens again and again."""
        said = f"worker {work.worker} can't run commands: {trouble}"
        logger.error("list %s of %s is given back: %s", work.made.name, work.project, said)
        if work.made.begun:
            work.excuse()
        self._close(work, partial(work.given_back, said))
        self._troubles += 1
        if self._troubles >= TROUBLES:
            self._engine.fail(NotPrepared(f"{said} ({TROUBLES} times in a row)"))
        self._engine.stopping.wait(SOON_S * self._troubles)  # Others may get the list.

    def _order(self, command: Command) -> children.Work:
        half = self._setup.output_bytes // 2
        return children.Work(
            shell=Shell(self._setup.shell, command.line, self._setup.env),
            limit_s=self._times.limit_s(command),
            memory_bytes=self._setup.memory_bytes,
            linger_s=LINGER_S,
            head_bytes=half,
            tail_bytes=half,
            copied_after=copied_after(self._setup.output, f"command {command.id}: "),
        )

    def _wait(self, work: Work, child: Child, number: int) -> Over | None:
        """Return how the command ended; None if it was killed together with its runner."""
        stops_at = math.inf
        now = time.monotonic()
        took_long_at = now + QUICK_S
        renews_at, shows_at, checks_at = now + work.lease_s / RENEWALS, now, now + CHECK_EVERY_S
        while True:
            is_there = number in work.overs or self._hear(work, child)
            if over := work.overs.pop(number, None):
                work.handed.pop(number, None)
                if over.why is not Why.NOT_BEGUN:
                    self._are_quick = over.took_s < QUICK_S
                    work.is_quick = self._are_quick and not work.was_lost
                return over
            if not is_there:
                return None
            now = time.monotonic()
            if len(work.handed) > 1 and now > took_long_at:
                self._take_back(work, child)
            if now > stops_at:
                self._children.discard(child)  # Its runner may be stopped.
            elif stops_at < math.inf:
                continue
            elif self._is_to_stop(work) or not work.made.begun:  # Or the command was cancelled.
                self._take_back(work, child)
                child.stop(number)
                stops_at = now + LEAVE_S
            elif work.rest() or not work.is_recorded:
                if work.is_quick:
                    work.is_quick = False
                    self._ask_anew()
                self._write(work, work.going_on, is_patient=False)
            elif work.is_renewed and now > renews_at:
                is_done = self._renew(work)
                renews_at = now + (work.lease_s / RENEWALS if is_done else SOON_S)
            elif now > shows_at and work.shown != work.news:
                shows_at = now + SHOW_EVERY_S
                self._show(work)
            elif now > checks_at or self._engine.keeper.was_cancelled(work.current):
                checks_at = now + CHECK_EVERY_S
                self._check(work)

    def _hear(self, work: Work, child: Child) -> bool:
        """Take what a child says, within a moment. Returns whether it is still there."""
        for event in child.wait(POLL_S):
            if isinstance(event, Over):
                work.overs[event.number] = event
                if event.why is Why.NOT_BEGUN:
                    work.handed.pop(event.number, None)  # Those behind it come before it.
            elif isinstance(event, Gone):
                return False
            elif isinstance(event, News):
                work.news = event
                if event.progress:
                    self._engine.reports.note(work.current.origin, *event.progress)
        return True

    def _run_of(self, work: Work, command: Command, over: Over | None) -> Run:
        """Return what is kept of a run, with a line of the worker that says why it failed."""
        started, ended, worker = work.made.begun, work.clock.now_s(), work.worker
        if over is None:
            logger.error("list %s of %s: the process that runs the commands was killed", work.made.name, work.project)
            err = Output.of(b"the process that runs the commands was killed, and this command with it\n")
            return Run(worker=worker, started=started, ended=ended, exit_code=KILLED, err=err)
        if over.left:
            processes = "1 process" if over.left == 1 else f"{over.left} processes"
            logger.info("command %s of %s left %s behind: killed", command.id, work.project, processes)
        if over.others:
            pids = ", ".join(map(str, over.others))
            logger.warning(
                "command %s of %s left processes of other users behind, which can't be killed: %s",
                command.id,
                work.project,
                pids,
            )
        code, verdict = self._verdict(command, over)
        return Run(
            worker=worker,
            started=started,
            ended=ended,
            duration_ms=round(over.took_s * 1_000),
            exit_code=code,
            allow_stderr=self._setup.allow_stderr,
            out=over.out,
            err=with_line(over.err, verdict) if verdict else over.err,
        )

    def _say_ended(self, work: Work, command: Command, run: Run) -> None:
        """Log the outcome of a command, how long it took, and why it failed."""
        level, how = (logging.WARNING, f"failed: {run.complaint}") if run.failed else (logging.INFO, "succeeded")
        missing = run.out.missing + run.err.missing
        cut = f"; {missing} bytes of its output exceed the output limit and are not kept" if missing else ""
        took_s = run.duration_ms / 1_000
        logger.log(level, "command %s of %s: after %.3g s %s%s", command.id, work.project, took_s, how, cut)

    def _verdict(self, command: Command, over: Over) -> tuple[int, str]:
        """Return the exit code of a command as shells have it, and why it failed."""
        match over.why:
            case Why.NOT_STARTED:
                return CAN_NOT_RUN, f"could not be started: {over.text}"
            case Why.TIME:
                return KILLED, f"took longer than {self._times.limit_s(command):g} s and was killed"
            case Why.MEMORY:
                return KILLED, f"used more than {(self._setup.memory_bytes or 0) / MEGABYTE:g} MiB and was killed"
        if over.code < 0:
            return 128 - over.code, f"killed by signal {-over.code}"
        return over.code, f"ended with {over.code}" if over.code else ""

    def _is_to_stop(self, work: Work) -> bool:
        return work.is_lost or work.lease_left_s() <= 0 or work.is_interrupted

    # ---- Writing a list

    def _write(self, work: Work, plan: Callable[[], Written], *, is_patient: bool = True) -> bool:
        """Write a list. Returns whether it is written; otherwise it is lost, or the store is unavailable.

        Retries while the store is unavailable and the lease lasts. Tries even then: no other worker may have the list.
        """
        before = work.current
        if not work.is_lost:
            entry = self._entry(work, plan)
            self._engine.settling.write([entry], is_patient=lambda: is_patient and work.lease_left_s() > 0)
        if work.is_lost and work.output:
            self._settle(Result(deletes=[work.output]))
            work.output = 0
        return work.current is not before

    def _close(self, work: Work, plan: Callable[[], Written]) -> None:
        """Write a list for the last time, unless all of it is written."""
        work.is_closed = not (work.made.commands or work.ended or work.lost) or self._write(work, plan)

    def _entry(self, work: Work, plan: Callable[[], Written]) -> Entry:
        planned = plan()

        def written(tasks: Sequence[Task]) -> None:
            if moved := len(work.made.commands) - len(planned.made.commands):
                name = work.made.name
                logger.info("list %s of %s: %d commands are left to idle workers", name, work.project, moved)
            work.current = tasks[-1]
            work.made, work.lost, work.ended, work.keep = planned.made, None, [], MOST
            work.written_at = work.last_renewed_at = time.monotonic()
            work.recorded, work.shows_begun = planned.recorded, bool(planned.recorded)

        return Entry(commit=planned.commit, written=written, refused=partial(self._not_written, work, plan))

    def _not_written(self, work: Work, plan: Callable[[], Written], problem: Exception) -> Entry | None:
        if isinstance(problem, InvalidInput) and work.shorten():
            logger.warning(
                "list %s of %s: the store rejects the outputs, so less of them is kept: %s",
                work.made.name,
                work.project,
                problem,
            )
            return self._entry(work, plan)
        if isinstance(problem, CommitRefused) and work.output in named(problem.refusal):
            work.output = 0  # Someone deleted its live output.
            return self._entry(work, plan)
        if isinstance(problem, InvalidInput):
            logger.error("list %s of %s can't be written: %s", work.made.name, work.project, problem)
            work.is_lost = True
        elif not self._not_done(work, problem):
            # All other commands may have been cancelled. What has ended is still to be written.
            return self._entry(work, plan if work.made.commands else work.given_back)
        return None

    def _renew(self, work: Work) -> bool:
        before = work.current

        def written(tasks: Sequence[Task]) -> None:
            [work.current] = tasks
            work.last_renewed_at = time.monotonic()

        def refused(problem: Exception) -> None:
            self._not_done(work, problem)

        change = renewal(work.current, round(work.lease_s * 1_000))
        entry = Entry.of(change, written=written, refused=refused)
        self._engine.settling.write([entry], is_patient=lambda: False)
        return work.current is not before

    def _show(self, work: Work) -> None:
        """Publish the output of the running command, in place of what was published before."""
        command, live = work.live()
        data, labels, news = live.encode(), live_labels(live, command), work.news

        def written(tasks: Sequence[Task]) -> None:
            work.output, work.shown = tasks[0].id, news

        def refused(problem: Exception) -> None:
            if isinstance(problem, CommitRefused) and work.current.id in problem.refusal.depends:
                self._not_done(work, problem)
            elif isinstance(problem, CommitRefused | InvalidInput):
                work.shown = news  # Someone deleted it, or the store rejects it. The next news may do better.
                work.output = 0

        depends = [work.current.id]
        if work.output:
            change = Change(id=work.output, data=data, error="", labels=labels)
            commit = Result(updates=[change], depends=depends)
        else:
            commit = Result(adds=[NewTask(group=output_group(work.project), data=data, labels=labels)], depends=depends)
        entry = Entry(commit=commit, written=written, refused=refused)
        self._engine.settling.write([entry], is_patient=lambda: False)

    def _check(self, work: Work) -> None:
        try:
            if self._engine.store.tasks([work.current.id]) == [None]:
                self._lose(work, "it was claimed or changed")
        except AWAY as problem:
            self._engine.keeper.outage.begin(problem)

    def _lose(self, work: Work, why: object) -> bool:
        """Note that the list has changed: it is lost, unless only some of its commands were cancelled.

        Returns whether it is lost.
        """
        try:
            if self._goes_on(work):
                return False
            task, end = self._found(work.current)
            if task and work.adopt(task):
                logger.info("list %s of %s: commands were cancelled", work.made.name, work.project)
                return False
            if end and end.how is Ending.CANCELLED and (task is None or task.group != work.current.group):
                why = None
        except (*AWAY, NotACommand) as problem:
            logger.debug("can't look after list %s: %s", work.made.name, problem)
        if why is None:
            logger.info("list %s of %s was cancelled", work.made.name, work.project)
        else:
            _say_lost(work, why)
        work.is_lost = True
        return True

    def _found(self, task: Task) -> tuple[Task | None, End | None]:
        """Return the present successor of a task, if there is one, and how the task ended."""
        while True:
            found = self._engine.store.history(task.id)
            if not found or not found.steps:
                return None, None
            end = next((step.ended for step in found.steps if step.id == task.id), None)
            last = found.steps[-1]
            [present] = [None] if last.ended else self._engine.store.tasks([last.id])
            if present or last.ended:  # Otherwise it has changed meanwhile.
                return present, end

    def _goes_on(self, work: Work) -> bool:
        """Whether this worker has renewed the lease, or claimed the list again after its end. Waits for the answer."""
        until = time.monotonic() + EXPECTED_S
        found, end = self._engine.keeper.led_to(work.current)
        work.current = found or work.current
        if found:
            return True
        is_expected = work.seen_again == work.times_again and self._engine.keeper.is_claim(end)
        while is_expected and work.seen_again == work.times_again and time.monotonic() < until:
            time.sleep(LOOK_AGAIN_S)
        is_another, work.seen_again = work.seen_again != work.times_again, work.times_again
        return is_another

    def _settle(self, commit: Result) -> None:
        """Commit without retries: otherwise the end of the lease does the same."""
        self._engine.settling.write([Entry(commit=commit, refused=self._not_settled)], is_patient=lambda: False)

    def _not_settled(self, problem: Exception) -> None:
        if not isinstance(problem, (*AWAY, CommitRefused)):
            self._engine.fail(problem)

    def _not_done(self, work: Work, problem: Exception) -> bool:
        """Note why a list was not written. Returns whether that is the end of it."""
        is_over = self._lose(work, problem) if isinstance(problem, CommitRefused) else True
        self._not_settled(problem)
        return is_over


def list_of(task: Task) -> CommandList:
    """Return the list that a task carries. Raises NotACommand."""
    found = CommandList.decode(task.data)
    if not found.commands:
        raise NotACommand("the list has no commands")
    return found


def given_back(task: Task, heard: ClientStatus) -> Change:
    """Return the change that reopens the list of a dead worker. The next one counts the attempt that was lost."""
    return Change(id=task.id, release=True)


def with_line(output: Output, line: str) -> Output:
    """Return the output with a line of the worker appended."""
    kept = output.kept
    is_begun = bool(kept) and not kept.endswith(b"\n")
    return Output.of(kept + ("\n" * is_begun + line + "\n").encode(), cut_at=output.cut_at, missing=output.missing)


def _say_lost(work: Work, why: object) -> None:
    logger.warning(
        "list %s of %s belongs to another worker now, so its results are discarded: %s",
        work.made.name,
        work.project,
        why,
    )
