"""How a long list is read: what it sees, and what it holds."""

import json
import tracemalloc

import pytest
from django.db import connection

from tasks_app.models import Task
from tasks_app.operations import NewTask
from tasks_app.rest_api.stream import PIECE_BYTES, listing

from .api import ANN

# Whether a transaction is open is seen only where the test is none.
pytestmark = pytest.mark.usefixtures("transactional_db")


def add(number: int, size: int) -> list[int]:
    adds = [NewTask(group="mail", data=b"x" * size, timespec_ms=1)] * number
    return [task.id for task in Task.objects.commit(owner=ANN, adds=adds)]


def test_a_list_shows_one_moment_however_slow_its_reader_is():
    ids = add(50, size=10_000)
    pieces = listing(Task.objects.group("mail"))
    begin = next(pieces)
    Task.objects.commit(owner=ANN, deletes=ids)
    assert [task["id"] for task in json.loads(begin + b"".join(pieces))] == ids


def test_a_slow_reader_holds_no_transaction():
    add(50, size=10_000)
    pieces = listing(Task.objects.group("mail"))
    assert len(next(pieces)) == PIECE_BYTES
    assert connection.get_autocommit()
    assert not connection.in_atomic_block


def test_memory_does_not_grow_with_the_list():
    for _ in range(3):
        add(10_000, size=1_000)
    tracemalloc.start()
    try:
        length = sum(map(len, listing(Task.objects.group("mail"))))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert length > 30_000_000
    assert peak < 4_000_000
