"""Cancelling in Python: all or nothing, in the caller's transaction, and against workers that are at it."""

import threading

import pytest
from asgiref.sync import async_to_sync
from django.db import connections, transaction

from tasks_app.models import CancelledTask, EndedTask, Task
from taskstore.errors import CommitRefused, Forbidden, InvalidInput
from taskstore.types.tasks import Change, NewTask
from tests.jobs_store.jobs import enqueued, find

from .people import ANN, BOB

pytestmark = pytest.mark.django_db(transaction=True)


def add(number=1, **fields):
    return Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", **fields) for _ in range(number)])


def test_it_joins_the_transaction_of_its_caller():
    job_id = enqueued()
    with transaction.atomic():
        assert Task.objects.cancel([job_id]) == [job_id]
        assert find(job_id).status == "cancelled"
        transaction.set_rollback(True)
    assert find(job_id).status == "pending"
    assert not CancelledTask.objects.exists()


def test_a_task_is_found_by_the_first_id_of_its_chain_and_its_worker_is_told_the_last():
    [task] = add()
    [held] = Task.objects.claim("mail", owner=BOB)
    [renewed] = Task.objects.commit(owner=BOB, updates=[Change(id=held.id, timespec_ms=-60_000)])
    assert Task.objects.cancel([task.id], by="olaf") == [renewed.id]
    assert [(each.id, each.owner) for each in CancelledTask.objects.all()] == [(renewed.id, BOB)]
    assert EndedTask.objects.get(id=renewed.id).ending == "cancelled"


def test_of_what_nobody_held_nobody_is_told():
    [task] = add()
    Task.objects.cancel([task.id])
    assert not CancelledTask.objects.exists()


def test_who_may_not_end_leases_cancels_none_of_them():
    waiting, held = add(2)
    [held] = Task.objects.claim("mail", owner=BOB)
    with pytest.raises(Forbidden, match="is leased"):
        Task.objects.cancel([task.id for task in Task.objects.get_queryset()], ends_leases=False)
    assert Task.objects.count() == 2
    assert waiting != held


def test_what_can_be_no_id_is_named():
    with pytest.raises(InvalidInput) as refused:
        Task.objects.cancel([2**63])
    assert list(refused.value.fields) == ["ids[0]"]


def test_it_can_be_awaited():
    [task] = add()
    assert async_to_sync(Task.objects.acancel)([task.id]) == [task.id]


@pytest.mark.parametrize("_", range(5))
def test_either_the_worker_ends_it_or_somebody_cancels_it(_):
    add()
    [held] = Task.objects.claim("mail", owner=BOB)
    begin, came = threading.Barrier(2), {}

    def do(name, what):
        begin.wait(30)
        try:
            came[name] = what()
        except CommitRefused:
            came[name] = "refused"
        finally:
            connections.close_all()

    threads = [
        threading.Thread(target=do, args=["worker", lambda: Task.objects.commit(owner=BOB, deletes=[held.id])]),
        threading.Thread(target=do, args=["olaf", lambda: Task.objects.cancel([held.id])]),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert came in ({"worker": [], "olaf": []}, {"worker": "refused", "olaf": [held.id]})
    assert EndedTask.objects.filter(id=held.id).count() == 1
