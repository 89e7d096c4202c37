"""Jobs that follow other jobs."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any, cast

import pytest

from tasks_app.access import tokens
from tasks_app.models import Scope, Task
from taskstore import Client, InvalidInput, NewTask, Plan, chain, group
from taskstore.client.errors import BatchFailed

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
    assert (last.result, queue.store.batches.get(batch.id).state) == (15, "succeeded")


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
    assert queue.store.batches.get(batch.id).is_stuck


@pytest.mark.once
def test_an_empty_group_within_a_chain_holds_nothing_up():
    steps = chain(sample.add.s(1), group(), group().then(sample.add.s(2)), group(), sample.add.s(3), group())
    assert [plan.number for _, plan in steps.plan.levels] == [1, 1, 1]


def test_a_chain_that_begins_with_an_empty_group_goes_on(queue):
    chain(group(), sample.add.s(3)).enqueue(queue.store)
    assert [list(job.args) for job in jobs(queue)] == [[3]]


@pytest.mark.parametrize(
    ("then", "told"),
    [
        ("x", "then must be a task to add: .*, or a Plan, not 'x'"),
        (5, "then must be a task to add: .*, or a Plan, not 5"),
        ([sample.add.s(1), sample.add], r"then\[1\] must be a task to add: .*, a job such as resize.s\(1\)"),
    ],
)
def test_what_can_not_follow_is_named(queue, then, told):
    with pytest.raises(TypeError, match=told):
        queue.store.batches.create("x", then=then)
    then = then if isinstance(then, str | int) else [NewTask(group="a"), then[1]]
    with pytest.raises(TypeError, match=told):
        Task.objects.create_batch(owner=1, then=cast(Any, then))


@pytest.mark.once
@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: sample.add.enqueue(cast(Any, 1), 2), "the first argument must be a Client of the store, not 1"),
        (lambda: chain(sample.add.s(1)).enqueue(cast(Any, "film")), "must be a Client of the store, not 'film'"),
        (lambda: group(sample.add.s(1), cast(Any, sample.add)), r"jobs\[1\] must be a job with its arguments"),
        (lambda: sample.add.using(at=cast(Any, 5)), "at must be a datetime with a time zone, not 5"),
        (lambda: sample.add.using(queue=cast(Any, 5)), "the queue 5 must"),
        (lambda: sample.add.using(unique_for=cast(Any, "x")), "unique_for must be a timedelta or a number of seconds"),
        (lambda: Plan(cast(Any, ["a"])), r"adds\[0\] must be a task to add"),
    ],
)
def test_what_is_wrong_with_a_call_is_named(call, told):
    with pytest.raises((TypeError, ValueError), match=told):
        call()
    assert sample.add.using(unique_for=1.5).unique_for_ms == 1_500
    assert Plan(cast(Any, sample.add.s(1) and NewTask(group="a"))).adds == (NewTask(group="a"),)


@pytest.mark.once
def test_a_chain_needs_a_job():
    with pytest.raises(TypeError, match="chain needs at least one job"):
        chain()


def test_a_batch_may_be_followed_by_a_group(queue):
    queue.store.batches.create("x", then=group(sample.add.s(1), sample.add.s(2)).then(sample.add.s(3)))
    assert sorted(list(job.args) for job in jobs(queue)) == [[1], [2]]


def test_arguments_that_are_no_json_are_named_or_converted(queue):
    day = date(2026, 11, 29)
    with pytest.raises(InvalidInput, match=r"args\[1\]: must be valid JSON: .*date"):
        queue.store.jobs.enqueue("tests.jobs.sample.add", [1, day])
    with pytest.raises(InvalidInput, match=r"kwargs.b: must be valid JSON: .*Decimal"):
        queue.store.jobs.enqueue("tests.jobs.sample.add", [1], {"b": Decimal(1)})
    with pytest.raises(InvalidInput, match=r"jobs\[0\].args\[0\]: must be valid JSON: .*date"):
        queue.store.jobs.enqueue_many([sample.add.s(day)])
    made = replace(sample.add, json_default=str).enqueue(queue.store, day, b=Decimal("1.5"))
    assert (list(made.args), made.kwargs) == (["2026-11-29"], {"b": "1.5"})
    with pytest.raises(
        TypeError, match=r"^args\[1\] must be JSON, and json_default can't convert it: unsupported operand"
    ):
        replace(sample.add, json_default=lambda value: value + "").s(1, day)


@pytest.mark.once
def test_then_goes_on_at_the_end():
    steps = group(sample.add.s(1)).then(sample.add.s(2)).then(sample.add.s(3), sample.add.s(4))
    assert (len(steps.plan.adds), len(steps.plan.steps)) == (1, 3)


@pytest.mark.once
def test_what_is_no_step_is_refused_where_it_is_written():
    chained: Any = chain(sample.add.s(1))
    wrong: Any
    for wrong in (5, sample.add, [chained]):
        with pytest.raises(TypeError, match=r"must be a job with its arguments, such as resize\.s\(1\), not"):
            group(wrong)
    with pytest.raises(TypeError, match="must be a job"):
        chain(sample.add.s(1), wrong)


def test_a_chain_has_up_to_a_thousand_steps(queue):
    with pytest.raises(InvalidInput, match="steps: must have at most 1000 steps, not 1001"):
        chain(*[sample.add.s(1)] * 1_002).enqueue(queue.store)
    assert chain(*[sample.add.s(1)] * 1_001).enqueue(queue.store).planned == 1_000


def test_what_is_enqueued_is_waited_for_cancelled_and_deleted_as_a_whole(queue):
    steps = chain(group(sample.add.s(1), chain(sample.add.s(2), sample.add.s(3))), sample.add.s(4))
    whole = steps.enqueue(queue.store, "sums")
    assert (whole.name, whole.total, whole.planned) == ("sums", 2, 2)
    with pytest.raises(TimeoutError, match=f"batch {whole.id} has not closed yet"):
        whole.wait(0.05)
    with queue.worker():
        assert whole.wait(30).ended == 4
    _, secret = tokens.create("olaf", Scope.OPERATE)
    with Client(queue.store.url, token=secret) as olaf:
        cancelled, deleted = steps.enqueue(olaf), steps.enqueue(olaf)
        assert cancelled.cancel("not needed").done == deleted.delete("not needed").done == 2
        for batch, state, failed in ((cancelled, "failed", 2), (deleted, "deleted", 2)):
            with pytest.raises(BatchFailed, match=f"batch {batch.id} is {state}, with {failed} failed of 2"):
                batch.wait(30)
            assert olaf.batches.wait(batch.id, raises=False).planned == 0
