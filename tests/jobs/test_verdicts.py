"""What becomes of a job after an attempt."""

import pytest

from taskstore import Task
from taskstore.jobs.verdicts import after, change_of, lost_before, lost_while_held
from taskstore.types.job_record import Attempt, How, JobError, JobOptions, JobRecord, JobStatus, OnLost
from taskstore.types.tasks import Change, NewTask

pytestmark = pytest.mark.once

PROBLEM = JobError(type="ValueError", message="no such address\nat all")
TASK = Task.make(7, group="jobs/mail", data="{}", labels={"function": "a"}, priority=3, claims=1)


def record(*ways, **options):
    return JobRecord(
        function="a", options=JobOptions(**options), attempts=tuple(Attempt(how=how, error=PROBLEM) for how in ways)
    )


def attempt(how):
    return Attempt(how=how, error=PROBLEM)


@pytest.mark.parametrize(
    ("before", "how", "finished"),
    [
        (record(), How.SUCCEEDED, JobStatus.SUCCEEDED),
        (record(), How.FAILED, JobStatus.FAILED),
        (record(max_attempts=2), How.TIMED_OUT, None),
        (record(How.DIED, max_attempts=2), How.FAILED, JobStatus.FAILED),
        (record(How.LOST, How.GIVEN_BACK, max_attempts=2), How.FAILED, None),
        (record(How.LOST, How.FAILED, max_lost=3), How.LOST, None),
        (record(How.LOST, How.LOST, max_lost=3), How.LOST, JobStatus.FAILED),
        (record(on_lost=OnLost.FAIL), How.LOST, JobStatus.FAILED),
        (record(How.GIVEN_BACK), How.GIVEN_BACK, None),
    ],
)
def test_what_becomes_of_a_job(before, how, finished):
    assert after(before, attempt(how)).finished == finished


def test_the_pause_before_another_try_doubles_up_to_an_hour():
    pauses = [
        after(record(*[How.FAILED] * failures, max_attempts=99), attempt(How.FAILED)).in_ms
        for failures in (0, 1, 2, 60)
    ]
    assert pauses == [1_000, 2_000, 4_000, 3_600_000]


def test_what_was_requeued_counts_anew():
    done = after(record(max_attempts=1), attempt(How.FAILED)).record
    assert after(done.requeued(), attempt(How.LOST)).finished is None


def test_a_failed_job_moves_with_its_error_in_a_line():
    change = change_of(TASK, "mail", after(record(), attempt(How.FAILED)))
    assert isinstance(change, NewTask)
    assert (change.id, change.group, change.error) == (7, "jobs/mail/failed", "ValueError: no such address")
    assert (change.labels, change.priority) == ({"function": "a"}, 3)


def test_another_try_comes_after_the_pause():
    change = change_of(TASK, "mail", after(record(max_attempts=2), attempt(How.FAILED)))
    assert isinstance(change, Change)
    assert (change.id, change.timespec_ms, change.release) == (7, -1_000, True)
    assert change.data
    assert JobRecord.decode(change.data).error == PROBLEM


def test_a_first_claim_lost_nobody():
    assert lost_before(TASK, record(), now_ms=5) is None


def test_the_attempt_that_was_under_way_is_the_one_that_was_lost():
    under_way = record().with_attempt(Attempt(started=2, worker="ann", pid=3))
    verdict = lost_while_held(TASK, under_way, now_ms=5, otherwise=Attempt(worker="bob"))
    assert verdict
    [lost] = verdict.record.attempts
    assert (lost.how, lost.worker, lost.pid, lost.ended) == (How.LOST, "ann", 3, 5)
    assert lost.error
    assert "ann, process 3" in lost.error.message
