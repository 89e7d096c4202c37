"""The next state of a job after an attempt, and the change that records it. Pure."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..types.job_record import (
    FAILURES,
    LEFT_LABEL,
    UNCOUNTED,
    Attempt,
    How,
    JobError,
    JobRecord,
    JobStatus,
    OnLost,
    finished_group,
    not_recorded,
    queue_of,
)
from ..types.tasks import Change, NewTask
from ..types.texts import clean
from ..worker.children import Over, Why, cause_of_death
from ..worker.handlers import LONGEST_BACKOFF_MS, Then
from .process import Assignment

if TYPE_CHECKING:
    from ..types.tasks import Task
    from ..worker.store import ClientStatus

# The pause before a job is offered again to workers that lack its function; doubled each time, up to an hour.
UNKNOWN_MS = 5_000
FAILED = Attempt(how=How.FAILED)
EXCUSED = 3  # How often a worker may die before it has started a job that must not be lost.


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the run of a job ended."""

    how: How
    result: Any = None
    error: JobError | None = None
    pid: int = 0
    log: str = ""
    then: Then | None = None  # By the rules of the function; None: by the options.
    in_ms: int | None = None  # The pause before the next attempt; None: by the options.
    size: int = 0  # The number of bytes of the result and the log, about.


def outcome_of(over: Over, log: str, timeout_ms: int | None, memory_bytes: int | None) -> Outcome:
    """Return the outcome of a job whose process has answered or ended."""
    answer = json.loads(over.answer) if over.answer else {}
    if answer.get("how") == How.SUCCEEDED and over.why is not Why.TIME:
        # Also while its worker was stopping.
        size = len(over.answer) + len(log)
        return Outcome(How.SUCCEEDED, result=answer["result"], pid=over.pid, log=log, size=size)
    error = JobError(**answer["error"]) if "error" in answer else None
    how = How.FAILED if error else How.DIED
    if over.why is Why.NOT_STARTED:
        how, kind, message = How.LOST, "OSError", f"no process could be started for it: {over.text}"
    elif over.why is Why.STOPPED or over.was_signalled:
        how, kind, message = How.GIVEN_BACK, "GivenBack", "its worker stopped"
    elif over.why is Why.TIME:
        limit = f"it took longer than {timeout_ms / 1_000:g} s" if timeout_ms else "its exit handlers did not end"
        how, kind, message = How.TIMED_OUT, "TimedOut", limit
    elif over.why is Why.MEMORY:
        how, kind, message = How.DIED, "MemoryLimit", f"it used more than {memory_bytes} bytes of memory"
    elif over.why is Why.SIGNAL:
        how, kind, message = How.DIED, "Died", "its process received SIGTERM or SIGINT"
    elif not error:
        kind, message = "Died", cause_of_death(over.code)
    else:
        then = Then(answer["then"]) if "then" in answer else None
        how = {Then.SNOOZE: How.SNOOZED, Then.LEAVE: How.GIVEN_BACK}.get(then, How.FAILED) if then else How.FAILED
        return Outcome(how, error=error, pid=over.pid, log=log, then=then, in_ms=answer.get("in_ms"))
    # The traceback shows where the job was interrupted.
    made = JobError(type=kind, message=message, traceback=error.traceback if error else "")
    return Outcome(how, error=made, pid=over.pid, log=log)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The new record of a job and its next state."""

    record: JobRecord
    finished: JobStatus | None = None  # None: it runs again.
    error: str = ""  # Why it is over, if no attempt says so.
    in_ms: int = 0  # The delay before it runs again.
    is_discarded: bool = False  # It is deleted.


def after(record: JobRecord, attempt: Attempt, outcome: Outcome | None = None) -> Verdict:
    """Decide the next state of a job after an attempt that has ended."""
    outcome = outcome or Outcome(attempt.how or How.LOST, log=record.log)
    log = outcome.log
    if attempt.how is How.SUCCEEDED:
        return _finished(JobStatus.SUCCEEDED, record, attempt, result=outcome.result, error=None, log=log)
    if outcome.then is Then.DISCARD:
        return Verdict(record=record.with_attempt(attempt), is_discarded=True)
    if is_over(record, attempt) or outcome.then is Then.FAIL:
        return _finished(JobStatus.FAILED, record, attempt, error=attempt.error, log=log)
    if attempt.lacked_function:
        return left_to_others(record, attempt)
    if attempt.how in UNCOUNTED:  # Not a failure.
        return Verdict(record=record.with_attempt(replace(attempt, error=None)), in_ms=outcome.in_ms or 0)
    kept = record.with_attempt(attempt, error=attempt.error, log=log)
    if attempt.how not in FAILURES:
        return Verdict(record=kept)
    if outcome.in_ms is not None:
        return Verdict(record=kept, in_ms=outcome.in_ms)
    doublings = min(_times(kept, FAILURES) - 1, 40)
    return Verdict(record=kept, in_ms=min(record.options.filled().backoff_ms << doublings, LONGEST_BACKOFF_MS))


def left_to_others(record: JobRecord, attempt: Attempt) -> Verdict:
    """Leave a job to workers that have its function. Those that have it bring it forward; see unknown_functions.py."""
    kept = record.with_attempt(attempt)
    pause_ms = UNKNOWN_MS << min(kept.attempts[-1].times - 1, 40)
    return Verdict(record=kept, in_ms=min(pause_ms, LONGEST_BACKOFF_MS))


def assigned(record: JobRecord, job_id: int, worker: str, after_batch: str = "") -> Assignment:
    """Return what the process of a job is told about it."""
    options = record.options.filled()
    return Assignment(
        function=record.function,
        job_id=job_id,
        args=record.args,
        kwargs=record.kwargs,
        attempt=record.next_attempt,
        is_last=is_over(record, FAILED),
        worker=worker,
        after_batch=int(after_batch) if after_batch.isdecimal() else None,
        backoff_ms=options.backoff_ms,
        ignore_result=options.ignore_result,
        has_limit=options.timeout_ms is not None,
        soft_limit_ms=options.soft_time_limit_ms,
    )


def is_over(record: JobRecord, attempt: Attempt) -> bool:
    """Whether a job has used up the attempts that its options allow, if this attempt failed."""
    options = record.options.filled()
    if attempt.how is How.LOST:
        return options.on_lost is OnLost.FAIL or _times(record, frozenset({How.LOST})) + 1 >= options.max_lost
    return attempt.how in FAILURES and _times(record, FAILURES) + 1 >= options.max_attempts


def lost(record: JobRecord, times: int, ended: int, otherwise: Attempt) -> Verdict | None:
    """Decide the next state of a job whose workers died `times` times while running it. None if `times` is 0.

    `otherwise`: the attempt to record if the job's record shows none under way. Then a job that is to fail when its
    worker dies had not been started, because its start is recorded first. Up to three such attempts don't count.
    """
    verdict = None
    for _ in range(times):
        is_started = record.under_way or record.options.filled().on_lost is not OnLost.FAIL
        is_excused = not is_started and sum(each.how is How.NOT_STARTED for each in record.attempts) < EXCUSED
        attempt = replace(record.under_way or otherwise, ended=ended, how=How.NOT_STARTED if is_excused else How.LOST)
        who = f" {attempt.worker}" if attempt.worker else ""
        process = f", process {attempt.pid}" if attempt.pid else ""
        where = f", on {attempt.host}" if attempt.host else ""
        error = JobError(type="WorkerLost", message=f"its worker{who}{process}{where} died with it, or lost its lease")
        verdict = after(record, replace(attempt, error=error))
        record = verdict.record
        if verdict.finished:
            break
    return verdict


def without_attempt(record: JobRecord, started_ms: int) -> JobRecord:
    """Return the record of a job that its worker has claimed again while it runs, or ends."""
    return record.with_attempt(Attempt(started=started_ms, ended=now_ms(), how=How.AWAY))


def lost_before(task: Task, record: JobRecord, now_ms: int) -> Verdict | None:
    """Decide the next state of a job just claimed, given the earlier claims that left no record."""
    return lost(record, not_recorded(record, task.claims), now_ms, Attempt())


def expired_before(task: Task, record: JobRecord, now_ms: int, place: Attempt) -> Verdict | None:
    """Decide the end of a job just claimed that is not worth beginning any more."""
    at_ms = record.expired_ms(task.created_at_ms)
    if at_ms is None or now_ms < at_ms:
        return None
    since = f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    # With this attempt it can be requeued: it does not expire again, and no worker has died with it.
    attempt = replace(place, started=now_ms, ended=now_ms, how=How.NOT_STARTED, final=True)
    error = f"cancelled: it has expired at {since}"
    return Verdict(record=record.with_attempt(attempt), finished=JobStatus.CANCELLED, error=error)


def lost_while_held(task: Task, record: JobRecord, now_ms: int, otherwise: Attempt) -> Verdict | None:
    """Decide the next state of a job that is leased to a dead worker."""
    return lost(record, not_recorded(record, task.claims + 1), now_ms, otherwise)


def given_back(task: Task, heard: ClientStatus) -> NewTask | Change | None:
    """Return the change that retries the job of a dead worker or reports it failed, as its options say."""
    queue = queue_of(task.group)
    otherwise = Attempt(worker=heard.name, host=heard.host)
    try:
        verdict = lost_while_held(task, JobRecord.decode(task.data), now_ms(), otherwise)
        return change_of(task, queue, verdict) if queue and verdict else None
    except (TypeError, ValueError):  # Such as NotAJob. The next worker that claims it moves it to the failed group.
        return None


def change_of(task: Task, queue: str, verdict: Verdict) -> NewTask | Change:
    """Return the change that records a verdict; an add is a successor in another group, so delete the task with it.

    Raises TypeError or ValueError if the record is not JSON.
    """
    data, labels = verdict.record.encode(), labels_of(task, verdict.record)
    if verdict.finished is None:
        return Change(id=task.id, data=data, error="", labels=labels, timespec_ms=-verdict.in_ms, release=True)
    error = verdict.record.error.line if verdict.record.error else verdict.error
    group = finished_group(queue, verdict.finished)
    return NewTask.successor_of(task, group=group, data=data, labels=labels or task.labels, error=error)


def labels_of(task: Task, record: JobRecord) -> Mapping[str, str] | None:
    """Return the labels by which it is found, or not, as one that was left to others. None: they stay."""
    if bool(record.lacks_function) is (LEFT_LABEL in task.labels):
        return None
    others = {name: value for name, value in task.labels.items() if name != LEFT_LABEL}
    return {**others, LEFT_LABEL: record.function} if record.lacks_function else others


def without_texts(record: JobRecord) -> JobRecord:
    """Return a record that the store has rejected without its output, tracebacks and all but the types of errors."""

    def bare(error: JobError | None) -> JobError | None:
        return error and JobError(type=error.type)

    attempts = tuple(replace(attempt, error=bare(attempt.error)) for attempt in record.attempts)
    return replace(record, log="", result=None, error=bare(record.error), attempts=attempts)


def no_job(task: Task, queue: str, why: Exception) -> NewTask:
    """Move a task that is not a job to the failed group, with its data unchanged."""
    return NewTask.successor_of(task, group=finished_group(queue, JobStatus.FAILED), error=clean(str(why)))


def _finished(status: JobStatus, record: JobRecord, attempt: Attempt, **members: Any) -> Verdict:
    return Verdict(record=record.with_attempt(replace(attempt, final=True), **members), finished=status)


def _times(record: JobRecord, how: frozenset[How]) -> int:
    return sum(attempt.how in how for attempt in record.counted)
