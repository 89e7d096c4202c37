"""Jobs that follow other jobs."""

from typing import Any

import pytest

from taskstore import InvalidInput, Plan, chain, group

from . import sample
from .workers import eventually


def jobs(queue, **asked):
    return queue.store.jobs.list(**asked).jobs


def test_what_follows_a_group_reads_its_results(queue):
    total = sample.add_up.s(queue.store.url, queue.token)
    batch = group(*(sample.add.s(number, 1) for number in range(5))).then(total).enqueue(queue.store, "sums")
    assert (batch.name, batch.open) == ("sums", 5)
    with queue.worker():
        eventually(lambda: jobs(queue, function=total.function, status="succeeded"))
    [last] = jobs(queue, function=total.function)
    assert (last.result, queue.store.batches.get(batch.id).state) == (15, "closed")


def test_a_chain_runs_one_job_after_the_other(queue):
    steps = chain(sample.add.s(1), group(sample.add.s(2), sample.add.s(3)), sample.add.s(4))
    steps.enqueue(queue.store)
    assert len(jobs(queue)) == 1
    with queue.worker():
        eventually(lambda: len(jobs(queue, status="succeeded")) == 4)
    ended = sorted(jobs(queue), key=lambda job: job.attempts[0].started)
    assert list(ended[0].args) == [1]
    assert sorted(job.result for job in ended[1:3]) == [2, 3]
    assert ended[3].result == 4
    assert ended[3].attempts[0].started >= max(job.attempts[0].ended for job in ended[1:3])


def test_a_job_that_fails_for_good_calls_what_was_said_and_nothing_else(queue):
    steps = group(sample.fail.s("no"), sample.add.s(1)).then(sample.add.s(2)).on_failure(sample.add.s(3))
    batch = steps.enqueue(queue.store)
    with queue.worker():
        eventually(lambda: len(jobs(queue, status="succeeded")) == 2, 60)
    assert sorted(job.result for job in jobs(queue, status="succeeded")) == [1, 3]
    assert queue.store.batches.get(batch.id).state == "failed"


@pytest.mark.once
def test_then_goes_on_at_the_end():
    steps = group(sample.add.s(1)).then(sample.add.s(2)).then(sample.add.s(3), sample.add.s(4))
    found: list[int] = []
    plan: Plan | None = steps.plan
    while plan:
        found.append(len(plan.adds))
        plan = plan.then
    assert found == [1, 1, 1, 1]


@pytest.mark.once
def test_what_is_no_step_is_refused_where_it_is_written():
    chained: Any = chain(sample.add.s(1))
    wrong: Any
    for wrong in (5, chained, sample.add):
        with pytest.raises(TypeError, match=r"must be a job with its arguments, such as resize\.s\(1\), not"):
            group(wrong)
    with pytest.raises(TypeError, match="must be a job"):
        chain(sample.add.s(1), wrong)
    with pytest.raises(InvalidInput, match="then: must have at most 100 steps one after the other, not 5000"):
        chain(*[sample.add.s(1)] * 5_000)
