"""Batches, by every way in: whoever ends their tasks, what comes then is added once and never early."""

import pytest

from tasks_app.models import Batch, Task
from taskstore.errors import CommitRefused
from taskstore.types.batches import Plan
from taskstore.types.tasks import Change, NewTask

from .masstasker import Grpc
from .people import ANN, BOB


def made(adds=1, **more):
    return Task.objects.create_batch(owner=ANN, adds=[NewTask(group="mail")] * adds, **more)


def numbers(batch):
    told = Batch.objects.counted().get(pk=batch.id).told()
    return told.total, told.open, told.failed, told.ended


def names():
    return sorted(Task.objects.values_list("group", flat=True))


def claim_and_delete(store, group):
    [task] = store.claim(group, owner=BOB)
    store.commit(owner=BOB, deletes=[task.id])
    return task


def test_the_last_end_adds_what_comes_then(store):
    batch, _ = made(2, then=[NewTask(group="sum", data=b"now"), NewTask(group="mail")])
    claim_and_delete(store, "mail")
    assert names() == ["mail"]
    claim_and_delete(store, "mail")
    assert (names(), numbers(batch)) == (["mail", "sum"], (2, 0, 0, 2))
    task = claim_and_delete(store, "sum")
    assert task.data == b"now"


def test_the_answer_has_only_what_was_asked_for(store):
    made(then=[NewTask(group="sum")])
    [task] = store.claim("mail", owner=BOB)
    [other] = store.commit(owner=BOB, deletes=[task.id], adds=[NewTask(group="other")])
    assert (other.group, names()) == ("other", ["other", "sum"])


def test_a_dead_letter_keeps_the_batch_open(store):
    batch, _ = made(then=NewTask(group="sum"), on_failure=NewTask(group="alarm"))
    [task] = store.claim("mail", owner=BOB)
    [dead] = store.commit(owner=BOB, updates=[Change(id=task.id, group="dead", error="no")])
    assert (names(), numbers(batch)) == (["alarm", "dead"], (1, 0, 1, 0))
    store.commit(owner=BOB, deletes=[dead.id])
    assert names() == ["alarm", "sum"]


def test_the_last_task_may_add_more(store):
    if isinstance(store, Grpc):
        pytest.skip("MassTasker's clients can't name a batch")
    batch, _ = made(then=NewTask(group="sum"))
    [task] = store.claim("mail", owner=BOB)
    [more] = store.commit(owner=BOB, deletes=[task.id], adds=[NewTask(group="mail", batch=batch.id)])
    assert (more.batch, names()) == (batch.id, ["mail"])
    claim_and_delete(store, "mail")
    assert (names(), numbers(batch)) == (["sum"], (2, 0, 0, 2))
    with pytest.raises(CommitRefused, match=f"batch {batch.id} is closed"):
        store.commit(owner=BOB, adds=[NewTask(group="mail", batch=batch.id)])


def test_plans_within_plans_come_one_after_the_other(store):
    made(then=Plan((NewTask(group="second"),), then=Plan((NewTask(group="third"),), then=Plan((NewTask(group="4"),)))))
    for group in ("mail", "second", "third", "4"):
        assert names() == [group]
        claim_and_delete(store, group)
    assert (names(), Batch.objects.still_open().count()) == ([], 0)


def test_a_child_keeps_its_parent_open(store):
    parent, _ = made(0, hold=True, then=NewTask(group="end"))
    _, [task] = made(then=NewTask(group="between"), parent=parent.id)
    Batch.objects.filter(pk=parent.id).update(hold=0)
    store.commit(owner=ANN, deletes=[task.id])
    assert (names(), numbers(parent)) == (["between"], (2, 1, 0, 1))
    claim_and_delete(store, "between")
    assert names() == ["end"]


def ids():
    return sorted(Task.objects.values_list("id", flat=True))


@pytest.mark.parametrize("number", [1, 2])
def test_a_batch_without_tasks_closes_in_the_commit_that_makes_it(store, number):
    before = Task.objects.newest_id()
    batch, tasks = made(0, then=[NewTask(group="sum")] * number)
    assert (tasks, names(), ids()) == ([], ["sum"] * number, [*range(before + 1, before + 1 + number)])
    assert [task.origin for task in Task.objects.order_by("id")] == ids()
    assert (numbers(batch), batch.closed_at_ms is None) == ((0, 0, 0, 0), False)
    task = claim_and_delete(store, "sum")
    assert task.id > max(before, number)


def test_a_batch_of_tasks_that_have_ended_closes_in_the_commit_that_makes_it(store):
    adds = [NewTask(group="jobs/mail/succeeded"), NewTask(group="jobs/mail/succeeded", data=b"2")]
    batch, tasks = Task.objects.create_batch(owner=ANN, adds=adds, then=[NewTask(group="sum"), NewTask(group="mail")])
    assert (len(set(ids())), min(ids()) > 0) == (4, True)
    assert ids()[:2] == [task.id for task in tasks]
    assert numbers(batch) == (2, 0, 0, 2)
    claim_and_delete(store, "sum")
    claim_and_delete(store, "mail")


def test_a_batch_whose_only_task_is_a_duplicate_closes_in_the_commit_that_makes_it(store):
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", unique="a")])
    _, [duplicate] = Task.objects.create_batch(
        owner=ANN, adds=[NewTask(group="mail", unique="a")], then=[NewTask(group="sum")] * 2
    )
    assert (duplicate.duplicate, names(), len(set(ids()))) == (True, ["mail", "sum", "sum"], 3)
    assert claim_and_delete(store, "mail").origin == duplicate.id


def test_what_comes_then_may_have_long_data(store):
    made(0, then=[NewTask(group="sum", data=b"a" * 40_000), NewTask(group="sum", data=b"b" * 40_000)])
    assert sorted(claim_and_delete(store, "sum").data[:1] for _ in range(2)) == [b"a", b"b"]


def test_the_last_claimed_task_ends_while_others_are_claimed_and_added(store):
    """In one transaction of the writer, with ids that were drawn for the claims and adds only."""
    batch, _ = made(1, then=[NewTask(group="sum"), NewTask(group="sum")])
    store.commit(owner=ANN, adds=[NewTask(group="other")] * 3)
    [task] = store.claim("mail", owner=BOB)
    [other] = store.claim("other", owner=BOB)
    [added] = store.commit(owner=BOB, deletes=[task.id, other.id], adds=[NewTask(group="new")])
    assert added.group == "new"
    assert (names(), len(set(ids())), min(ids()) > 0) == (["new", "other", "other", "sum", "sum"], 5, True)
    assert numbers(batch) == (1, 0, 0, 1)


def test_a_large_plan_is_added_level_by_level(store):
    large = [NewTask(group="sum", data=bytes([65 + number]) * 20_000) for number in range(20)]
    made(then=Plan(tuple(large), then=Plan(tuple(large))))
    claim_and_delete(store, "mail")
    for left in (40, 20):
        seen = sorted(claim_and_delete(store, "sum").data[:1] for _ in range(20))
        assert seen == sorted(task.data[:1] for task in large)
        assert len(names()) == (20 if left == 40 else 0)
