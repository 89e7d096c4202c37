"""A job as its task carries it: a function, its parameters, and what came of it (contract.md section 7). Pure.

A job is a task: of the group `jobs/QUEUE` until it is finished, then of `jobs/QUEUE/succeeded` or `jobs/QUEUE/failed`.
Its data is a JSON object with the members of `JobRecord`. Its origin is its id for good.
Workers in any language can read and write it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from . import records, sentences
from .tasks import NewTask, State

DEFAULT_QUEUE = "default"
PREFIX = "jobs/"
FUNCTION_LABEL = "function"  # By which the jobs of a function are found.
LONGEST_LOG = 16 * 2**10  # Characters: the end of what the job wrote.
LONGEST_FUNCTION = 255  # Characters, as of every label.
LONGEST_QUEUE = 240  # Characters: with what stands around it, it is the name of a group.


class JobStatus(StrEnum):
    """Where a job is on its way."""

    SCHEDULED = "scheduled"  # Its time has not come.
    PENDING = "pending"
    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


FINISHED = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED})


class OnLost(StrEnum):
    """What becomes of a job whose worker died with it."""

    RETRY = "retry"
    FAIL = "fail"


class How(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # The function raised an exception.
    DIED = "died"  # Its process ended without an answer: killed, out of memory, os._exit.
    TIMED_OUT = "timed out"
    LOST = "lost"  # Its worker died, or lost the lease.
    GIVEN_BACK = "given back"  # The worker stopped before it was done. It counts for nothing.


class NotAJob(ValueError):
    """The data of a task is not that of a job. The text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobError:
    """What went wrong in the last attempt."""

    type: str  # The class of the exception, with its module unless that is builtins.
    message: str = ""
    traceback: str = ""

    @property
    def line(self) -> str:
        """In one line, as the task's error."""
        first = self.message.strip().partition("\n")[0]
        return f"{self.type}: {first}" if first else self.type


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try at the job, by a process of a worker. Times are milliseconds since the Epoch, by the worker's clock."""

    started: int = 0  # 0: not known.
    ended: int = 0  # 0: it has not ended.
    how: How | None = None  # None: it has not ended.
    worker: str = ""
    host: str = ""
    pid: int = 0  # Of the process that ran the function.
    error: JobError | None = None
    final: bool = False  # The job was finished by it. A job that is requeued starts to count anew.


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """How a job is run. Durations are milliseconds."""

    max_attempts: int = 1  # How often at most the function is tried until it succeeds.
    backoff_ms: int = 1_000  # Before the second try; twice as long before each further one, at most an hour.
    timeout_ms: int | None = None  # For one attempt. None: as long as it takes.
    memory_bytes: int | None = None  # For the process of the job. None: what the machine has.
    on_lost: OnLost = OnLost.RETRY
    max_lost: int = 3  # How often its worker may die until the job is reported failed.


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """What the task of a job holds as its data."""

    function: str  # The dotted path under which workers know it.
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: JobOptions = JobOptions()
    attempts: tuple[Attempt, ...] = ()  # The oldest first; the last may be under way.
    result: Any = None
    error: JobError | None = None  # Of the last attempt, when it went wrong.
    log: str = ""  # The end of what the last attempt wrote to its outputs.

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises NotAJob, which names the member that is wrong. Members that are not known are left out."""
        try:
            return records.decode(cls, data)
        except (ValueError, RecursionError) as problem:
            raise NotAJob(f"invalid record of a job: {problem}") from None

    def encode(self) -> bytes:
        """Raises TypeError or ValueError when parameters or result are no JSON."""
        return records.encode(self)

    @property
    def counted(self) -> tuple[Attempt, ...]:
        """The attempts that count: those since the job was last finished, without those that were given back."""
        since = max((place for place, each in enumerate(self.attempts, 1) if each.final), default=0)
        return tuple(each for each in self.attempts[since:] if each.how is not How.GIVEN_BACK)

    @property
    def under_way(self) -> Attempt | None:
        last = self.attempts[-1] if self.attempts else None
        return last if last and last.how is None else None

    def requeued(self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None) -> Self:
        """To be run once more, with these parameters in place of the old ones; None: they stay.

        What was tried stays too, but counts no longer.
        """
        return replace(
            self,
            args=self.args if args is None else args,
            kwargs=self.kwargs if kwargs is None else kwargs,
            attempts=(*self.attempts[:-1], *(replace(last, final=True) for last in self.attempts[-1:])),
            result=None,
            error=None,
            log="",
        )

    def with_attempt(self, attempt: Attempt, **changes: Any) -> Self:
        """The attempt added, in place of the one under way if there is one, and other members changed."""
        before = self.attempts[:-1] if self.under_way else self.attempts
        return replace(self, attempts=(*before, attempt), **changes)


def queue_group(queue: str) -> str:
    """The group of the jobs of a queue that are not finished."""
    return f"{PREFIX}{queue}"


def finished_group(queue: str, status: JobStatus) -> str:
    return f"{PREFIX}{queue}/{status}"


def groups_of(queue: str) -> tuple[str, str, str]:
    """Of the jobs that are not finished, that succeeded, that failed."""
    return (
        queue_group(queue),
        finished_group(queue, JobStatus.SUCCEEDED),
        finished_group(queue, JobStatus.FAILED),
    )


def queue_of(group: str) -> str | None:
    """The queue that a group belongs to; None for a group that holds no jobs."""
    if not group.startswith(PREFIX):
        return None
    queue, _, end = group.removeprefix(PREFIX).partition("/")
    return queue if queue and end in ("", *FINISHED) and group != f"{PREFIX}{queue}/" else None


def group_to_wait_in(group: str) -> str | None:
    """Where a job of this group waits when it is to run again; None for a group without finished jobs."""
    queue = queue_of(group)
    return queue_group(queue) if queue and group != queue_group(queue) else None


def status_of(group: str, state: State) -> JobStatus:
    """What a job is, by the group that it lies in and the state of its task there."""
    end = group.rpartition("/")[2]
    if group.count("/") > 1 and end in FINISHED:
        return JobStatus(end)
    return {State.CLAIMED: JobStatus.STARTED, State.SCHEDULED: JobStatus.SCHEDULED}.get(state, JobStatus.PENDING)


def why_no_queue(name: str) -> str | None:
    """Why this can't be the name of a queue; None when it can."""
    if not name or "/" in name or "\0" in name:
        return sentences.NO_SLASH
    return sentences.at_most(LONGEST_QUEUE, "characters", len(name)) if len(name) > LONGEST_QUEUE else None


def new_task(record: JobRecord, *, queue: str = DEFAULT_QUEUE, at_ms: int = 0, priority: int = 0) -> NewTask:
    """The task that makes a job of the record. `at_ms`: as the time of every task that is added.

    Raises TypeError or ValueError when parameters are no JSON.
    """
    return NewTask(
        group=queue_group(queue),
        data=record.encode(),
        timespec_ms=at_ms,
        priority=priority,
        labels={FUNCTION_LABEL: record.function},
    )


def not_recorded(record: JobRecord, claims: int) -> int:
    """How many claims before this one left no trace: of workers that died with the job.

    `claims`: of the task as it was claimed now. An attempt that is recorded as under way is among them.
    """
    return max(0, claims - 1 - sum(attempt.how is not None for attempt in record.attempts))
