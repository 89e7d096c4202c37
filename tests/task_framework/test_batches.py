"""Tasks of Django's framework that end together."""

import pytest
from django.db import transaction

from tasks_app.jobs import queues
from tasks_app.models import Batch, Task
from tasks_app.tasks_backend import batch, planned
from tasks_app.tasks_backend.framework import InvalidTask
from taskstore import RESULT, InvalidInput, chain, group
from taskstore.types.tasks import NOBODY, Change

from .tasks import report, send

pytestmark = pytest.mark.django_db


def functions():
    return [job.function.rpartition(".")[2] for job in queues.list_jobs(queues.Wanted()).jobs]


def test_what_comes_then_is_enqueued_when_all_have_succeeded():
    with batch("receipts", then=planned(report, 5), on_failure=planned(send, 0, copies=1)) as made:
        results = [send.enqueue(number, copies=1) for number in (1, 2)]
    send.enqueue(3, copies=1)
    assert Batch.objects.counted().get(pk=made.id).told().open == 2
    for result in results:
        task = queues.task_of(int(result.id))
        assert task
        Task.objects.commit(owner=NOBODY, updates=[Change(id=task.id, group=f"{task.group}/succeeded")])
    [added] = [job for job in queues.list_jobs(queues.Wanted()).jobs if job.function.endswith("report")]
    assert list(added.args) == [5]
    assert Batch.objects.counted().get(pk=made.id).told().state == "open"
    task = queues.task_of(added.id)
    assert task
    Task.objects.commit(owner=NOBODY, updates=[Change(id=task.id, group=f"{task.group}/failed", error="no")])
    told = Batch.objects.counted().get(pk=made.id).told()
    assert (told.is_stuck, told.total, functions().count("send")) == (True, 3, 4)  # What failed is one of the whole.


def test_a_block_within_a_block_is_a_part_of_it():
    with batch("all") as whole:
        send.enqueue(1, copies=1)
        with batch(then=chain(planned(report, 1), group(planned(report, 2), planned(report, 3)))) as inner:
            send.enqueue(2, copies=1)
    told = Batch.objects.counted().get(pk=whole.id).told()
    assert (inner.parent, told.open, told.planned) == (whole.id, 2, 3)


def test_only_a_chain_gives_a_result_to_the_next_task():
    taking = planned(report, RESULT)
    for made in (batch(then=taking), batch(on_failure=taking)):
        with pytest.raises(InvalidInput, match="RESULT needs a step before it"), made:
            pass
    with pytest.raises(InvalidInput, match="RESULT needs a step before it"):
        report.enqueue(RESULT)
    assert not Task.objects.exists()
    with batch(then=chain(planned(report, 1), planned(report, RESULT))):
        pass


def test_what_a_batch_adds_has_no_key():
    with pytest.raises(InvalidTask, match="report must have no unique key: a batch adds it"):
        planned(report.using(unique="a"), 1)


@pytest.mark.django_db(transaction=True)
def test_a_block_that_raises_leaves_nothing():
    def break_off():
        with transaction.atomic(), batch(then=planned(report, 5)):
            send.enqueue(1, copies=1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert (functions(), Batch.objects.count()) == ([], 0)
    send.enqueue(1, copies=1)
    assert Task.objects.get().batch == 0


def test_a_planned_call_is_checked_at_once():
    with pytest.raises((TypeError, InvalidTask)):
        planned(report, object())
