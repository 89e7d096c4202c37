"""A job that a worker has in hand."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..types.job_record import Attempt, How, JobError, JobRecord
from ..worker.lease_keeper import Held
from .messages import Assignment, RunOutcome
from .verdicts import FAILURES, is_over

if TYPE_CHECKING:
    from .nursery_link import NurseryLink

QUICK_S = 0.25  # What takes longer is recorded as under way; what does not is not worth a commit of its own.


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """Where a worker works."""

    worker: str
    host: str


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    key: int  # Of this run of the job.
    job_id: int
    queue: str
    record: JobRecord
    held: Held
    link: NurseryLink
    taken_at: float = field(default_factory=time.monotonic)
    started_ms: int = 0  # 0: it waits for its turn.
    pid: int = 0
    log: str = ""
    written_log: str = ""
    written_at: float | None = None  # When it was last recorded as under way.

    def start(self, pid: int) -> None:
        self.pid, self.started_ms = pid, time.time_ns() // 1_000_000

    def is_late(self, now: float) -> bool:
        """Whether others had better have it than it wait longer for its turn here."""
        return not self.started_ms and now - self.taken_at > QUICK_S

    def wants_writing(self, now: float, logs_every_s: float) -> bool:
        """Whether its record should say that it is under way, or what it wrote meanwhile."""
        if not self.started_ms or self.held.lost.is_set():
            return False
        if self.written_at is None:
            return now - self.taken_at > QUICK_S
        return self.log != self.written_log and now - self.written_at > logs_every_s

    def under_way(self, place: WorkerIdentity) -> JobRecord:
        attempt = Attempt(started=self.started_ms, worker=place.worker, host=place.host, pid=self.pid)
        return self.record.with_attempt(attempt, log=self.log)

    def ended(self, outcome: RunOutcome, place: WorkerIdentity) -> Attempt:
        return Attempt(
            started=outcome.started,
            ended=outcome.ended or time.time_ns() // 1_000_000,
            how=outcome.how,
            worker=place.worker,
            host=place.host,
            pid=outcome.pid,
            error=outcome.error,
        )

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
        """For one that its nursery says nothing of any more."""
        kind = {How.LOST: "WorkerLost"}.get(how, "Stopped")
        return RunOutcome(
            key=self.key,
            how=how,
            pid=self.pid,
            started=self.started_ms,
            error=JobError(type=kind, message=text),
            log=self.log,
        )
