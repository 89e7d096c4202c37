"""What becomes of a job after an attempt, and the change that says so. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..types.job_record import Attempt, How, JobError, JobRecord, JobStatus, OnLost, finished_group, not_recorded
from ..types.tasks import Change, NewTask

if TYPE_CHECKING:
    from ..types.tasks import Task

FAILURES = frozenset({How.FAILED, How.DIED, How.TIMED_OUT})
LONGEST_BACKOFF_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is to be kept of a job, and where it goes."""

    record: JobRecord
    finished: JobStatus | None = None  # None: it is to be had again.
    in_ms: int = 0  # From when on.


def after(record: JobRecord, attempt: Attempt, *, result: Any = None, log: str = "") -> Verdict:
    """What becomes of a job by an attempt that has ended."""
    if attempt.how is How.SUCCEEDED:
        return _finished(JobStatus.SUCCEEDED, record, attempt, result=result, error=None, log=log)
    if is_over(record, attempt):
        return _finished(JobStatus.FAILED, record, attempt, error=attempt.error, log=log)
    if attempt.how is How.GIVEN_BACK:  # Nothing went wrong with it.
        return Verdict(record=record.with_attempt(replace(attempt, error=None)))
    kept = record.with_attempt(attempt, error=attempt.error, log=log)
    return Verdict(record=kept, in_ms=_backoff_ms(kept) if attempt.how in FAILURES else 0)


def is_over(record: JobRecord, attempt: Attempt) -> bool:
    """Whether a job has had all the tries that its options allow, once this attempt has gone wrong."""
    options = record.options
    if attempt.how is How.LOST:
        return options.on_lost is OnLost.FAIL or _times(record, frozenset({How.LOST})) + 1 >= options.max_lost
    return attempt.how in FAILURES and _times(record, FAILURES) + 1 >= options.max_attempts


def lost(record: JobRecord, times: int, ended: int, otherwise: Attempt) -> Verdict | None:
    """What becomes of a job whose workers died with it, so often. None: none did.

    `otherwise`: what is known of an attempt that the record does not show as under way.
    """
    verdict = None
    for _ in range(times):
        attempt = replace(record.under_way or otherwise, ended=ended, how=How.LOST)
        verdict = after(record, replace(attempt, error=_how_it_was_lost(attempt)), log=record.log)
        record = verdict.record
        if verdict.finished:
            break
    return verdict


def lost_before(task: Task, record: JobRecord, now_ms: int) -> Verdict | None:
    """What becomes of a job that was claimed now, by those who claimed it before and left no trace."""
    return lost(record, not_recorded(record, task.claims), now_ms, Attempt())


def lost_while_held(task: Task, record: JobRecord, now_ms: int, otherwise: Attempt) -> Verdict | None:
    """What becomes of a job that somebody holds who is dead."""
    return lost(record, not_recorded(record, task.claims + 1), now_ms, otherwise)


def change_of(task: Task, queue: str, verdict: Verdict) -> NewTask | Change:
    """An add takes the place of the task, which has to be deleted with it; a change replaces it.

    Raises TypeError or ValueError when the record is no JSON.
    """
    data = verdict.record.encode()
    if verdict.finished is None:
        return Change(id=task.id, data=data, error="", timespec_ms=-verdict.in_ms, release=True)
    error = verdict.record.error
    group = finished_group(queue, verdict.finished)
    return NewTask.successor_of(task, group=group, data=data, error=error.line if error else "")


def no_job(task: Task, queue: str, why: Exception) -> NewTask:
    """What lies among the jobs and is none is laid aside as it is."""
    return NewTask.successor_of(task, group=finished_group(queue, JobStatus.FAILED), error=str(why))


def _finished(status: JobStatus, record: JobRecord, attempt: Attempt, **members: Any) -> Verdict:
    return Verdict(record=record.with_attempt(replace(attempt, final=True), **members), finished=status)


def _times(record: JobRecord, how: frozenset[How]) -> int:
    return sum(attempt.how in how for attempt in record.counted)


def _backoff_ms(record: JobRecord) -> int:
    doublings = min(_times(record, FAILURES) - 1, 40)
    return min(record.options.backoff_ms << doublings, LONGEST_BACKOFF_MS)


def _how_it_was_lost(attempt: Attempt) -> JobError:
    who = f" {attempt.worker}" if attempt.worker else ""
    process = f", process {attempt.pid}" if attempt.pid else ""
    where = f", on {attempt.host}" if attempt.host else ""
    return JobError(type="WorkerLost", message=f"its worker{who}{process}{where} died with it, or lost its lease")
