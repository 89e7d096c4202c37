"""The executor of jobs. One thread hears of the processes that run them, and one records the results.

So no two changes of a job are ever in progress. The thread that records waits for an unavailable store, while the other
one goes on, so that a stopping worker knows when its jobs have ended.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import CommitRefused, InvalidInput
from ..types.command_record import Output
from ..types.job_record import (
    DEFAULT_QUEUE,
    LONGEST_LOG,
    UNCOUNTED,
    Attempt,
    How,
    JobError,
    JobOptions,
    JobRecord,
    OnLost,
    queue_of,
)
from ..types.tasks import Change
from ..worker import children
from ..worker.children import Child, Children, Event, Gone, News, Over, Prepare, Why
from ..worker.engine import PATIENCE_S
from ..worker.handlers import Result
from ..worker.heartbeat import SEND_EVERY_S, Chore, Reports
from ..worker.lease_keeper import Held
from ..worker.orphans import LOOK_EVERY_S, Orphans
from ..worker.process_tree import whereabouts
from ..worker.settling import AWAY, Entry
from ..worker.store import Store
from .process import packed
from .verdicts import (
    FAILURES,
    Outcome,
    Verdict,
    after,
    change_of,
    given_back,
    is_over,
    lost_before,
    no_job,
    now_ms,
    outcome_of,
)

if TYPE_CHECKING:
    from ..types.tasks import Task
    from ..worker.engine import Engine

logger = logging.getLogger(__name__)

QUICK_S = 0.25  # A job that takes longer is recorded as started; a shorter one is not worth another commit.
AHEAD = 16  # The number of jobs to queue for each process while jobs are quick.
AHEAD_MS = 50  # Jobs are quick if the recent average is below this.
UNDECLARED, FAILED = JobOptions(), Attempt(how=How.FAILED)
MOST_TOLD = 100  # The number of running jobs in a heartbeat.


class Setup(NamedTuple):
    """How jobs are run."""

    prepare: Prepare
    processes: int  # At the same time.
    jobs_per_process: int
    spawn: bool
    kill_after_s: float
    memory_bytes: int | None  # The limit of jobs that don't set one.


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """A job in progress."""

    key: int  # The id with which its task was claimed.
    job_id: int
    queue: str
    record: JobRecord
    held: Held
    child: Child | None = None  # None: it waits for a process, or has ended.
    number: int = 0  # Of the runs of its child.
    records_start: bool = False  # Before it is started, because the job is to fail if the worker dies.
    is_stopped: bool = False  # While its start is recorded.
    taken_at: float = field(default_factory=time.monotonic)
    started_ms: int = 0  # 0: not started.
    pid: int = 0
    log: str = ""
    written_log: str = ""
    written_pid: int = 0
    written_at: float | None = None  # When it was last recorded as started.
    ended_ms: int = 0  # 0: it has not ended. Otherwise its result is written next, when the store is there.

    def is_late(self, now: float) -> bool:
        """Whether to give the job back, because it has waited too long for a free process."""
        return not self.started_ms and now - self.taken_at > QUICK_S

    def wants_writing(self, now: float, logs_every_s: float) -> bool:
        """Whether to record that the job has started, or its new output."""
        if not self.started_ms or self.ended_ms or self.held.lost.is_set():
            return False
        if self.written_at is None:
            return self.records_start or (bool(self.pid) and now - self.taken_at > QUICK_S)
        is_long = self.pid != self.written_pid and now - self.written_at > QUICK_S
        return is_long or (self.log != self.written_log and now - self.written_at > logs_every_s)

    def run(self, child: Child, worker: str, setup: Setup) -> None:
        """Have a process run the job."""
        record, options = self.record, self.record.options.filled()
        assigned = {
            "function": record.function,
            "job_id": self.job_id,
            "args": record.args,
            "kwargs": record.kwargs,
            "attempt": 1 + sum(attempt.how in FAILURES for attempt in record.counted),
            "is_last": is_over(record, FAILED),
            "worker": worker,
            "backoff_ms": options.backoff_ms,
            "has_limit": options.timeout_ms is not None,
        }
        limits = children.Work(
            limit_s=None if options.timeout_ms is None else options.timeout_ms / 1_000,
            memory_bytes=options.memory_bytes or setup.memory_bytes,
            kill_after_s=setup.kill_after_s,
            tail_bytes=4 * LONGEST_LOG,  # A character has at most 4 bytes in UTF-8.
        )
        self.child, self.number = child, child.run(limits, packed(assigned))


class Jobs:
    """Runs jobs. `groups`: those of the queues."""

    def __init__(self, store: Store, groups: Sequence[str], setup: Setup) -> None:
        self._store, self._groups, self._setup = store, groups, setup
        self._ahead_of_each = min(setup.jobs_per_process, AHEAD)
        self._average_ms = float(AHEAD_MS)  # The recent average duration.
        self._is_over = False
        self._has_heard_all = False
        self._unwritten: set[Work] = set()  # That have ended.
        self._over: deque[int] = deque()  # The keys of those that have just ended.
        self.end_s = setup.kill_after_s + 1
        self.at_once = setup.processes
        self._ends_at = math.inf  # When to stop waiting for an unavailable store.
        self._turn = threading.Lock()  # Guards the next three.
        self._waiting: deque[Work] = deque()
        # The works of each process by their numbers, the one that runs first. 0: its start is being recorded.
        self._working: dict[Child, dict[int, Work]] = {}

    def start(self, engine: Engine[Work]) -> None:
        self._engine = engine
        self._place = Attempt(worker=engine.name, host=socket.gethostname())
        self._reports = Reports(self._store)
        orphans = Orphans(self._store, self._groups, engine.settling, "jobs", given_back)
        self.chores: Sequence[Chore] = [(LOOK_EVERY_S, orphans.look), (SEND_EVERY_S, self._reports.send)]
        self._children = Children(self._setup.prepare, spawn=self._setup.spawn)
        self._children.start()
        self._working = {self._children.new(): {} for _ in range(self._setup.processes)}
        self._heard: SimpleQueue[tuple[Work, Outcome] | None] = SimpleQueue()  # None: check the jobs, or end.
        self._writing = threading.Thread(target=self._write_until_over, name="jobs", daemon=True)
        self._listening = threading.Thread(target=self._listen, name="processes", daemon=True)
        for thread in (self._writing, self._listening):
            thread.start()

    def is_idle(self) -> bool:
        return not self._unwritten

    def room(self, in_work: int) -> int:
        ahead = self._ahead_of_each * self._quick_processes() if self._average_ms < AHEAD_MS else 0
        most = self._setup.processes + ahead
        return 0 if in_work >= most - ahead // 2 else most - in_work

    def _quick_processes(self) -> int:
        """Count the processes that may soon be free: slow jobs leave other jobs to other workers."""
        slow_ms = now_ms() - AHEAD_MS
        running = [next(iter(works.values()), None) for works in list(self._working.values())]
        return sum(work is None or work.started_ms > slow_ms for work in running)

    def take(self, tasks: Sequence[Task]) -> None:
        """Start jobs, unless their earlier workers died too often."""
        entries: list[Entry] = []
        for task in tasks:
            queue = queue_of(task.group) or DEFAULT_QUEUE
            try:
                record = self._declared(JobRecord.decode(task.data))
                verdict = lost_before(task, record, now_ms())
                finished = change_of(task, queue, verdict) if verdict and verdict.finished else None
            except (TypeError, ValueError) as problem:  # Includes NotAJob.
                finished = no_job(task, queue, problem)
            if finished:
                entries.append(Entry.of(finished, refused=partial(_say_lost, task.origin)))
                continue
            work = Work(
                key=task.id,
                job_id=task.origin,
                queue=queue,
                record=verdict.record if verdict else record,
                records_start=record.options.filled().on_lost is OnLost.FAIL,
                held=self._engine.keeper.keep(task, partial(self._lose, task.id, task.origin)),
            )
            if not self._engine.begin(task.id, work, partial(self._run, work)):
                entries += self._settled(work, Outcome.given_back())
        self._engine.settling.write(entries)

    def _declared(self, record: JobRecord) -> JobRecord:
        """Return the record with the options that its function declares, where none were given."""
        declared: JobOptions = self._children.about.get(record.function, UNDECLARED)
        return replace(record, options=record.options.over(declared))

    def stop(self) -> None:
        """Do nothing: queued jobs start soon or are taken back."""

    def interrupt(self) -> None:
        self._ends_at = time.monotonic() + self._setup.kill_after_s + PATIENCE_S
        for work in list(self._engine.works.values()):
            self._stop(work)

    def end(self) -> None:
        """Wait a few seconds until all results are written."""
        self._is_over = True
        self._children.end()
        self._writing.join(min(PATIENCE_S, self._ends_at - time.monotonic()))
        if self._writing.is_alive():
            logger.warning("the store is not responding: other workers get unreported jobs when their leases end")

    def info(self) -> Mapping[str, Any]:
        """Return the `info` of a heartbeat, from which other workers on this machine learn whether this one is dead."""
        works = [work for work in list(self._engine.works.values()) if work.started_ms]
        jobs = [{"id": work.job_id, "pid": work.pid} for work in works[:MOST_TOLD]]
        return {**whereabouts(os.getpid()), "processes": self._setup.processes, "in_work": len(works), "jobs": jobs}

    def _run(self, work: Work) -> None:
        with self._turn:
            self._waiting.append(work)
        self._start_what_waits()

    def _start_what_waits(self) -> None:
        # While jobs are quick, a process need not wait for this one before it starts the next job.
        most = 2 if self._average_ms < AHEAD_MS and self._setup.jobs_per_process > 1 else 1
        with self._turn:
            for depth in range(most):
                for child, works in self._working.items():
                    if len(works) != depth or 0 in works or not self._waiting:
                        continue
                    if self._waiting[0].records_start:
                        if depth == 0:
                            works[0] = self._waiting.popleft()
                            works[0].started_ms = now_ms()
                            self._heard.put(None)
                    else:
                        work = self._waiting.popleft()
                        work.run(child, self._place.worker, self._setup)
                        works[work.number] = work
                        if depth == 0:
                            work.started_ms = now_ms()

    def _stop(self, work: Work, *, only_waiting: bool = False) -> None:
        """End a job, or give it back if it has not started."""
        with self._turn:
            is_waiting = work in self._waiting
            if is_waiting:
                self._waiting.remove(work)
            work.is_stopped = True
        if is_waiting:
            self._end_work(work, Outcome.given_back())
            self._tell_over()
        elif child := work.child:
            child.stop(work.number, only_waiting=only_waiting)

    def _lose(self, key: int, job_id: int) -> None:
        _say_lost(job_id)
        if work := self._engine.works.get(key):
            self._stop(work)

    # ---- The thread that listens to the processes

    def _listen(self) -> None:
        try:
            while (heard := self._children.receive()) is not None:
                for child, event in heard:
                    self._hear(child, event)
                self._start_what_waits()
                self._tell_over()
            for child in list(self._working):
                self._hear(child, Gone())
            for work in list(self._waiting):
                self._stop(work)
        except Exception as problem:
            self._engine.fail(problem)
        finally:
            self._tell_over()
            self._has_heard_all = True
            self._heard.put(None)

    def _hear(self, child: Child, event: Event) -> None:
        works = self._working.get(child, {})
        running = next(iter(works.values()), None)
        if isinstance(event, Over):
            with self._turn:
                work = works.pop(event.number, None)
                for following in list(works.values())[:1]:
                    following.started_ms = following.started_ms or now_ms()
            if work:
                self._end(work, event)
        elif isinstance(event, Gone):
            self._leave(child)
        elif running and isinstance(event, News):
            running.pid, running.log = event.pid, text_of(event.out)
            if event.progress:
                self._reports.note(running.job_id, *event.progress)
            self._heard.put(None)

    def _leave(self, child: Child) -> None:
        """Replace a runner that has died, and give back the jobs that it had not started."""
        is_needed = not (self._is_over or self._engine.stopping.is_set())
        new = self._children.new() if is_needed else None
        with self._turn:
            works = self._working.pop(child, {})
            if new:
                self._working[new] = {}
        for work in works.values():
            error = JobError(type="WorkerLost", message="its parent process died")
            lost = Outcome(How.LOST, error=error, pid=work.pid, log=work.log)
            self._end_work(
                work, lost if work.started_ms and not (work.records_start or self._is_over) else Outcome.given_back()
            )

    def _end(self, work: Work, over: Over) -> None:
        if over.why is Why.NOT_BEGUN:
            self._end_work(work, Outcome.given_back())
            return
        self._average_ms += (over.took_s * 1_000 - self._average_ms) / 10
        timeout_ms = work.record.options.timeout_ms
        self._end_work(work, outcome_of(over, text_of(over.out), timeout_ms, self._memory_of(work)))

    def _memory_of(self, work: Work) -> int | None:
        return work.record.options.memory_bytes or self._setup.memory_bytes

    def _end_work(self, work: Work, outcome: Outcome) -> None:
        work.child, work.ended_ms = None, now_ms()
        self._unwritten.add(work)
        self._heard.put((work, outcome))
        # After that: once no task is in progress, the writer only waits for what was received until then.
        self._over.append(work.key)

    def _tell_over(self) -> None:
        """Have others claimed in place of the jobs that have ended."""
        over = []
        with suppress(IndexError):
            while True:
                over.append(self._over.popleft())
        if over:
            self._engine.done(*over)

    # ---- The thread that writes

    def _write_until_over(self) -> None:
        try:
            while not (self._has_heard_all and self._heard.empty()):
                ended = list(self._ended())
                entries = [entry for work, outcome in ended for entry in self._settled(work, outcome)]
                self._engine.settling.write([*entries, *self._look_after_works()])
                self._unwritten.difference_update(work for work, _ in ended)
        except Exception as problem:
            self._engine.fail(problem)

    def _ended(self) -> Iterator[tuple[Work, Outcome]]:
        """Yield the jobs that have ended. Waits until there is something to write or to check."""
        patience_s = QUICK_S if self._engine.works else None
        with suppress(Empty):
            if heard := self._heard.get(timeout=patience_s):
                yield heard
            while True:
                if heard := self._heard.get_nowait():
                    yield heard

    def _look_after_works(self) -> Sequence[Entry]:
        """Return the records of started jobs to write, and take back jobs that wait too long."""
        now = time.monotonic()
        entries = []
        for work in list(self._engine.works.values()):
            if work.is_late(now):
                self._stop(work, only_waiting=True)
            if not work.wants_writing(now, logs_every_s=self._engine.keeper.duration_ms / 3_000):
                continue
            work.written_at, work.written_log, work.written_pid = now, work.log, work.pid
            attempt = replace(self._place, started=work.started_ms, pid=work.pid)
            try:
                data = work.record.with_attempt(attempt, log=work.log).encode()
            except ValueError:
                if work.records_start:
                    self._start_recorded(work)
                continue
            # This also renews the lease.
            task = self._engine.keeper.let_go(work.held)
            change = Change(id=task.id, data=data, error="", timespec_ms=-self._engine.keeper.duration_ms)
            written, refused = partial(self._keep_on, work), partial(self._refused_while_run, work)
            entries.append(Entry.of(change, written=written, refused=refused))
        return entries

    def _keep_on(self, work: Work, tasks: Sequence[Task]) -> None:
        work.held = self._engine.keeper.keep(tasks[0], partial(self._lose, work.key, work.job_id))
        if work.records_start:
            self._start_recorded(work)

    def _start_recorded(self, work: Work) -> None:
        """Start a job whose start is recorded, unless it is to stop or its runner has died."""
        work.records_start = False
        if work.ended_ms:
            return
        with self._turn:
            child = next((child for child, works in self._working.items() if works.get(0) is work), None)
            if child:
                del self._working[child][0]
                if not work.is_stopped and not work.held.lost.is_set():
                    work.run(child, self._place.worker, self._setup)
                    self._working[child][work.number] = work
                    return
        self._end_work(work, Outcome.given_back())
        self._tell_over()
        self._start_what_waits()

    def _refused_while_run(self, work: Work, problem: Exception) -> None:
        if isinstance(problem, AWAY):
            work.is_stopped = True  # Its start is not recorded, so it must not be started.
        if isinstance(problem, CommitRefused):
            work.held.lose()
            if work.records_start:
                self._start_recorded(work)
        else:  # For example, its log makes it too large for the store.
            self._keep_on(work, [work.held.task])

    def _settled(self, work: Work, outcome: Outcome) -> Sequence[Entry]:
        """Return the result of a job to write, unless its lease is lost."""
        task = self._engine.keeper.let_go(work.held)
        if work.held.lost.is_set():
            return ()
        attempt = replace(
            self._place,
            started=work.started_ms,
            ended=work.ended_ms or now_ms(),
            how=outcome.how,
            pid=outcome.pid,
            error=outcome.error,
        )
        entry = self._entry(work, task, after(work.record, attempt, outcome))
        return (entry,) if entry else ()

    def _entry(self, work: Work, task: Task, verdict: Verdict) -> Entry | None:
        def written(tasks: Sequence[Task]) -> None:
            _say_ended(work, verdict)

        refused = partial(self._not_written, work, task, verdict)
        if verdict.is_discarded:
            return Entry(commit=Result(deletes=[task.id]), written=written, refused=refused)
        try:
            change = change_of(task, work.queue, verdict)
        except (TypeError, ValueError) as problem:
            return self._not_written(work, task, verdict, problem)
        return Entry.of(change, written, refused)

    def _not_written(self, work: Work, task: Task, verdict: Verdict, problem: Exception) -> Entry | None:
        if isinstance(problem, CommitRefused):
            _say_lost(work.job_id, problem)
        elif not isinstance(problem, InvalidInput | TypeError | ValueError):
            logger.error("job %d: its result can't be written, so another worker will get it: %s", work.job_id, problem)
        elif verdict.record.result is None:
            # Even the record without a result is rejected.
            return Entry.of(no_job(task, work.queue, problem), refused=partial(_say_lost, task.origin))
        else:
            # The store rejects the result as too large, so the job fails with that error.
            error = JobError(type=type(problem).__name__, message=f"its result can't be kept: {problem}")
            attempt = replace(verdict.record.attempts[-1], how=How.FAILED, error=error, final=False)
            return self._entry(work, task, after(work.record, attempt))
        return None


def _say_ended(work: Work, verdict: Verdict) -> None:
    """Log the outcome of a job, how long it took, and its error."""
    attempt = verdict.record.attempts[-1]
    error = f": {attempt.error.line}" if attempt.error else ""
    again = f"; again in {verdict.in_ms / 1_000:g} s" if verdict.in_ms else ""
    logger.log(
        logging.INFO if attempt.how in (How.SUCCEEDED, *UNCOUNTED) else logging.WARNING,
        "job %d of %s, %s: %s after %.3g s%s%s",
        work.job_id,
        work.queue,
        work.record.function,
        "discarded" if verdict.is_discarded else attempt.how,
        max(0, attempt.ended - attempt.started) / 1_000 if attempt.started else 0,
        error,
        again,
    )


def _say_lost(job_id: int, problem: Exception | None = None) -> None:
    logger.warning("job %d belongs to another worker now, so its result is discarded. %s", job_id, problem or "")


def text_of(output: Output) -> str:
    """Return the end of what a job wrote. Invalid UTF-8 becomes the replacement character."""
    return output.kept.decode(errors="replace")[-LONGEST_LOG:]
