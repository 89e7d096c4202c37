"""Data that is large: written once, whatever becomes of the task, and gone with it."""

import pytest
from django.db import DatabaseError, connection

from tasks_app.database.rows import PAYLOAD_BYTES
from tasks_app.models import KeptPayload, Payload, Task
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


def test_successors_share_large_data(store):
    first = added(store)
    [claimed] = store.claim("mail", owner=BOB)
    [renewed] = store.commit(owner=BOB, updates=[Change(id=claimed.id, timespec_ms=-60_000)])
    assert [task.data for task in (first, claimed, renewed)] == [LARGE] * 3
    assert kept() == [first.id]
    assert store.find([renewed.id]) == [renewed]
    assert store.group("mail", owned=True) == [renewed]


def test_the_database_refuses_to_change_it(transactional_db):
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", data=LARGE)])
    with pytest.raises(DatabaseError, match="immutable"), connection.cursor() as cursor:
        cursor.execute("UPDATE tasks_app_payload SET id = id + 1")
    assert len(kept()) == 1
