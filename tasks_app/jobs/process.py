"""The process of a job, as its nursery sees it."""

from __future__ import annotations

import signal
import socket
import time
from typing import Any

from ..job_record import How, JobError
from .messages import Assignment, Channel, Outcome, tree_of
from .output import Output
from .processes import end_group

TOLD = {  # How a job ended, by why it was told to.
    How.TIMED_OUT: "TimedOut",
    How.GIVEN_BACK: "GivenBack",
}


class Process:
    """A child, and the job that it runs."""

    def __init__(self, pid: int, end: socket.socket, output: int) -> None:
        self.pid = pid
        self.channel = Channel(end)
        self.output = Output(output)
        self.job: Assignment | None = None
        self.jobs_done = 0
        self.told: How | None = None  # Why it was told to end.
        self.told_text = ""
        self.ends_at: float | None = None  # When it will be told to end; once it was: killed.
        self.is_leaving = False  # It was ended, and gets no further job.

    @property
    def is_idle(self) -> bool:
        return self.job is None and not self.is_leaving

    def assign(self, job: Assignment) -> None:
        self.job, self.started_ms = job, now_ms()
        self.ends_at = None if job.timeout_ms is None else time.monotonic() + job.timeout_ms / 1000
        self.output.forget()
        self.channel.send(tree_of(job))

    def tell(self, why: How, text: str, kill_after_ms: int) -> None:
        """Have the job end, by an exception in it; a while later by force."""
        self.told, self.told_text = why, text
        self.ends_at = time.monotonic() + kill_after_ms / 1000
        end_group(self.pid, signal.SIGTERM)

    def outcome(self, how: How, error: JobError | None, result: Any = None) -> Outcome:
        assert self.job is not None  # noqa: S101 - for the types.
        self.output.read()
        return Outcome(
            key=self.job.key,
            how=how,
            pid=self.pid,
            started=self.started_ms,
            ended=now_ms(),
            result=result,
            error=error,
            log=self.output.text(),
        )

    def told_outcome(self, told: How, error: JobError | None) -> Outcome:
        """Of a job that was told to end: the traceback shows where it was."""
        where = error.traceback if error else ""
        return self.outcome(told, JobError(type=TOLD[told], message=self.told_text, traceback=where))

    def end(self) -> None:
        self.is_leaving = True
        self.ends_at = None
        end_group(self.pid, signal.SIGKILL)

    def close(self) -> None:
        self.channel.end.close()
        self.output.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000
