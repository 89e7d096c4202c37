"""The executor of jobs, each of which runs in a process."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import pickle
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ..errors import CommitRefused, InvalidInput
from ..types.batches import AFTER_BATCH
from ..types.command_record import Output
from ..types.job_record import (
    DEFAULT_QUEUE,
    LONGEST_LOG,
    UNCOUNTED,
    How,
    JobError,
    JobOptions,
    JobRecord,
    OnLost,
    queue_of,
)
from ..types.job_record import Attempt as Attempted
from ..types.tasks import NOBODY, Change, Ending
from ..worker import children
from ..worker.children import Child, Children, Event, Gone, News, NotPrepared, Over, Prepare, Why
from ..worker.engine import MOST_OF_A_CLAIM, Attempt, nothing
from ..worker.handlers import Result, Then
from ..worker.heartbeat import BEAT_S, Chore
from ..worker.lease_keeper import AWAY
from ..worker.orphans import LOOK_EVERY_S, Orphans
from ..worker.outputs import OutputTo, copied_after
from ..worker.process_tree import whereabouts
from ..worker.settling import Entry
from ..worker.store import Store
from .results import MARK, ResultMissing, with_results
from .unknown_functions import INFO, UnknownFunctions
from .verdicts import (
    Outcome,
    Verdict,
    after,
    assigned,
    change_of,
    expired_before,
    given_back,
    left_to_others,
    lost_before,
    no_job,
    now_ms,
    outcome_of,
    without_attempt,
    without_texts,
)

if TYPE_CHECKING:
    from ..types.tasks import Task
    from ..worker.engine import Engine

logger = logging.getLogger(__name__)

QUICK_S = 0.25  # A job that takes longer is recorded as started; a shorter one is not worth another commit.
AT_ONCE, INSTANT_MS = 16, 5  # To hand over before their turn, if the recent average is below this.
AHEAD_MS = 50  # Jobs are quick if the recent average is below this.
UNDECLARED = JobOptions()
YIELD_S, ROUNDS = 0.2, 3
MOST_TOLD = 100  # The number of running jobs in a heartbeat.
FRAME = '  File "'  # Begins each of a traceback.


class Setup(NamedTuple):
    """How jobs are run."""

    prepare: Prepare
    processes: int  # At the same time.
    jobs_per_process: int
    spawn: bool
    kill_after_s: float
    memory_bytes: int | None  # The limit of jobs that don't set one.
    output: OutputTo
    alive: str  # A file to touch while there is contact with the store. Empty: none.


@dataclass(slots=True, kw_only=True, eq=False)
class Work(Attempt):
    """A job in progress."""

    job_id: int
    queue: str
    record: JobRecord
    takes_results: bool = False  # Of the step before.
    given: JobRecord | None = None  # With these results; None: it takes none.
    started_ms: int = 0  # 0: not started.
    ended_ms: int = 0
    pid: int = 0
    log: str = ""
    is_recorded: bool = False  # That it has started.
    written_log: str = ""
    written_pid: int = 0
    written_at: float = 0  # When that was last asked for.

    def claimed_again(self) -> None:
        self.record = without_attempt(self.record, self.started_ms)
        self.written_pid = 0  # So that it is written soon: by the record the next worker counts the claims.

    def wants_writing(self, now: float, logs_every_s: float) -> bool:
        """Whether to record that the job has started, or its new output."""
        if not self.pid or self.is_lost or now - max(self.taken_at, self.written_at) < QUICK_S:
            return False
        return self.pid != self.written_pid or (self.log != self.written_log and now - self.written_at > logs_every_s)


class Jobs:
    """Runs jobs. `groups`: those of the queues."""

    given_back = Outcome(How.GIVEN_BACK)

    def __init__(self, store: Store, groups: Sequence[str], setup: Setup) -> None:
        self._store, self._groups, self._setup = store, groups, setup
        self._unknown = UnknownFunctions(store, groups, lambda: self._children.about, self._is_idle)
        self._asked = self._given_back = 0  # By the last claim, and by how many in a row that brought nothing else.
        self._average_ms = float(AHEAD_MS)  # The recent average duration.
        self._processes: list[JobProcess] = []
        self.end_s = setup.kill_after_s + 1
        self.at_once = setup.processes

    def start(self, engine: Engine[Work, Outcome]) -> Sequence[Chore]:
        self._engine = engine
        if self._setup.alive:
            try:
                Path(self._setup.alive).touch()
            except OSError as problem:
                raise NotPrepared(f"the file to touch can't be written: {problem}") from None
        self._place = Attempted(worker=engine.name, host=socket.gethostname())
        self._children = Children(self._setup.prepare, spawn=self._setup.spawn)
        self._children.start()
        self._orphans = Orphans(self._store, self._groups, engine.settling, "jobs", given_back)
        return [(BEAT_S, self._touch), (LOOK_EVERY_S, self._look)]

    def _look(self) -> None:
        """Look for the jobs of dead workers, and for those that others left because they don't have the function."""
        clients = self._orphans.look()
        for _ in range(ROUNDS):  # Again at once: whoever has taken one of them and left it rests for a moment.
            if not (entries := self._unknown.bring_forward(clients)):
                return
            # What is to come later belongs to nobody. A refusal means that another worker was faster.
            self._engine.settling.write(entries, client_id=NOBODY)
            self._engine.stopping.wait(YIELD_S / 2)

    def _touch(self) -> None:
        """Show a service manager that the worker has contact with the store."""
        if self._setup.alive and time.monotonic() < self._engine.keeper.outage.heard_at + 3 * BEAT_S:
            Path(self._setup.alive).touch()

    def place(self) -> Callable[[Work], Outcome]:
        self._processes.append(JobProcess(self, self._engine, self._children))
        return self._processes[-1].run

    def begin(self, attempts: Sequence[Work]) -> Sequence[Work]:
        return attempts

    def room(self, in_work: int) -> int:
        # Many jobs in a row that it can only give back are not to keep others waiting.
        room = self._engine.room(in_work)
        self._asked = room and max(room, min(2 * self._given_back, MOST_OF_A_CLAIM))
        return self._asked

    def _is_idle(self) -> bool:
        return len(self._engine.works) < self._setup.processes

    def _running(self) -> Sequence[Work]:
        return [work for process in self._processes for work in list(process.works.values())[:1]]

    def attempts(self, tasks: Sequence[Task], own: Mapping[int, Work]) -> Sequence[Work]:
        """Return the jobs to run, less those whose earlier workers died too often."""
        entries: list[Entry] = []
        works: list[Work] = []
        left = 0
        for task in tasks:
            queue = queue_of(task.group) or DEFAULT_QUEUE
            try:
                record = JobRecord.decode(task.data)
                if attempt := self._unknown.attempt_at(record.function, self._place):
                    change = change_of(task, queue, left_to_others(record, attempt))
                    entries.append(Entry.of(change, refused=partial(_say_lost, task.origin)))
                    left += 1
                    continue
                record = self._declared(record)
                if task.origin in own:
                    record = without_attempt(record, own[task.origin].started_ms)
                verdict = lost_before(task, record, now_ms()) or expired_before(task, record, now_ms(), self._place)
                finished = change_of(task, queue, verdict) if verdict and verdict.finished else None
            except (TypeError, ValueError) as problem:  # Includes NotAJob.
                finished = no_job(task, queue, problem)
            if finished:
                entries.append(Entry.of(finished, refused=partial(_say_lost, task.origin)))
                continue
            record = verdict.record if verdict else record
            work = Work(task=task, job_id=task.origin, queue=queue, record=record, takes_results=MARK in task.data)
            self._engine.keeper.keep(work)
            works.append(work)
        # By the thread that writes: the store may be unavailable, and the others are to begin.
        self._engine.settling.put([(entry.itself, entry.commit.size) for entry in entries])
        are_all, are_more = left == len(tasks), len(tasks) >= self._asked
        self._given_back = self._given_back + left if are_all and are_more else 0
        if are_all and not are_more:  # Let others claim what they brought forward. Jobs to run don't wait for that.
            self._engine.stopping.wait(YIELD_S)
        return works

    def _declared(self, record: JobRecord) -> JobRecord:
        """Return the record with the options that its function declares, where none were given."""
        declared: JobOptions = self._children.about.get(record.function, UNDECLARED)
        return replace(record, options=record.options.over(declared))

    def renewed_at(self) -> float:
        return math.inf

    def end(self) -> None:
        self._children.end()

    def info(self) -> Mapping[str, Any]:
        """Return the `info` of a heartbeat, from which other workers on this machine learn whether this one is dead."""
        works = [work for work in self._running() if work.started_ms]
        jobs = [{"id": work.job_id, "pid": work.pid} for work in works[:MOST_TOLD]]
        told = {"processes": self._setup.processes, "in_work": len(works), "jobs": jobs, INFO: self._unknown.info()}
        return {**whereabouts(os.getpid()), **told}

    # ---- The thread of a process

    def may_begin(self, work: Work) -> bool:
        """Whether to start a job, after its start is recorded if it is to fail when its worker dies."""
        if is_recorded_first(work) and not self._engine.stopping.is_set():
            entry = self._record(work)
            entries = [entry] if entry else []
            self._engine.settling.write(entries, is_patient=lambda: not self._engine.stopping.is_set())
            if entry and not work.is_recorded:
                return False
        return not (work.is_interrupted or self._engine.stopping.is_set())

    def results_missing(self, work: Work) -> Outcome | None:
        """Read the results that a job takes. Returns how it ended if that can't be."""
        while not self._engine.stopping.is_set():
            try:
                work.given = with_results(work.record, work.task.labels.get(AFTER_BATCH, ""), self._store)
                return None
            except AWAY:
                self._engine.stopping.wait(1)
            except Exception as problem:
                error = JobError(type=type(problem).__name__, message=str(problem))
                return Outcome(How.FAILED, error=error, then=Then.FAIL if isinstance(problem, ResultMissing) else None)
        return self.given_back

    def order(self, work: Work) -> tuple[children.Work, tuple[bytes]]:
        """Return the limits of a job, and what its process is told."""
        timeout_ms = work.record.options.timeout_ms
        limits = children.Work(
            limit_s=None if timeout_ms is None else timeout_ms / 1_000,
            memory_bytes=self._memory_of(work),
            kill_after_s=self._setup.kill_after_s,
            tail_bytes=4 * LONGEST_LOG,  # A character has at most 4 bytes in UTF-8.
            copied_after=copied_after(self._setup.output, _said_by(work)),
        )
        after_batch = work.task.labels.get(AFTER_BATCH, "")
        return limits, (
            pickle.dumps(assigned(work.given or work.record, work.job_id, self._place.worker, after_batch)),
        )

    def outcome(self, work: Work, over: Over) -> Outcome:
        took_ms = round(over.took_s * 1_000)
        work.ended_ms = work.started_ms + took_ms
        self._average_ms += (took_ms - self._average_ms) / 10
        outcome = outcome_of(over, text_of(over.out), work.record.options.timeout_ms, self._memory_of(work))
        if outcome.then is Then.LEAVE and outcome.error:
            self._unknown.note(work.record.function, outcome.error)
        return outcome

    def hear(self, work: Work, news: News) -> None:
        work.pid, work.log = news.pid, text_of(news.out)
        if news.progress:
            self._engine.reports.note(work.job_id, *news.progress)

    def at_once_in_process(self) -> int:
        """Return how many jobs a process may have, of which it runs one."""
        if self._average_ms >= AHEAD_MS:
            return 1
        return 2 if self._average_ms > INSTANT_MS else AT_ONCE

    def look_after(self, work: Work) -> None:
        """Record that a job has started, and its output; leave jobs that wait for too long to other workers."""
        now = time.monotonic()
        if work.wants_writing(now, logs_every_s=self._engine.keeper.duration_ms / 3_000):
            work.written_at, work.written_log, work.written_pid = now, work.log, work.pid
            self._engine.settling.put([(partial(self._record, work), len(work.log))])
        self._engine.give_back_waiting(now - QUICK_S)

    def _memory_of(self, work: Work) -> int | None:
        return work.record.options.memory_bytes or self._setup.memory_bytes

    # ---- What is written

    def _record(self, work: Work) -> Entry | None:
        """Return the record of a job that has started, which also renews the lease. None: it can't be written."""
        if work.is_over:
            return None
        attempt = replace(self._place, started=work.started_ms, pid=work.pid)
        try:
            data = work.record.with_attempt(attempt, log=work.log).encode()
        except ValueError:
            return None
        task = self._engine.keeper.let_go(work)
        change = Change(id=task.id, data=data, error="", timespec_ms=-self._engine.keeper.duration_ms)
        return Entry.of(
            change,
            written=partial(self._recorded, work),
            refused=partial(self._not_recorded, work, task),
            held=work,
            frees_keys=False,
        )

    def _recorded(self, work: Work, tasks: Sequence[Task]) -> None:
        work.is_recorded = True
        work.current = tasks[0]
        self._engine.keeper.keep(work)

    def _not_recorded(self, work: Work, task: Task, problem: Exception) -> None:
        self._engine.keeper.keep(work)
        if isinstance(problem, CommitRefused):
            with suppress(*AWAY):  # Then the next renewal tells.
                self._engine.keeper.refused(work, task)
            return
        work.is_recorded = not isinstance(problem, AWAY)  # For example, its log makes it too large for the store.

    def entry(self, attempt: Work, outcome: Outcome) -> Entry | None:
        """Return the result of a job, unless its lease is lost."""
        work, task = attempt, self._engine.keeper.let_go(attempt)
        if work.is_lost:
            self._say_not_kept(work)
            return None
        tried = replace(
            self._place,
            started=work.started_ms,
            ended=work.ended_ms or now_ms(),
            how=outcome.how,
            pid=outcome.pid,
            error=outcome.error,
        )
        return self._entry(work, task, after(work.record, tried, outcome))

    def _say_not_kept(self, work: Work, problem: Exception | None = None) -> None:
        if work.is_cancelled:
            logger.info("job %d: cancelled", work.job_id)
            getattr(self._store, "cancelled_here", nothing)(work.job_id)  # That of a Django project sends signals.
        else:
            _say_lost(work.job_id, problem)

    def _entry(self, work: Work, task: Task, verdict: Verdict) -> Entry | None:
        def written(tasks: Sequence[Task]) -> None:
            if not verdict.record.lacks_function:  # That is told once.
                _say_ended(work, verdict, self._setup.output)

        more: dict[str, Any] = {
            "written": written,
            "refused": partial(self._not_written, work, task, verdict),
            "held": work,
            "is_last": True,
            "frees_keys": bool(task.unique),
        }
        if verdict.is_discarded:
            return Entry(commit=Result(deletes=[task.id]), **more)
        try:
            change = change_of(task, work.queue, verdict)
        except (TypeError, ValueError) as problem:
            return self._not_written(work, task, verdict, problem)
        return Entry.of(change, **more)

    def _not_written(self, work: Work, task: Task, verdict: Verdict, problem: Exception) -> Entry | None:
        if isinstance(problem, CommitRefused):
            with suppress(*AWAY):
                _, end = self._engine.keeper.led_to(task)
                work.is_cancelled = bool(end and end.how is Ending.CANCELLED)
            self._say_not_kept(work, problem)
        elif not isinstance(problem, InvalidInput | TypeError | ValueError):
            logger.error("job %d: its result can't be written, so another worker will get it: %s", work.job_id, problem)
        elif verdict.record == (bare := without_texts(verdict.record)):
            return Entry.of(no_job(task, work.queue, problem), refused=partial(_say_lost, task.origin))
        elif verdict.record.result is None:
            return self._entry(work, task, dataclasses.replace(verdict, record=bare))
        else:
            # The store rejects the result as too large, so the job fails with that error.
            error = JobError(type=type(problem).__name__, message=f"its result can't be kept: {problem}")
            attempt = replace(verdict.record.attempts[-1], how=How.FAILED, error=error, final=False)
            failed = Outcome(How.FAILED, log=verdict.record.log, then=Then.FAIL)
            return self._entry(work, task, after(work.record, attempt, failed))
        return None


class JobProcess:
    """Runs jobs in a process, and replaces its runner if that dies. Quick jobs are handed over before their turn."""

    def __init__(self, jobs: Jobs, engine: Engine[Work, Outcome], children: Children) -> None:
        self._jobs, self._engine, self._children = jobs, engine, children
        self._child: Child | None = children.new()
        self.works: dict[int, Work] = {}  # By their numbers, the one that runs first.

    def run(self, work: Work) -> Outcome:
        """Run a job, and others that come meanwhile."""
        self._begin(work)
        while self.works:
            (_, running), *others = self.works.items()
            if now_ms() - running.started_ms < QUICK_S * 1_000:
                self._hand_over()
            elif self._child:
                for number, _ in reversed(others):
                    self._child.stop(number, only_waiting=True)
            ended: list[tuple[Work, Outcome]] = []
            for event in self._child.wait(QUICK_S) if self._child else ():
                ended += self._hear(event)
            self._engine.finish(ended)
            for running in list(self.works.values())[:1]:
                self._jobs.look_after(running)
        return Jobs.given_back  # Unless it has ended.

    def _hand_over(self) -> None:
        """Hand over jobs before their turn, but none whose start is recorded first, or that take results."""
        most = self._jobs.at_once_in_process()
        others = self._engine.others(most - len(self.works)) if len(self.works) <= most // 2 else ()
        wait = (place for place, other in enumerate(others) if is_recorded_first(other) or other.takes_results)
        first = next(wait, len(others))
        for other in reversed(others[first:]):
            self._engine.put_back(other)
        self._order(others[:first])

    def _begin(self, work: Work) -> None:
        if not self.works:
            work.started_ms = now_ms()
            if not self._jobs.may_begin(work):
                work.started_ms = 0
                self._engine.finish([(work, Jobs.given_back)])
                return
            if work.takes_results and (outcome := self._jobs.results_missing(work)):
                self._engine.finish([(work, outcome)])
                return
        self._order([work])

    def _order(self, works: Sequence[Work]) -> None:
        if not works:
            return
        child = self._child = self._child or self._children.new()
        for number, work in zip(child.run_all(map(self._jobs.order, works)), works, strict=True):
            self.works[number] = work
            work.on_interrupt(partial(stop, child, number))

    def _hear(self, event: Event) -> Iterator[tuple[Work, Outcome]]:
        """Yield works that have ended."""
        running = next(iter(self.works.values()), None)
        if isinstance(event, Over):
            work = self.works.pop(event.number)
            if event.why is not Why.NOT_BEGUN:
                yield work, self._jobs.outcome(work, event)
            elif not work.is_interrupted:
                self._engine.put_back(work)
            else:
                yield work, Jobs.given_back
            for following in list(self.works.values())[:1]:
                # The end was told with a delay, and maybe that of the following ones with it.
                following.started_ms = following.started_ms or work.ended_ms or now_ms()
        elif isinstance(event, Gone):
            works, self.works = self.works, {}
            if self._child:
                self._children.discard(self._child)
            self._child = None
            for work in works.values():
                if work is running:
                    error = JobError(type="WorkerLost", message="its parent process died")
                    yield work, Outcome(How.LOST, error=error, pid=work.pid, log=work.log)
                else:
                    self._engine.put_back(work)
        elif running and isinstance(event, News):
            self._jobs.hear(running, event)


def stop(child: Child, number: int, _: object) -> None:
    """Interrupt a job where it runs."""
    child.stop(number)


def is_recorded_first(work: Work) -> bool:
    """Whether its start is recorded before, because it is to fail when its worker dies."""
    return work.record.options.filled().on_lost is OnLost.FAIL


def _said_by(work: Work) -> str:
    return f"job {work.job_id} {work.record.function}: "


def _say_ended(work: Work, verdict: Verdict, output: OutputTo) -> None:
    """Log the outcome of a job, how long it took, and its error."""
    attempt = verdict.record.attempts[-1]
    traceback = attempt.error.traceback if attempt.error and output != "store" else ""
    if traceback[traceback.rfind(FRAME) :] in verdict.record.log:  # The job has written it, or a logger of its own.
        traceback = ""
    error = f": {attempt.error.line}" if attempt.error else ""
    again = f"; again in {verdict.in_ms / 1_000:g} s" if verdict.in_ms else ""
    logger.log(
        logging.INFO if attempt.how in (How.SUCCEEDED, *UNCOUNTED) else logging.WARNING,
        "job %d of %s, %s: %s after %.3g s%s%s%s",
        work.job_id,
        work.queue,
        work.record.function,
        "discarded" if verdict.is_discarded else attempt.how,
        max(0, attempt.ended - attempt.started) / 1_000 if attempt.started else 0,
        error,
        again,
        "".join(f"\n{_said_by(work)}{line}" for line in traceback.splitlines()),
    )


def _say_lost(job_id: int, problem: Exception | None = None) -> None:
    why = problem or "it was changed, or another worker has claimed it"
    logger.warning("job %d is no longer held here, so its result is discarded: %s", job_id, why)


def text_of(output: Output) -> str:
    """Return the end of what a job wrote. Invalid UTF-8 becomes the replacement character."""
    return output.kept.decode(errors="replace")[-LONGEST_LOG:]
