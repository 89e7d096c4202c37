"""Data that is large: written once, whatever becomes of the task, and gone with it."""

import pytest
from django.db import DatabaseError, connection

from tasks_app.database.rows import PAYLOAD_BYTES
from tasks_app.models import KeptPayload, Payload, Task
from tasks_app.reading.listing import page_of
from taskstore.errors import CommitRefused
from taskstore.types.tasks import Change, NewTask

from .people import ANN, BOB

LARGE = b"to be or not to be\n" * (PAYLOAD_BYTES // 19 + 1)
SMALL = LARGE[: PAYLOAD_BYTES - 1]


def kept():
    """The numbers of the payloads that are kept for a living task."""
    gone = KeptPayload.objects.filter(gone=1).values("id")
    return list(Payload.objects.exclude(id__in=gone).order_by("id").values_list("id", flat=True))


def added(store, data=LARGE):
    [task] = store.commit(owner=ANN, adds=[NewTask(group="mail", data=data)])
    return task


def test_data_that_is_not_large_is_in_its_row(store):
    assert added(store, SMALL).data == SMALL
    assert kept() == []


def test_successors_share_large_data(store):
    first = added(store)
    [claimed] = store.claim("mail", owner=BOB)
    [renewed] = store.commit(owner=BOB, updates=[Change(id=claimed.id, timespec_ms=-60_000)])
    assert [task.data for task in (first, claimed, renewed)] == [LARGE] * 3
    assert kept() == [first.id]
    assert store.find([renewed.id]) == [renewed]
    assert store.group("mail", owned=True) == [renewed]


def test_it_goes_with_the_task(store):
    kept_one, task = added(store), added(store)
    store.commit(owner=ANN, deletes=[task.id])
    assert kept() == [kept_one.id]


@pytest.mark.parametrize("data", [SMALL, LARGE[::-1], b""])
def test_it_goes_when_the_data_is_changed(store, data):
    task = added(store)
    [changed] = store.commit(owner=ANN, updates=[Change(id=task.id, data=data)])
    assert store.find([changed.id]) == [changed]
    assert changed.data == data
    assert kept() == ([changed.id] if len(data) == len(LARGE) else [])


def test_a_task_that_moves_by_an_add_brings_its_own(store):
    task = added(store)
    [moved] = store.commit(owner=ANN, adds=[NewTask(id=task.id, group="reports", data=LARGE[::-1])], deletes=[task.id])
    assert store.find([moved.id]) == [moved]
    assert kept() == [moved.id]


def test_many_at_once_keep_their_own(store):
    large = [bytes([letter]) * PAYLOAD_BYTES for letter in b"abc"]
    tasks = store.commit(
        owner=ANN, adds=[NewTask(group="mail", data=data) for each in large for data in (each, each[:9])]
    )
    claimed = store.claim("mail", owner=BOB, limit=6)
    assert sorted(task.data for task in claimed) == sorted(task.data for task in tasks)
    assert {task.data for task in tasks} == {*large, *(each[:9] for each in large)}
    assert kept() == [tasks[0].id, tasks[2].id, tasks[4].id]


def test_nothing_is_left_of_a_commit_that_is_refused(store):
    task = added(store)
    with pytest.raises(CommitRefused):
        store.commit(owner=ANN, adds=[NewTask(group="mail", data=LARGE)], deletes=[task.id, task.id + 1])
    assert kept() == [task.id]


def test_a_list_shows_where_it_begins_and_how_long_it_is(transactional_db):
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", data=LARGE)])
    [row] = page_of("mail", None, with_data=True).rows
    assert row.data
    assert LARGE.startswith(row.data)
    assert row.size == len(LARGE)


def test_whoever_reads_rows_with_django_gets_it_whole(transactional_db):
    [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", data=LARGE)])
    assert bytes(Task.objects.get(id=task.id).data) == LARGE
    assert [bytes(data) for data in Task.objects.values_list("data", flat=True)] == [LARGE]
    [deferred] = Task.objects.get_queryset().defer("data")
    assert bytes(deferred.data) == LARGE


def test_the_database_refuses_to_change_it(transactional_db):
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", data=LARGE)])
    with pytest.raises(DatabaseError, match="immutable"), connection.cursor() as cursor:
        cursor.execute("UPDATE tasks_app_payload SET id = id + 1")
    assert len(kept()) == 1
