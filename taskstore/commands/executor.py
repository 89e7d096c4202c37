"""The executor of commands. A thread for each claimed list has a runner run its commands, then closes the list.

The heartbeat thread publishes the output of running commands, for all lists of a worker.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import CommitRefused, InvalidInput
from ..types.command_record import (
    Command,
    CommandList,
    LiveOutput,
    NotACommand,
    Output,
    Run,
    is_late,
    live_labels,
    output_group,
    place_of,
)
from ..types.tasks import Change, NewTask
from ..worker import children
from ..worker.children import Child, Children, Gone, News, Over, Shell, Why
from ..worker.engine import PATIENCE_S
from ..worker.handlers import Result
from ..worker.heartbeat import SEND_EVERY_S, Chore, Reports
from ..worker.lease_keeper import Held, Outage, named, nothing, renewal
from ..worker.process_tree import whereabouts
from ..worker.settling import AWAY, Entry
from ..worker.store import Store
from .work import Clock, Finished, Times, Work, closed, given_back, laid_aside

if TYPE_CHECKING:
    from ..types.tasks import Task
    from ..worker.engine import Engine

logger = logging.getLogger(__name__)

CLOSE_EARLY_S = 5.0  # Before the end of a lease, at most; a tenth of it when that is less.
CAN_NOT_RUN, KILLED = 126, 137  # The exit codes that shells use.
LINGER_S = 0.5  # Background processes may finish after the shell: bash does not wait for `>(gzip > file)`.
POLL_S = 0.25  # The longest wait before a command can be stopped.
MEGABYTE = 2**20
WRITE_EVERY_S = 1.0
CHECK_EVERY_S = 10.0  # Check that the worker still holds a list when no write has shown it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How commands are run."""

    worker: str
    shell: str
    cwd: str
    env: Mapping[str, str]
    memory_bytes: int | None  # Of a command with all its child processes. None: no limit.
    output_bytes: int  # Kept of each output.
    most_bytes: int  # After about so much output no further command of a list is started.


class Lists:
    """`renew`: renew leases, instead of leasing each list for as long as its commands may take."""

    end_s = PATIENCE_S

    def __init__(self, projects: Sequence[str], setup: Setup, times: Times, *, lists_at_once: int, renew: bool) -> None:
        self._projects, self._setup, self._times = projects, setup, times
        self.at_once, self._renew = lists_at_once, renew
        self._idle: list[Child] = []
        self._is_interrupted = False

    def start(self, engine: Engine[Work]) -> None:
        self._engine = engine
        self._children = Children(cwd=self._setup.cwd)
        self._children.start()
        self._live = Live(engine.store, engine.keeper.outage)
        self._reports = Reports(engine.store)
        self.chores: Sequence[Chore] = [(WRITE_EVERY_S, self._live.write), (SEND_EVERY_S, self._reports.send)]

    def is_idle(self) -> bool:
        return True  # A list is closed before it is done.

    def room(self, in_work: int) -> int:
        return max(0, self.at_once - in_work)

    def take(self, tasks: Sequence[Task]) -> None:
        claimed_at, claimed_ms = time.monotonic(), self._engine.keeper.duration_ms
        aside = []
        for task in tasks:
            project, _ = place_of(task.group) or ("", "")
            try:
                commands = list_of(task)
            except NotACommand as problem:
                logger.error(
                    "task %d of %s is not a valid list and is removed from the queue: %s", task.id, task.group, problem
                )
                aside.append(laid_aside(task, project, str(problem)))
                continue
            clock = Clock.of_claim(task, claimed_ms)
            work = Work(
                key=task.id,
                project=project,
                commands=commands,
                worker=self._setup.worker,
                held=Held(task, nothing),
                clock=clock,
                started=clock.now_s(),
                lease_ends_at=math.inf if self._renew else claimed_at + self._times.least_lease_s,
                lease_s=self._times.lease_s(commands, task.claims),
            )
            doing = threading.Thread(target=self._do, args=[work], name=f"list {commands.name}", daemon=True)
            if not self._engine.begin(task.id, work, doing.start):
                aside.append(given_back(task))
        self._settle(*aside)

    def stop(self) -> None:
        """Do nothing: the threads of the lists order their runners to start no further command."""

    def interrupt(self) -> None:
        self._is_interrupted = True

    def end(self) -> None:
        self._is_interrupted = True
        self._children.end()

    def info(self) -> Mapping[str, Any]:
        lists = {work.commands.name: len(work.runs) for work in list(self._engine.works.values())}
        return {**whereabouts(os.getpid()), "projects": self._projects, "lists": lists}

    # ---- The thread of a list

    def _do(self, work: Work) -> None:
        try:
            work.child = self._idle.pop() if self._idle else self._children.new()
            if self._renew:
                work.held = self._engine.keeper.keep(work.task, work.lost.set)
            elif work.lease_s > self._times.least_lease_s:
                self._extend(work)
            if not work.lost.is_set():
                self._live.show(work)
                self._run(work, work.child)
                self._close(work)
        except Exception as problem:
            self._engine.fail(problem)
            if not (work.runs or work.begun or work.lost.is_set()):
                # Nothing was begun: the runner could not be started, say. Others get the list at once.
                self._settle(given_back(self._engine.keeper.let_go(work.held), self._live.let_go(work)))
        finally:
            self._engine.done(work.key)

    def _extend(self, work: Work) -> None:
        """Extend the lease to the time that the commands may take. Without the store the shorter one remains."""
        asked_at = time.monotonic()

        def extended(tasks: Sequence[Task]) -> None:
            [work.held.task] = tasks
            work.lease_ends_at = asked_at + work.lease_s

        def refused(problem: Exception) -> None:
            if isinstance(problem, CommitRefused):
                _say_lost(work, problem)
                work.lost.set()
            else:
                self._not_done(problem)

        longer = Entry.of(renewal(work.task, round(work.lease_s * 1_000)), extended, refused)
        self._engine.settling.write([longer], is_patient=lambda: False)

    def _run(self, work: Work, child: Child) -> None:
        bytes_left = self._setup.most_bytes
        for place, command in enumerate(work.commands.commands):
            if self._is_to_stop(work) or self._engine.stopping.is_set() or bytes_left <= 0:
                break
            if is_late(command, work.clock.now_s()):
                continue
            work.begun, work.news = work.clock.now_s(), None
            over = self._wait(work, child, child.run(self._order(command)))
            self._reports.forget(work.task.origin)  # The next command must not get it.
            if over is None or over.others:
                self._children.discard(child)
                child = work.child = self._children.new()
            run = self._run_of(work, command, over)
            # What ends the worker may have been sent to all processes, and so have ended the command.
            is_undone = over and (over.why is Why.STOPPED or (over.was_signalled and run.failed))
            if not work.lost.is_set() and not is_undone:
                work.runs[place] = run
                self._say_ended(work, command, run)
                bytes_left -= sum(
                    len(json.dumps(output.text, ensure_ascii=False).encode()) + len(output.base64)
                    for output in (run.out, run.err)
                )
            work.news = None
        self._idle.append(child)

    def _order(self, command: Command) -> children.Work:
        half = self._setup.output_bytes // 2
        return children.Work(
            shell=Shell(self._setup.shell, command.cmd, self._setup.env),
            limit_s=self._times.limit_s(command),
            memory_bytes=self._setup.memory_bytes,
            linger_s=LINGER_S,
            head_bytes=half,
            tail_bytes=half,
        )

    def _wait(self, work: Work, child: Child, number: int) -> Over | None:
        """Return how the command ended; None if it was killed together with its runner."""
        is_stopping = False
        while True:
            for event in child.wait(POLL_S):
                if isinstance(event, Over):
                    return event
                if isinstance(event, Gone):
                    return None
                if isinstance(event, News):
                    work.news = event
                    if event.progress:
                        self._reports.note(work.task.origin, *event.progress)
            if not is_stopping and self._is_to_stop(work):
                child.stop(number)
                is_stopping = True

    def _run_of(self, work: Work, command: Command, over: Over | None) -> Run:
        """Return what is kept of a run, with a line of the worker that says why it failed."""
        started, ended, worker = work.begun, work.clock.now_s(), work.worker
        if over is None:
            logger.error(
                "list %s of %s: the process that runs the commands was killed", work.commands.name, work.project
            )
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
            out=over.out,
            err=with_line(over.err, verdict) if verdict else over.err,
        )

    def _say_ended(self, work: Work, command: Command, run: Run) -> None:
        """Log the outcome of a command, how long it took, and why it failed."""
        level, how = (logging.WARNING, f"failed: {run.complaint}") if run.failed else (logging.INFO, "succeeded")
        logger.log(level, "command %s of %s: after %.3g s %s", command.id, work.project, run.duration_ms / 1_000, how)

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
        left_s = work.lease_left_s()
        if work.lost.is_set() or left_s <= 0 or self._is_interrupted:
            return True
        # Keep what is done. A single command that takes longer gets the next lease, which is longer.
        return bool(work.runs) and left_s < min(CLOSE_EARLY_S, work.lease_s / 10)

    def _close(self, work: Work) -> None:
        """Close the list. Retries while the store is unavailable and the lease lasts."""
        task = self._engine.keeper.let_go(work.held)
        shown = self._live.let_go(work)
        if work.lost.is_set():
            _say_lost(work, "another worker has claimed it")
            self._settle(Result(deletes=shown))
            return
        if work.lease_left_s() <= 0:
            logger.warning("list %s of %s: its lease has ended", work.commands.name, work.project)
        # Try even then, because no other worker may have claimed it yet.
        entry = self._closed(work, task, work.finished(), shown)
        self._engine.settling.write([entry], is_patient=lambda: work.lease_left_s() > 0)

    def _closed(self, work: Work, task: Task, finished: Finished, shown: Sequence[int]) -> Entry:
        return Entry(
            commit=closed(task, finished, shown), refused=partial(self._not_closed, work, task, finished, shown)
        )

    def _not_closed(
        self, work: Work, task: Task, finished: Finished, shown: Sequence[int], problem: Exception
    ) -> Entry | None:
        if isinstance(problem, InvalidInput) and not finished.is_shortened:
            return self._closed(work, task, finished.without_most_output(), shown)
        if isinstance(problem, CommitRefused) and shown and task.id not in named(problem.refusal):
            return self._closed(work, task, finished, ())  # Someone deleted its live output.
        if isinstance(problem, InvalidInput):
            logger.error("list %s of %s can't be closed: %s", work.commands.name, work.project, problem)
        else:
            _say_lost(work, problem)
            self._not_done(problem)
        return None

    def _settle(self, *commits: Result) -> None:
        """Commit without retries: otherwise the end of the lease does the same."""
        made = [commit for commit in commits if commit.adds or commit.updates or commit.deletes]
        entries = [Entry(commit=commit, refused=self._not_done) for commit in made]
        self._engine.settling.write(entries, is_patient=lambda: False)

    def _not_done(self, problem: Exception) -> None:
        if not isinstance(problem, (*AWAY, CommitRefused)):
            self._engine.fail(problem)


def list_of(task: Task) -> CommandList:
    """Return the list that a task carries. Raises NotACommand."""
    found = CommandList.decode(task.data)
    if not found.commands:
        raise NotACommand("the list has no commands")
    return found


def with_line(output: Output, line: str) -> Output:
    """Return the output with a line of the worker appended."""
    kept = output.kept
    is_begun = bool(kept) and not kept.endswith(b"\n")
    return Output.of(kept + ("\n" * is_begun + line + "\n").encode(), cut_at=output.cut_at, missing=output.missing)


def _say_lost(work: Work, why: object) -> None:
    logger.warning(
        "list %s of %s belongs to another worker now, so its results are discarded: %s",
        work.commands.name,
        work.project,
        why,
    )


class OutputTask:
    """The task that carries the output of a list. Each write replaces it."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.task_id = 0  # 0: not written yet.
        self.is_gone = False  # Someone deleted it, so it is not written again.
        self.written: tuple[int, News | None] | None = None  # The content of the last write.
        self.seen_at = time.monotonic()  # When the worker last knew that it held the list.


class Live:
    """The lists whose output is published. One thread calls `write` every second."""

    def __init__(self, store: Store, outage: Outage) -> None:
        self._store, self._outage = store, outage
        self._shown: dict[Work, OutputTask] = {}
        self._writing: Work | None = None  # Of the commit under way.
        self._change = threading.Condition()  # Guards the two above.

    def show(self, work: Work) -> None:
        with self._change:
            self._shown[work] = OutputTask(work)

    def let_go(self, work: Work) -> list[int]:
        """Stop publishing a list, after a write under way. Returns the ids of the tasks that carry its output."""
        with self._change:
            shown = self._shown.pop(work, None)
            self._change.wait_for(lambda: self._writing is not work)
        return [shown.task_id] if shown and shown.task_id else []

    def write(self) -> None:
        for shown in list(self._shown.values()):
            with self._change:
                if shown.work not in self._shown or shown.work.lost.is_set():
                    continue
                self._writing = shown.work
            try:
                self._write(shown)
            finally:
                with self._change:
                    self._writing = None
                    self._change.notify_all()

    def _write(self, shown: OutputTask) -> None:
        news, live = (len(shown.work.runs), shown.work.news), shown.work.live()
        try:
            if live and news != shown.written and not shown.is_gone:
                self._commit(shown, *live)
                shown.written = news
            elif time.monotonic() > shown.seen_at + CHECK_EVERY_S:
                if not shown.work.is_renewed and self._store.tasks([shown.work.task.id]) == [None]:
                    shown.work.lost.set()
                shown.seen_at = time.monotonic()
        except CommitRefused as refused:
            if shown.work.task.id in refused.refusal.depends:
                shown.work.lost.set()
            elif shown.task_id in named(refused.refusal):
                shown.task_id, shown.is_gone = 0, True
            else:
                logger.warning("list %s: can't show its live output: %s", shown.work.commands.name, refused)
                shown.is_gone = True
        except Exception as problem:  # Live output is optional, and a later write may succeed.
            self._outage.begin(problem)
        else:
            self._outage.end()

    def _commit(self, shown: OutputTask, command: Command, live: LiveOutput) -> None:
        data, labels = live.encode(), live_labels(live, command)
        # The id of a renewed list changes, and the thread that renews it notices a loss anyway.
        depends = () if shown.work.is_renewed else (shown.work.task.id,)
        if shown.task_id:
            change = Change(id=shown.task_id, data=data, error="", labels=labels)
            [task] = self._store.commit(updates=[change], depends=depends)
        else:
            new = NewTask(group=output_group(shown.work.project), data=data, labels=labels)
            [task] = self._store.commit(adds=[new], depends=depends)
        shown.task_id, shown.seen_at = task.id, time.monotonic()
