"""The executor of commands. A thread for each claimed list has a runner run its commands, then closes the list.

The heartbeat thread publishes the output of running commands, for all lists of a worker.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import CommitRefused, InvalidInput
from ..jobs.orphans import whereabouts
from ..types.command_record import (
    Command,
    CommandList,
    LiveOutput,
    NotACommand,
    Output,
    Run,
    live_labels,
    output_group,
    place_of,
)
from ..types.tasks import Change, NewTask
from ..worker.engine import PATIENCE_S
from ..worker.handlers import Result
from ..worker.heartbeat import SEND_EVERY_S, Chore, Reports
from ..worker.lease_keeper import Held, Outage, named, nothing, renewal
from ..worker.settling import AWAY, Entry
from ..worker.store import Store
from .messages import Clock, Order, Ran, Setup, Wrote
from .runner_link import RunnerDied, RunnerLink
from .work import Finished, Times, Work, closed, given_back, laid_aside

if TYPE_CHECKING:
    from ..types.tasks import Task
    from ..worker.engine import Engine

logger = logging.getLogger(__name__)

CLOSE_EARLY_S = 5.0  # Before the end of a lease, at most; a tenth of it when that is less.
KILLED = 137


WRITE_EVERY_S = 1.0
CHECK_EVERY_S = 10.0  # Check that the worker still holds a list when no write has shown it.


class Lists:
    """`renew`: renew leases, instead of leasing each list for as long as its commands may take."""

    end_s = PATIENCE_S

    def __init__(self, projects: Sequence[str], setup: Setup, times: Times, *, lists_at_once: int, renew: bool) -> None:
        self._projects, self._setup, self._times = projects, setup, times
        self.at_once, self._renew = lists_at_once, renew
        self._idle: list[RunnerLink] = []
        self._is_interrupted = False

    def start(self, engine: Engine[Work]) -> None:
        self._engine = engine
        self._live = Live(engine.store, engine.keeper.outage)
        self._reports = Reports(engine.store)
        self.chores: Sequence[Chore] = [(WRITE_EVERY_S, self._live.write), (SEND_EVERY_S, self._reports.send)]

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
        for work in list(self._engine.works.values()):
            if work.link:
                work.link.kill()
        if self._idle:
            with ThreadPoolExecutor(len(self._idle)) as ending:
                ending.map(RunnerLink.end, self._idle)

    def info(self) -> Mapping[str, Any]:
        lists = {work.commands.name: len(work.runs) for work in list(self._engine.works.values())}
        return {**whereabouts(os.getpid()), "projects": self._projects, "lists": lists}

    # ---- The thread of a list

    def _do(self, work: Work) -> None:
        try:
            work.link = self._idle.pop()
        except IndexError:
            work.link = RunnerLink(self._setup)
        try:
            if self._renew:
                work.held = self._engine.keeper.keep(work.task, work.lost.set)
            elif work.lease_s > self._times.least_lease_s:
                self._extend(work)
            if not work.lost.is_set():
                self._live.show(work)
                self._run(work, work.link)
                self._close(work)
        except Exception as problem:
            self._engine.fail(problem)
            if not (work.link.is_alive or work.runs or work.lost.is_set()):
                # Nothing was begun: the runner could not be started, say. Others get the list at once.
                self._settle(given_back(self._engine.keeper.let_go(work.held), self._live.let_go(work)))
        finally:
            self._idle.append(work.link)
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

    def _run(self, work: Work, link: RunnerLink) -> None:
        limits = [(command, self._times.limit_s(command)) for command in work.commands.commands]
        ordered: Order | None = None
        try:
            for message in link.run(limits, work.clock):
                if message:
                    work.receive(message)
                    self._note_progress(work, message)
                if isinstance(message, Ran) and message.left:
                    command = work.commands.commands[message.place]
                    processes = "1 process" if message.left == 1 else f"{message.left} processes"
                    logger.info("command %s of %s left %s behind: killed", command.id, work.project, processes)
                if (order := self._order_for(work)) and order is not ordered:
                    link.order(order)
                    ordered = order
        except RunnerDied as died:
            logger.error("list %s of %s: %s", work.commands.name, work.project, died)
            place = work.running_place()
            if place is not None and ordered is not Order.STOP:
                # Record a failure instead of retrying: the command itself may have killed the runner.
                now, err = work.clock.now_s(), Output.of(f"{died}, and this command with it\n".encode())
                work.runs[place] = Run(worker=work.worker, started=now, ended=now, exit_code=KILLED, err=err)

    def _note_progress(self, work: Work, message: Wrote | Ran) -> None:
        """Report the progress of a running command as that of its list, which is the task that is leased."""
        if isinstance(message, Ran):
            self._reports.forget(work.task.origin)  # The next command must not get it.
        elif message.progress:
            self._reports.note(work.task.origin, *message.progress)

    def _order_for(self, work: Work) -> Order | None:
        left_s = work.lease_left_s()
        if work.lost.is_set() or left_s <= 0 or self._is_interrupted:
            return Order.STOP
        if work.runs and left_s < min(CLOSE_EARLY_S, work.lease_s / 10):
            # Keep what is done. A single command that takes longer gets the next lease, which is longer.
            return Order.STOP
        return Order.FINISH if self._engine.stopping.is_set() else None

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
        self.written: tuple[int, Wrote | None] | None = None  # The content of the last write.
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
        news, live = (len(shown.work.runs), shown.work.wrote), shown.work.live()
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
