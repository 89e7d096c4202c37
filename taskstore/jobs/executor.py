"""The executor of jobs. A fork server runs each job in a process, and one thread records the results.

So no two changes of a job are ever in progress. That thread waits for an unavailable store, while another one keeps
receiving from the fork server, so that a stopping worker knows when its jobs have ended.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from ..errors import CommitRefused, InvalidInput
from ..types.job_record import DEFAULT_QUEUE, Attempt, How, JobError, JobRecord, queue_of
from ..types.tasks import Change
from ..worker.engine import PATIENCE_S
from ..worker.heartbeat import SEND_EVERY_S, Chore, Reports
from ..worker.lease_keeper import Held
from ..worker.settling import Entry
from .fork_server_link import ForkServerLink, Message
from .messages import Assignment, RunOutcome, Setup, now_ms
from .orphans import LOOK_EVERY_S, JobStore, Orphans, whereabouts
from .processes import end_group
from .verdicts import FAILURES, Verdict, after, change_of, is_over, lost_before, no_job

if TYPE_CHECKING:
    from ..types.tasks import Task
    from ..worker.engine import Engine

logger = logging.getLogger(__name__)

QUICK_S = 0.25  # A job that takes longer is recorded as started; a shorter one is not worth another commit.
AHEAD = 8  # The number of jobs to queue for each process while jobs are quick.
AHEAD_MS = 50  # Jobs are quick if the recent average is below this.
MOST_TOLD = 100  # The number of running jobs in a heartbeat.
STOPPED = "its worker stopped"


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """A job in progress."""

    key: int  # The id with which its task was claimed.
    job_id: int
    queue: str
    record: JobRecord
    held: Held
    link: ForkServerLink
    taken_at: float = field(default_factory=time.monotonic)
    started_ms: int = 0  # 0: not started.
    pid: int = 0
    log: str = ""
    written_log: str = ""
    written_at: float | None = None  # When it was last recorded as started.
    has_ended: bool = False  # Its result is written next.

    def is_late(self, now: float) -> bool:
        """Whether to give the job back, because it has waited too long for a free process."""
        return not self.started_ms and now - self.taken_at > QUICK_S

    def wants_writing(self, now: float, logs_every_s: float) -> bool:
        """Whether to record that the job has started, or its new output."""
        if not self.started_ms or self.has_ended or self.held.lost.is_set():
            return False
        if self.written_at is None:
            return now - self.taken_at > QUICK_S
        return self.log != self.written_log and now - self.written_at > logs_every_s

    def assignment(self, worker: str, memory_bytes: int | None) -> Assignment:
        record = self.record
        return Assignment(
            key=self.key,
            function=record.function,
            job_id=self.job_id,
            args=record.args,
            kwargs=record.kwargs,
            attempt=1 + sum(attempt.how in FAILURES for attempt in record.counted),
            is_last=is_over(record, Attempt(how=How.FAILED)),
            worker=worker,
            timeout_ms=record.options.timeout_ms,
            memory_bytes=record.options.memory_bytes or memory_bytes,
        )

    def outcome(self, how: How, text: str) -> RunOutcome:
        """Return the outcome of a job whose fork server no longer reports it."""
        error = JobError(type={How.LOST: "WorkerLost"}.get(how, "Stopped"), message=text)
        return RunOutcome(key=self.key, how=how, pid=self.pid, started=self.started_ms, error=error, log=self.log)


class Jobs:
    """Runs jobs. `groups`: those of the queues. `memory_bytes`: the memory limit of jobs that don't set one."""

    def __init__(self, store: JobStore, groups: Sequence[str], setup: Setup, *, memory_bytes: int | None) -> None:
        self._store, self._groups, self._setup, self._memory_bytes = store, groups, setup, memory_bytes
        self._ahead = setup.processes * min(setup.jobs_per_process, AHEAD)
        self._average_ms = float(AHEAD_MS)  # The recent average duration.
        self._is_over = False
        self._has_heard_all = False
        self.end_s = setup.kill_after_ms / 1_000 + 1
        self.at_once = setup.processes
        self._ends_at = math.inf  # When to stop waiting for an unavailable store.

    def start(self, engine: Engine[Work]) -> None:
        self._engine = engine
        self._place = Attempt(worker=engine.name, host=socket.gethostname())
        self._reports = Reports(self._store)
        orphans = Orphans(self._store, self._groups, engine.settling)
        self.chores: Sequence[Chore] = [(LOOK_EVERY_S, orphans.look), (SEND_EVERY_S, self._reports.send)]
        self._link = self._new_server()
        self._heard: SimpleQueue[tuple[Work, RunOutcome] | None] = SimpleQueue()  # None: check the jobs, or end.
        self._writing = threading.Thread(target=self._write_until_over, name="jobs", daemon=True)
        self._listening = threading.Thread(target=self._listen, name="fork server", daemon=True)
        for thread in (self._writing, self._listening):
            thread.start()

    def room(self, in_work: int) -> int:
        if in_work >= self._setup.processes:  # Leave jobs to other workers while slow ones occupy all processes.
            return 0
        ahead = self._ahead if self._average_ms < AHEAD_MS else 0
        return self._setup.processes + ahead - in_work

    def take(self, tasks: Sequence[Task]) -> None:
        """Start jobs, unless their earlier workers died too often."""
        entries: list[Entry] = []
        for task in tasks:
            queue = queue_of(task.group) or DEFAULT_QUEUE
            try:
                record = JobRecord.decode(task.data)
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
                held=self._engine.keeper.keep(task, partial(self._lose, task.id, task.origin)),
                link=self._link,
            )
            if not self._engine.begin(task.id, work, partial(self._run, work)):
                entries += self._settled(work, work.outcome(How.GIVEN_BACK, STOPPED))
        self._engine.settling.write(entries)

    def stop(self) -> None:
        """Do nothing: queued jobs start soon or are taken back."""

    def interrupt(self) -> None:
        self._ends_at = time.monotonic() + self._setup.kill_after_ms / 1_000 + PATIENCE_S
        for work in list(self._engine.works.values()):
            work.link.stop(work.key)

    def end(self) -> None:
        """Wait a few seconds until all results are written."""
        self._is_over = True
        self._link.hang_up()
        self._writing.join(min(PATIENCE_S, self._ends_at - time.monotonic()))
        if self._writing.is_alive():
            logger.warning("the store is not responding: other workers get unreported jobs when their leases end")
        self._link.end()

    def info(self) -> Mapping[str, Any]:
        """Return the `info` of a heartbeat, from which other workers on this machine learn whether this one is dead."""
        works = [work for work in list(self._engine.works.values()) if work.started_ms]
        jobs = {str(work.job_id): work.pid for work in works[:MOST_TOLD]}
        return {**whereabouts(os.getpid()), "processes": self._setup.processes, "in_work": len(works), "jobs": jobs}

    def _run(self, work: Work) -> None:
        # `begin` holds the lock that replacing the server needs, so no job is lost with a dead server.
        work.link = self._link
        work.link.run(work.assignment(self._place.worker, self._memory_bytes))

    def _lose(self, key: int, job_id: int) -> None:
        _say_lost(job_id)
        if work := self._engine.works.get(key):
            work.link.stop(key)

    def _new_server(self) -> ForkServerLink:
        link = ForkServerLink(self._setup)
        if link.threads_found > 1:
            logger.warning("the jobs' modules started threads, which forked processes lack: use spawn")
        return link

    # ---- The thread that listens to the server

    def _listen(self) -> None:
        try:
            while True:
                link = self._link
                while (messages := link.receive()) is not None:
                    for message in messages:
                        self._hear(message)
                self._leave(link)
                if link is self._link:
                    return  # There is no other server.
        except Exception as problem:
            self._engine.fail(problem)
        finally:
            self._has_heard_all = True
            self._heard.put(None)

    def _hear(self, message: Message) -> None:
        works = self._engine.works
        if "how" in message:
            outcome = RunOutcome.of(message)
            if work := works.get(outcome.key):
                if outcome.started:  # Not for a job that was taken back or could not start.
                    self._average_ms += (outcome.ended - outcome.started - self._average_ms) / 10
                self._end_work(work, outcome)
        elif "started" in message and (work := works.get(message["started"])):
            work.pid, work.started_ms = message["pid"], now_ms()
            self._heard.put(None)
        elif "log" in message and (work := works.get(message["log"])):
            work.log = message["text"]
        elif "progress" in message and (work := works.get(message["progress"])):
            self._reports.note(work.job_id, message["done"], message["text"])

    def _end_work(self, work: Work, outcome: RunOutcome) -> None:
        # Before `done`: once no task is in progress, the writer only waits for what was received until then.
        work.has_ended = True
        self._heard.put((work, outcome))
        self._engine.done(work.key)

    def _leave(self, link: ForkServerLink) -> None:
        """Handle the end of a fork server, with which all its processes end."""
        link.end()
        if not self._engine.stopping.is_set():
            logger.error("the process that starts the jobs has died and is being replaced")
            try:
                new = self._new_server()
            except Exception as problem:
                self._engine.fail(problem)
            else:
                with self._engine.change:
                    self._link = new
        how, text = How.LOST, "its parent process died"
        if self._is_over:
            how, text = How.GIVEN_BACK, STOPPED
        for work in [work for work in list(self._engine.works.values()) if work.link is link]:
            if work.pid:
                end_group(work.pid, signal.SIGKILL)
            # A job that had not started is given back unchanged.
            self._end_work(work, work.outcome(how if work.started_ms else How.GIVEN_BACK, text))

    # ---- The thread that writes

    def _write_until_over(self) -> None:
        try:
            while not (self._has_heard_all and self._heard.empty()):
                ended = list(self._ended())
                entries = [entry for work, outcome in ended for entry in self._settled(work, outcome)]
                self._engine.settling.write([*entries, *self._look_after_works()])
        except Exception as problem:
            self._engine.fail(problem)

    def _ended(self) -> Iterator[tuple[Work, RunOutcome]]:
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
                work.link.take_back(work.key)
            if not work.wants_writing(now, logs_every_s=self._engine.keeper.duration_ms / 3_000):
                continue
            work.written_at, work.written_log = now, work.log
            attempt = replace(self._place, started=work.started_ms, pid=work.pid)
            try:
                data = work.record.with_attempt(attempt, log=work.log).encode()
            except ValueError:
                continue
            # This also renews the lease.
            task = self._engine.keeper.let_go(work.held)
            change = Change(id=task.id, data=data, error="", timespec_ms=-self._engine.keeper.duration_ms)
            written, refused = partial(self._keep_on, work), partial(self._refused_while_run, work)
            entries.append(Entry.of(change, written=written, refused=refused))
        return entries

    def _keep_on(self, work: Work, tasks: Sequence[Task]) -> None:
        work.held = self._engine.keeper.keep(tasks[0], partial(self._lose, work.key, work.job_id))

    def _refused_while_run(self, work: Work, problem: Exception) -> None:
        if isinstance(problem, CommitRefused):
            work.held.lose()
        else:  # For example, its log makes it too large for the store.
            self._keep_on(work, [work.held.task])

    def _settled(self, work: Work, outcome: RunOutcome) -> Sequence[Entry]:
        """Return the result of a job to write, unless its lease is lost."""
        task = self._engine.keeper.let_go(work.held)
        if work.held.lost.is_set():
            return ()
        attempt = replace(
            self._place,
            started=outcome.started,
            ended=outcome.ended or now_ms(),
            how=outcome.how,
            pid=outcome.pid,
            error=outcome.error,
        )
        entry = self._entry(work, task, after(work.record, attempt, result=outcome.result, log=outcome.log))
        return (entry,) if entry else ()

    def _entry(self, work: Work, task: Task, verdict: Verdict) -> Entry | None:
        try:
            change = change_of(task, work.queue, verdict)
        except (TypeError, ValueError) as problem:
            return self._not_written(work, task, verdict, problem)
        return Entry.of(change, refused=partial(self._not_written, work, task, verdict))

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


def _say_lost(job_id: int, problem: Exception | None = None) -> None:
    logger.warning("job %d belongs to another worker now, so its result is discarded. %s", job_id, problem or "")
