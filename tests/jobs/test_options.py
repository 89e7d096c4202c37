"""Options of jobs that only a worker can prove: a warning before the time limit, and jobs that expire."""

import json
import time
from datetime import timedelta

import pytest

from tasks_app.access import tokens
from tasks_app.models import Scope
from taskstore import Client, group, job
from taskstore.jobs.registry import JobContext, SoftTimeLimit, result_of
from taskstore.types.checks import MOST
from taskstore.types.job_record import How, JobOptions, JobRecord, JobStatus, new_task

from . import sample
from .workers import eventually

SECOND_MS = 1_000


def requeue(queue, job, **changes):
    with Client(queue.store.url, token=tokens.create("kim", Scope.OPERATE)[1]) as kim:
        return kim.jobs.requeue(job, **changes)


@pytest.mark.parametrize("options", [{"jobs_per_process": 1}, {"jobs_per_process": 9}, {"start": "spawn"}])
def test_a_job_is_warned_some_time_before_its_limit(queue, options):
    fast = queue.enqueue("wrap_up", 0, soft_time_limit_ms=5_000)
    ready = queue.enqueue("wrap_up", 60, soft_time_limit_ms=300, timeout_ms=60_000)
    late = queue.enqueue("sleep", 60, soft_time_limit_ms=300, max_attempts=2, backoff_ms=0)
    after = queue.enqueue("sleep", 0.6)
    with queue.worker(processes=1, **options):
        assert [queue.finished(each).result for each in (fast, ready)] == ["all", "a part"]
        failed = queue.finished(late)
        assert queue.status(after) == JobStatus.SUCCEEDED or queue.finished(after).error is None
    assert [each.how for each in failed.attempts] == [How.FAILED] * 2
    assert failed.error.line == "SoftTimeLimit: it took longer than 0.3 s"
    assert "time.sleep" in failed.error.traceback


def test_a_warning_while_the_result_is_converted_is_no_wrong_result():
    def convert(_):
        raise SoftTimeLimit("it took longer than 1 s")

    with pytest.raises(SoftTimeLimit):
        result_of(JobContext(job_id=1, attempt=1, is_last=True, worker="w"), [1], convert)


def test_a_limit_that_no_timer_takes_is_none(queue):
    job = queue.enqueue("wrap_up", 0, soft_time_limit_ms=MOST)
    with queue.worker():
        assert queue.finished(job).result == "all"


@pytest.mark.parametrize("option", ["expires", "soft_time_limit", "timeout", "backoff"])
@pytest.mark.parametrize("value", [timedelta.max, 10**12])
def test_a_duration_that_no_record_holds_is_refused(option, value):
    with pytest.raises(ValueError, match=f"{option} must be .*at most 253402300799 s"):
        job(**{option: value})(lambda: None)


def test_a_coroutine_is_cancelled_at_its_warning(queue):
    job = queue.enqueue("sleep_awaiting", 60, soft_time_limit_ms=300)
    with queue.worker():
        record = queue.finished(job)
    assert record.error.type == "SoftTimeLimit"
    assert "cleaned up" in record.log


def test_what_nobody_has_begun_in_time_is_cancelled(queue):
    gone = queue.enqueue("add", 1, expires_ms=1, max_lost=1)
    begun = queue.enqueue("fail", "x", max_attempts=2, expires_ms=60_000)
    time.sleep(0.01)
    with queue.worker():
        assert queue.finished(begun).error
        assert eventually(lambda: queue.status(gone) == JobStatus.CANCELLED)
    job = queue.store.jobs.get(gone)
    assert (job.status, job.error.type) == (JobStatus.CANCELLED, "Cancelled")
    assert [each.how for each in job.attempts] == [How.NOT_STARTED]
    assert job.error.message.startswith("it has expired at 2")
    assert requeue(queue, gone).status == JobStatus.PENDING
    with queue.worker():
        record = queue.finished(gone)
    assert record.result == 1
    assert [each.how for each in record.attempts] == [How.NOT_STARTED, How.SUCCEEDED]


def test_a_job_for_later_expires_after_it_is_due(queue):
    record = JobRecord(function=sample.add.path, args=[1], options=JobOptions(expires_ms=20_000))
    tasks = [new_task(record, at_ms=at_ms) for at_ms in (-SECOND_MS, int(time.time() * 1000) + SECOND_MS)]
    jobs = [task.origin for task in queue.store.commit(adds=tasks)]
    assert all(abs(queue.record(each).due - queue.task(each).available_at_ms) < 10_000 for each in jobs)
    assert queue.record(jobs[0]).expired_ms(0) == queue.record(jobs[0]).due + 20_000
    with queue.worker():
        assert [queue.finished(each).result for each in jobs] == [1, 1]


def test_an_expired_job_fails_its_batch(queue):
    jobs = [sample.add.using(expires=0.001).s(1), sample.add.s(1)]
    batch = group(*jobs).then(sample.add.s(2)).on_failure(sample.add.s(3)).enqueue(queue.store)
    time.sleep(0.01)
    with queue.worker():
        told = queue.store.batches.wait(batch.id, 30, raises=False)
        assert told.state == "failed"
        assert eventually(lambda: 3 in [job.result for job in queue.store.jobs.list().jobs])
    assert sorted(job.result for job in queue.store.jobs.list(status=JobStatus.SUCCEEDED).jobs) == [1, 3]


def test_members_of_others_survive_every_run(queue):
    """Blueque's subsystems add fields of their own to a task."""
    forged = {"function": sample.add.path, "result": "forged"}
    more = {"billing": {"cost": 7}, "": "empty", "more": [1], "taskstore.more": forged}
    new = new_task(JobRecord(function=sample.fail.path, args=["x"]))
    data = json.dumps({**json.loads(new.data), **more}).encode()
    [task] = queue.store.commit(adds=[type(new)(group=new.group, data=data, labels=new.labels)])
    with queue.worker():
        assert queue.finished(task.origin).error
        data = json.loads(queue.task(task.origin).data)
        assert {name: data[name] for name in more} == more
        assert (data["function"], data["result"]) == (sample.fail.path, None)
        requeue(queue, task.origin, args=["y"])
        assert eventually(lambda: len(queue.record(task.origin).attempts) == 4)
        assert queue.finished(task.origin).args == ["y"]
    told = json.loads(queue.task(task.origin).data)
    assert {name: told[name] for name in more} == more
    assert queue.store.jobs.get(task.origin).more == more
