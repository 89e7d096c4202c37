"""Celery's canvas: chains, groups and chords in one another, and what one step hands to the next."""

import time
from typing import Any, cast

import pytest

from tasks_app.control import batches as control
from tasks_app.database import dialect_of
from tasks_app.writer.housekeeping import OldTasks
from taskstore import RESULT, InvalidInput, JobStatus, chain, group, read_results
from taskstore.jobs import results

from . import sample
from .workers import eventually

add, total, same = sample.add, sample.total, sample.same


def last(queue, steps, name=""):
    """The result of the last step."""
    whole = steps.enqueue(queue.store, name)
    with queue.worker():
        eventually(
            lambda: queue.store.batches.get(whole.id).closed_at_ms or queue.store.batches.get(whole.id).failed, 60
        )
    told = queue.store.batches.get(whole.id)
    jobs = queue.store.jobs.list(batch=whole.id, limit=200).jobs
    assert [(job.id, job.error) for job in jobs if job.error] == []
    assert (told.state, told.ended, told.planned) == ("succeeded", len(jobs), 0)
    return max(jobs, key=lambda job: job.attempts[-1].ended).result


@pytest.mark.parametrize(
    ("steps", "result"),
    [
        (chain(add.s(2, 2), add.s(RESULT, 4), add.s(b=8, a=RESULT)), 16),
        (group(add.s(2, 2), add.s(4, 4)).then(total.s(RESULT)), 12),
        (chain(add.s(4, 16), group(add.s(RESULT, 1), add.s(1), add.s(RESULT, 3)), total.s(RESULT)), 21 + 1 + 23),
        (chain(group(add.s(1), add.s(2)), total.s(RESULT), add.s(RESULT, 10)), 13),
        (group(chain(add.s(1), add.s(RESULT, 1)), add.s(5), chain(add.s(2), add.s(RESULT, 2))).then(same.s(RESULT)),
         [2, 5, 4]),
        (group(group(add.s(1), add.s(2)), chain(add.s(1), group(add.s(RESULT, 2), add.s(4)))).then(same.s(RESULT)),
         [[1, 2], [3, 4]]),
        (chain(add.s(1), group(), chain(add.s(RESULT, 1), add.s(RESULT, 1)), group(group()), add.s(RESULT, 1)), 4),
        (chain(add.s(1), same.s({"pages": [RESULT, RESULT], "by": "ann"})), {"pages": [1, 1], "by": "ann"}),
        (chain(chain(add.s(1), group(add.s(RESULT, 1))), group(total.s(RESULT), total.s(RESULT)), total.s(RESULT)), 4),
    ],
)  # fmt: skip
def test_a_step_takes_what_the_one_before_returned(queue, steps, result):
    assert last(queue, steps) == result


def test_what_failed_and_is_completed_has_no_result(queue):
    whole = (
        group(add.s(1), sample.fail.s("no"), add.s(3)).then(same.s(RESULT)).on_failure(add.s(100)).enqueue(queue.store)
    )
    with queue.worker():
        eventually(lambda: queue.store.batches.get(whole.id).is_stuck, 60)
        assert queue.store.batches.get(whole.id).planned == 1
        control.complete(whole.id)
        eventually(lambda: queue.store.batches.get(whole.id).closed_at_ms)
    [job] = queue.store.jobs.list(batch=whole.id, function=same.path).jobs
    assert job.result == [1, None, 3]


def remove_old():
    time.sleep(1.1)
    old, dialect = OldTasks(), dialect_of("default")
    while dialect.drive(old.delete(dialect)):
        pass


def test_results_are_kept_until_the_step_that_takes_them_has_ended(queue, settings):
    settings.TASKSTORE_RETENTION = "jobs/*/succeeded=1s"
    steps = group(add.s(1), chain(add.s(2), add.s(RESULT, 3))).then(total.using(queue="later").s(RESULT))
    whole = steps.enqueue(queue.store)
    other = add.enqueue(queue.store, 5)
    with queue.worker():
        eventually(lambda: queue.store.batches.get(whole.id).ended == 3 and queue.store.jobs.get(other.id).result)
    remove_old()
    assert sorted(job.result for job in queue.store.jobs.list(status=JobStatus.SUCCEEDED).jobs) == [1, 2, 5]
    with queue.worker(queues=["later"]):
        assert queue.store.batches.wait(whole.id, 30).ended == 4
    assert [job.result for job in queue.store.jobs.list(queue="later").jobs] == [6]
    remove_old()
    assert queue.store.jobs.list().jobs == ()


def test_what_is_too_much_is_read_a_page_at_a_time(queue, monkeypatch):
    monkeypatch.setattr(results, "MOST_RESULTS", 2)
    whole = group(add.s(1), add.s(2), add.s(3)).then(same.s(RESULT)).enqueue(queue.store)
    with queue.worker():
        eventually(lambda: queue.store.batches.get(whole.id).closed_at_ms)
    [job] = queue.store.jobs.list(function=same.path).jobs
    assert (job.result["batch"], job.result["count"]) == (whole.id, 3)
    monkeypatch.setattr(results, "AT_ONCE", 2)
    assert sorted(read_results(queue.store, job.result)) == [((0,), 1), ((1,), 2), ((2,), 3)]


def test_what_is_gone_fails_the_job_that_takes_it(queue):
    whole = chain(add.s(1), same.using(max_attempts=3).s(RESULT)).enqueue(queue.store)
    [task] = queue.store.claim("jobs/default")
    queue.store.delete(task)
    with queue.worker():
        eventually(lambda: queue.store.batches.get(whole.id).is_stuck)
    [job] = queue.store.jobs.list(function=same.path).jobs
    assert (job.status, len(job.attempts)) == (JobStatus.FAILED, 1)
    assert "a result of the step before is gone" in job.error.message
    assert job.args[0]["taskstore"] == "RESULT"


def test_a_placeholder_needs_a_step_before_it(queue):
    for steps in (chain(add.s(RESULT)), group(add.s(RESULT)).then(add.s(1)), chain(group(), add.s(RESULT))):
        with pytest.raises(InvalidInput, match="args: RESULT needs a step before it"):
            steps.enqueue(queue.store)
    alone, store = same.s({"by": [RESULT]}), queue.store
    for do in (
        lambda: add.enqueue(store, cast(Any, RESULT)),
        lambda: store.jobs.enqueue_many([add.s(1), alone]),
        lambda: store.batches.create("film", [alone]),
        lambda: store.batches.create("film", [add.s(1)], then=alone),
        lambda: store.batches.create("film", [add.s(1)], steps=[[add.s(1)], [alone]], on_failure=add.s(1)),
    ):
        with pytest.raises(InvalidInput, match="RESULT needs a step before it"):
            do()
    assert store.jobs.list().jobs == ()


@pytest.mark.parametrize("shape", ["x", {"a": 1}, [1, "x"], 1.5])
def test_a_placeholder_that_no_chain_has_made_fails_the_job(queue, shape):
    link = {**RESULT, "of": "x", "shape": shape}
    batch = queue.store.batches.create("film", [add.s(1)], then=same.s(link)).batch
    with queue.worker():
        queue.store.batches.wait(batch.id, 30)
        [job] = [job for job in queue.store.jobs.list().jobs if job.function == same.path]
        assert queue.store.jobs.wait(job.id, 30, raises=False).error.message == "RESULT was not made by a chain"


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_each_end_of_a_job_that_runs_has_its_meaning(queue, tmp_path, start):
    ways = {
        "succeeded": add.s(1),
        "discarded": sample.obey.s(str(tmp_path), "drop"),
        "failed": sample.fail.s("no"),
        "died": sample.end_itself.s(3),
        "crashed": sample.crash.s(),
        "timed out": sample.sleep.using(timeout=0.3).s(60),
    }
    wholes = {way: chain(job, add.s(2)).on_failure(add.s(3)).enqueue(queue.store, way) for way, job in ways.items()}
    with queue.worker(start=start):
        told = {way: queue.store.batches.wait(whole.id, 60, raises=False) for way, whole in wholes.items()}
        eventually(lambda: len(queue.store.jobs.list(status=JobStatus.SUCCEEDED, limit=200).jobs) == 1 + 2 + 4)
    assert {way: (whole.state, whole.is_stuck) for way, whole in told.items()} == {
        way: ("succeeded", False) if way in ("succeeded", "discarded") else ("open", True) for way in ways
    }
    results = [job.result for job in queue.store.jobs.list(status=JobStatus.SUCCEEDED, limit=200).jobs]
    assert sorted(results) == [1, 2, 2, 3, 3, 3, 3]
