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
    assert (names(), numbers(parent)) == (["between"], (1, 1, 0, 0))
    claim_and_delete(store, "between")
    assert names() == ["end"]
