"""Several transactions end the members of one batch at the same time."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import pytest
from django.db import connection, connections, transaction

from tasks_app.core.operations import Step
from tasks_app.database import batches
from tasks_app.models import Batch, BatchCount, Task
from taskstore.types.batches import Plan
from taskstore.types.tasks import Change, NewTask

ANN = 7
MEMBERS, THREADS = 120, 8
pytestmark = pytest.mark.django_db(transaction=True)


def in_threads(work, *lists):
    def then_close(*each):
        try:
            return work(*each)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(then_close, *lists))


def end(task_id, how):
    if how == "fails":
        [dead] = Task.objects.commit(owner=ANN, updates=[Change(id=task_id, group="dead", error="no")])
        task_id = dead.id
    if how == "fans out":
        batch = Task.objects.get(pk=task_id).batch
        [more] = Task.objects.commit(owner=ANN, deletes=[task_id], adds=[NewTask(group="work", batch=batch)])
        task_id = more.id
    with transaction.atomic():
        Task.objects.commit(owner=ANN, deletes=[task_id])


@pytest.mark.parametrize("shared_below", [100, THREADS + 1])
def test_then_is_added_once_and_never_early(shared_below, monkeypatch):
    # With the smaller one the lock is shared nearly always: no more transactions than threads end a member at once.
    monkeypatch.setattr(batches, "SHARED_BELOW", shared_below)
    for _ in range(3):
        batch, tasks = Task.objects.create_batch(
            owner=ANN,
            adds=[NewTask(group="work")] * MEMBERS,
            then=NewTask(group="then"),
            on_failure=NewTask(group="alarm"),
        )
        chance = random.Random(batch.id)
        ways = chance.choices(["plainly", "fails", "fans out"], weights=[8, 1, 1], k=MEMBERS)
        in_threads(end, [task.id for task in tasks], ways)
        told = Batch.objects.counted().get(pk=batch.id).told()
        assert (told.open, told.failed, told.ended) == (0, 0, MEMBERS + ways.count("fans out"))
        groups = [task.group for task in Task.objects.all()]
        assert sorted(groups) == ["alarm", "then"]
        Task.objects.commit(owner=ANN, deletes=[task.id for task in Task.objects.all()])


@pytest.mark.parametrize("shared_below", [100, THREADS + 1])
def test_steps_within_a_batch_are_added_once_and_a_failure_is_told_outside(shared_below, monkeypatch):
    monkeypatch.setattr(batches, "SHARED_BELOW", shared_below)
    work = (NewTask(group="work"),) * MEMBERS
    inner = Plan(work, steps=(Plan((NewTask(group="next"),)), Plan(work, batches=(Plan(work),))))
    whole, _ = Task.objects.create_batch(
        owner=ANN, batches=[inner, Plan(work)], steps=[NewTask(group="last")], on_failure=NewTask(group="alarm")
    )

    def end_all():
        waiting = [task.id for task in Task.objects.exclude(group="alarm")]
        ways = random.Random(whole.id).choices(["plainly", "fails", "fans out"], weights=[8, 1, 1], k=len(waiting))
        in_threads(end, waiting, ways)

    for groups in ({"alarm", "next"}, {"alarm", "work"}, {"alarm", "last"}, {"alarm"}):
        end_all()
        assert {task.group for task in Task.objects.all()} == groups
        assert Task.objects.filter(group="alarm").count() == 1
    assert [batch.told().state for batch in Batch.objects.counted()] == ["succeeded"] * 2


def test_one_failure_of_many_members_is_told_outside():
    if connection.vendor != "postgresql":
        pytest.skip("a matter of PostgreSQL")
    many = Plan((NewTask(group="work"),) * 500, steps=(Plan((NewTask(group="next"),)),))
    Task.objects.create_batch(owner=ANN, batches=[many], on_failure=NewTask(group="alarm"))
    first, second, *_ = Task.objects.order_by("id")
    end(first.id, "plainly")  # Now it is known how many are open.
    end(second.id, "fails")
    assert Task.objects.filter(group="alarm").count() == 1


def test_children_that_close_together_close_their_parent_once():
    parent, _ = Task.objects.create_batch(owner=ANN, hold=True, then=NewTask(group="then"))
    for _ in range(20):
        Task.objects.create_batch(
            owner=ANN, adds=[NewTask(group="work")], parent=parent.id, then=NewTask(group="between")
        )
    [waiting] = Batch.objects.filter(pk=parent.id)
    assert waiting.children == 20
    Task.objects.change_batch(parent.id, Step.RELEASE)
    in_threads(end, [task.id for task in Task.objects.filter(group="work")], repeat("plainly"))
    in_threads(end, [task.id for task in Task.objects.filter(group="between")], repeat("plainly"))
    assert [task.group for task in Task.objects.all()] == ["then"]
    assert not Batch.objects.still_open().exists()


def test_whoever_shares_the_lock_leaves_the_counts_right():
    if connection.vendor != "postgresql":
        pytest.skip("a matter of PostgreSQL")
    batch, tasks = Task.objects.create_batch(owner=ANN, adds=[NewTask(group="work")] * 1_000, hold=True)
    end(tasks[0].id, "plainly")  # Now it is known how many are open.
    in_threads(end, [task.id for task in tasks[1:300]], repeat("plainly"))
    assert Batch.objects.counted().get(pk=batch.id).told().open == 700
    assert BatchCount.objects.filter(batch=batch.id).count() > 2


def test_members_that_end_in_transactions_that_do_not_see_each_other_close_it_at_once(monkeypatch):
    if connection.vendor != "postgresql":
        pytest.skip("a matter of PostgreSQL")
    monkeypatch.setattr(batches, "SHARED_BELOW", 1)  # As with many members.
    number = 5
    _, tasks = Task.objects.create_batch(
        owner=ANN, adds=[NewTask(group="work")] * (number + 1), then=NewTask(group="then")
    )
    end(tasks.pop().id, "plainly")  # Now it is known how many are open.
    all_have_ended = threading.Barrier(number, timeout=20)

    def end_beside_others(task_id, _):
        with transaction.atomic():
            Task.objects.commit(owner=ANN, deletes=[task_id])
            all_have_ended.wait()

    in_threads(end_beside_others, [task.id for task in tasks], repeat(""))
    assert [task.group for task in Task.objects.all()] == ["then"]
