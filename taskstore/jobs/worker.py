"""A worker of jobs: it claims them, has its nursery run each in a process, and writes down what came of them.

One thread claims, one renews the leases, one listens to the nursery; what they find out is done by another, one thing
after the other, so that no two changes of a job are ever under way. That one waits for a store that is away. The thread
of `run` never does: it sees to it that all comes to its end in time.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

from ..errors import CommitRefused, InvalidInput
from ..types.job_record import DEFAULT_QUEUE, How, JobError, JobRecord, queue_group, queue_of
from ..types.tasks import Change, NewTask, Order
from ..worker.engine import stopping_by_signals
from ..worker.heartbeat import Heartbeat
from ..worker.lease_keeper import Keeper
from .messages import Nursing, RunOutcome
from .nursery_link import NurseryLink
from .orphans import JobStore, Orphans, now_ms, whereabouts
from .processes import end_group
from .results import AWAY, SOON_S, Entry, Ledger
from .verdicts import Verdict, after, change_of, lost_before, no_job
from .work import QUICK_S, Work, WorkerIdentity

if TYPE_CHECKING:
    from ..types.tasks import Task

logger = logging.getLogger(__name__)

Message = dict[str, Any]

CLAIM_S = 0.5  # For the answer to a claim that is on its way at the end.
KILL_AFTER_MS = 5_000  # How long after SIGTERM a job is ended by SIGKILL.
PATIENCE_S = 5.0  # At the end: for what does not end, and then for a store that does not answer.
AHEAD = 8  # Jobs a process, at most: so many may wait for their turn while jobs are quick.
AHEAD_MS = 50  # How long a job takes, on average of late, that is quick.
MOST_TOLD = 100  # Of the jobs in work, with a heartbeat.


class JobWorker:
    """Runs jobs of these queues, `processes` at the same time.

    * `runner`: what finds their functions: `module:callable` and the words that it is called with, once, in the
      process that those of the jobs are copies of. See `resolving`.
    * `lease_ms`: how long it may take until others get the jobs of a worker whose machine has died.
    * `jobs_per_process`: more than 1 saves the time that a process takes, for quick jobs. They share what they leave
      behind in it.
    * `start`: "spawn" makes each process a fresh interpreter, for modules that start threads when imported.
    * `memory_bytes`: for the process of a job that says nothing of its own.
    * `grace_s`: how long jobs may go on when the worker stops. Then they are given back. A store that is away then is
      waited for as little: what it was not told is left to the leases.
    * `kill_after_ms`: how long a job may take to end that was told to.
    * `wait_ms`: how long a request waits for a job, which it brings at once.
    """

    def __init__(
        self,
        store: JobStore,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        *,
        runner: Sequence[str],
        processes: int | None = None,
        lease_ms: int = 30_000,
        jobs_per_process: int = 1,
        start: Literal["fork", "spawn"] = "fork",
        name: str = "",
        memory_bytes: int | None = None,
        grace_s: float = 8,  # Docker kills after ten.
        kill_after_ms: int = KILL_AFTER_MS,
        wait_ms: int = 20_000,
    ) -> None:
        self._processes = processes or os.cpu_count() or 1
        self._ahead = self._processes * min(jobs_per_process, AHEAD)
        self._average_ms = float(AHEAD_MS)  # How long jobs take of late.
        self._place = WorkerIdentity(worker=name or f"{socket.gethostname()}:{os.getpid()}", host=socket.gethostname())
        self._groups = [queue_group(each) for each in queues]
        self._store, self._lease_ms, self._memory_bytes = store, lease_ms, memory_bytes
        self._grace_s, self._wait_ms = grace_s, wait_ms
        self._setup = Nursing(
            runner=runner,
            processes=self._processes,
            jobs_per_process=jobs_per_process,
            spawn=start == "spawn",
            kill_after_ms=kill_after_ms,
        )
        self._keys = count(1)
        self._works: dict[int, Work] = {}  # By key.
        self._change = threading.Condition()  # Of what is in work, and of the nursery it is in.
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()  # What is to be done.
        self._entries: list[Entry] = []  # What is to be written.
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()  # To stop. A signal handler may put something in.
        self._stop_at = math.inf  # When jobs are told to end.
        self._stopping = threading.Event()
        self._last_turn, self._has_ended = threading.Lock(), False
        self._problem: BaseException | None = None

    @property
    def name(self) -> str:
        return self._place.worker

    def run(self) -> None:
        """Work until `stop` is called, or SIGTERM or SIGINT come. Raises NotPrepared, and NotAllowed.

        It can be called once. In the main thread it listens for the signals; a second one ends the process at once.
        """
        self._link = self._new_nursery()
        with stopping_by_signals(self.stop):
            self._begin()
            logger.info("%s works for %s, at most %d at a time", self.name, ", ".join(self._groups), self._processes)
            try:
                self._calls.get()
                self._begin_to_stop()
                self._wait_for_the_end()
            finally:
                self._end()
        if self._problem:
            raise self._problem

    def stop(self) -> None:
        """Have `run` come to its end. It may be called by any thread, and by a signal handler."""
        self._stop_at = min(self._stop_at, time.monotonic() + self._grace_s)
        self._calls.put(None)

    # ---- The thread of `run`

    def _begin(self) -> None:
        self._keeper = Keeper(self._store, self._lease_ms)
        self._ledger = Ledger(self._store, self._is_patient, self._keeper.outage)
        self._heartbeat = Heartbeat(self._store, self.name, self._groups, self._info)
        self._orphans = Orphans(self._store, self._groups, self._keeper.outage)
        self._claims = threading.Thread(target=self._claim_until_stopped, name="claims", daemon=True)
        self._doing = threading.Thread(target=self._do_until_over, name="jobs", daemon=True)
        for part in (self._keeper, self._heartbeat, self._orphans, self._claims, self._doing):
            part.start()

    def _wait_for_the_end(self) -> None:
        """Of the jobs, and for a few seconds more until all is written."""
        self._doing.join(max(0, self._stop_at - time.monotonic()))
        for work in list(self._works.values()):
            work.link.stop(work.key)
        with self._change:
            self._change.wait_for(lambda: not self._works, self._setup.kill_after_ms / 1000 + PATIENCE_S)
        self._doing.join(PATIENCE_S)

    def _end(self) -> None:
        self._stopping.set()
        self._orphans.stop()
        self._keeper.stop()
        self._link.end()
        if self._doing.is_alive():
            logger.warning("the store does not answer: jobs that it was not told of go to others when their leases end")
            self._heartbeat.stop(patience_s=0)
        else:
            self._heartbeat.stop()

    def _new_nursery(self) -> NurseryLink:
        link = NurseryLink(self._setup, self._hear)
        link.prepare()
        if link.threads_found > 1:
            logger.warning("the jobs' modules started threads, which copies of a process lack: better use spawn")
        return link

    def _info(self) -> Message:
        """For the page of the workers, and for others on this machine."""
        works = [work for work in list(self._works.values()) if work.started_ms]
        jobs = {str(work.job_id): work.pid for work in works[:MOST_TOLD]}
        return {**whereabouts(os.getpid()), "processes": self._processes, "in_work": len(works), "jobs": jobs}

    # ---- The thread that claims

    def _claim_until_stopped(self) -> None:
        try:
            while room := self._wait_for_room():
                for task in self._claim(room):
                    self._take(task)
            with self._last_turn:
                if self._has_ended:  # An answer that came after that is given back from here.
                    self._do_what_came(0)
        except Exception as problem:
            self._fail(problem)

    def _wait_for_room(self) -> int:
        """How many jobs to claim; 0: no more."""
        with self._change:
            self._change.wait_for(lambda: self._stopping.is_set() or len(self._works) < self._processes)
            ahead = self._ahead if self._average_ms < AHEAD_MS else 0
            return 0 if self._stopping.is_set() else self._processes + ahead - len(self._works)

    def _claim(self, limit: int) -> list[Task]:
        """An empty list when there is nothing to do, or the store is away."""
        try:
            tasks = self._store.claim(
                self._groups, duration_ms=self._lease_ms, limit=limit, wait_ms=self._wait_ms, order=Order.OLDEST
            )
        except AWAY as problem:
            self._keeper.outage.begin(problem)
            self._stopping.wait(getattr(problem, "retry_after_s", SOON_S))
            return []
        self._keeper.outage.end()
        return tasks

    def _take(self, task: Task) -> None:
        """Have the job run, unless those who claimed it before were its end."""
        name = queue_of(task.group) or DEFAULT_QUEUE
        try:
            record = JobRecord.decode(task.data)
            verdict = lost_before(task, record, now_ms())
            finished = change_of(task, name, verdict) if verdict and verdict.finished else None
        except (TypeError, ValueError) as problem:  # NotAJob is one.
            finished = no_job(task, name, problem)
        if finished:
            self._later(task, finished)
        else:
            self._assign(task, name, verdict.record if verdict else record)

    def _assign(self, task: Task, name: str, record: JobRecord) -> None:
        key = next(self._keys)
        held = self._keeper.keep(task, partial(self._lose, key))
        with self._change:
            work = Work(key=key, job_id=task.origin, queue=name, record=record, held=held, link=self._link)
            if self._stopping.is_set():
                self._inbox.put(partial(self._settle, work, work.outcome(How.GIVEN_BACK, "its worker stopped")))
                return
            self._works[key] = work
            # With the lock: when the nursery is replaced, all that it had is known.
            work.link.run(work.assignment(self.name, self._memory_bytes))

    def _later(self, task: Task, change: NewTask | Change) -> None:
        self._inbox.put(lambda: self._entries.append(_laid_aside(task, change)))

    # ---- The thread that listens to the nursery

    def _hear(self, link: NurseryLink, message: Message | None) -> None:
        if message is None:
            self._inbox.put(partial(self._replace, link))
        elif "how" in message:
            self._hear_end(RunOutcome.of(message))
        elif work := self._works.get(message.get("started") or message.get("log") or 0):
            self._hear_of(work, message)

    def _hear_of(self, work: Work, message: Message) -> None:
        if "started" in message:
            work.start(message["pid"])
        else:
            work.log = message["text"]
        self._inbox.put(_nothing_more)  # So that it looks when it has to write that down.

    def _hear_end(self, outcome: RunOutcome) -> None:
        with self._change:
            work = self._works.get(outcome.key)
            if work:
                # First this: who sees that nothing is in work has to see what is to be done, too.
                self._inbox.put(partial(self._settle, work, outcome))
                del self._works[outcome.key]
                self._average_ms += (outcome.ended - outcome.started - self._average_ms) / 10
                self._change.notify_all()

    # ---- The thread that renews

    def _lose(self, key: int) -> None:
        if work := self._works.get(key):
            _say_lost(work.job_id)
            work.link.stop(key)

    # ---- The thread that does what there is to do

    def _do_until_over(self) -> None:
        try:
            while not self._is_over():
                self._do_what_came(self._patience_s())
            self._claims.join(CLAIM_S)
            with self._last_turn:
                self._do_what_came(0)
                self._has_ended = True
        except Exception as problem:
            self._fail(problem)

    def _do_what_came(self, patience_s: float | None) -> None:
        """Do all that there is to do, and write what comes of it."""
        for act in self._acts(patience_s):
            act()
        self._mind()
        while self._entries:
            entries, self._entries = self._entries, []
            self._ledger.write(entries)

    def _acts(self, patience_s: float | None) -> Iterator[Callable[[], None]]:
        try:
            yield self._inbox.get(timeout=patience_s) if patience_s != 0 else self._inbox.get_nowait()
            while True:
                yield self._inbox.get_nowait()
        except queue.Empty:
            return

    def _patience_s(self) -> float | None:
        """Until something has to be looked at although nothing happens. None: nothing has to."""
        return QUICK_S if self._works else None

    def _mind(self) -> None:
        """Look after the jobs in work."""
        now = time.monotonic()
        for work in list(self._works.values()):
            if work.wants_writing(now, logs_every_s=self._lease_ms / 3000):
                self._record(work, now)
            if work.is_late(now):
                work.link.take_back(work.key)
        if now > self._stop_at + self._setup.kill_after_ms / 1000 + PATIENCE_S:
            self._leave([*self._works.values()], How.GIVEN_BACK, "its worker stopped")

    def _record(self, work: Work, now: float) -> None:
        """Write down that it is under way; which renews its lease, too."""
        work.written_at, work.written_log = now, work.log
        task = self._keeper.let_go(work.held)
        try:
            data = work.under_way(self._place).encode()
        except ValueError:
            self._keep_on(work, task)
            return
        change = Change(id=task.id, data=data, error="", timespec_ms=-self._lease_ms)
        self._entries.append(
            Entry(change=change, written=partial(self._keep_on, work), refused=partial(self._refused_while_run, work))
        )

    def _keep_on(self, work: Work, task: Task) -> None:
        work.held = self._keeper.keep(task, partial(self._lose, work.key))

    def _refused_while_run(self, work: Work, problem: Exception) -> None:
        if isinstance(problem, CommitRefused):
            work.held.lose()
        else:  # With its log it is larger than the store takes, say.
            self._keep_on(work, work.held.task)

    def _settle(self, work: Work, outcome: RunOutcome) -> None:
        """Have it written what came of the job, unless it is no longer ours."""
        task = self._keeper.let_go(work.held)
        if work.held.lost.is_set():
            return
        verdict = after(work.record, work.ended(outcome, self._place), result=outcome.result, log=outcome.log)
        self._enter(work, task, verdict)

    def _enter(self, work: Work, task: Task, verdict: Verdict) -> None:
        try:
            change = change_of(task, work.queue, verdict)
        except (TypeError, ValueError) as problem:
            self._not_written(work, task, verdict, problem)
            return
        refused = partial(self._not_written, work, task, verdict)
        self._entries.append(Entry(change=change, written=_nothing, refused=refused))

    def _not_written(self, work: Work, task: Task, verdict: Verdict, problem: Exception) -> None:
        if isinstance(problem, CommitRefused):
            _say_lost(work.job_id, problem)
        elif not isinstance(problem, InvalidInput | TypeError | ValueError):
            logger.error("job %d: what came of it can't be written, and others will get it: %s", work.job_id, problem)
        elif verdict.record.result is None:
            # Not even its record can be kept, with what it holds already.
            self._entries.append(_laid_aside(task, no_job(task, work.queue, problem)))
        else:
            # The result is more than the store takes: that is what came of it.
            error = JobError(type=type(problem).__name__, message=f"its result can't be kept: {problem}")
            attempt = replace(verdict.record.attempts[-1], how=How.FAILED, error=error, final=False)
            self._enter(work, task, after(work.record, attempt))

    def _replace(self, link: NurseryLink) -> None:
        """A nursery has died, and all its processes with it."""
        link.end()
        if not self._stopping.is_set():
            logger.error("the process that starts the jobs has died; another one is started")
            self._use_another_nursery()
        works = [work for work in list(self._works.values()) if work.link is link]
        self._leave(works, How.LOST, "the process that started it died, and it with that")

    def _use_another_nursery(self) -> None:
        try:
            new = self._new_nursery()
        except Exception as problem:
            self._fail(problem)
        else:
            with self._change:
                self._link = new

    def _leave(self, works: Sequence[Work], how: How, text: str) -> None:
        """Nothing more will be heard of them."""
        for work in works:
            if work.pid:
                end_group(work.pid, signal.SIGKILL)
            with self._change:
                self._works.pop(work.key, None)
                self._change.notify_all()
            # What waited for its turn was not touched.
            self._settle(work, work.outcome(how if work.started_ms else How.GIVEN_BACK, text))

    def _fail(self, problem: BaseException) -> None:
        """What can only get worse ends the worker."""
        self._problem = problem
        self.stop()
        self._begin_to_stop()

    def _begin_to_stop(self) -> None:
        with self._change:
            if self._works and not self._stopping.is_set():
                # Else whoever pressed Ctrl-C wonders why it goes on.
                logger.info("stopping: jobs in work (%d) have %g s to end", len(self._works), self._grace_s)
            self._stopping.set()
            self._change.notify_all()
        self._inbox.put(_nothing_more)  # So that it looks whether all is over.

    def _is_patient(self) -> bool:
        """Whether to wait for a store that is away."""
        return time.monotonic() < self._stop_at

    def _is_over(self) -> bool:
        with self._change:
            return self._stopping.is_set() and not self._works and self._inbox.empty()


def _laid_aside(task: Task, change: NewTask | Change) -> Entry:
    return Entry(change=change, written=_nothing, refused=partial(_say_lost, task.origin))


def _say_lost(job_id: int, problem: Exception | None = None) -> None:
    logger.warning("job %d is no longer ours: what came of it here is dropped. %s", job_id, problem or "")


def _nothing(_: object) -> None:
    """There is no more to do."""


def _nothing_more() -> None:
    """Only to have looked."""
