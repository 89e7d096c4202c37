"""How a long list is read: what it sees, and what it holds."""

import json
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from django.db import OperationalError, connection, connections
from psycopg import ServerCursor

from tasks_app.models import Task
from tasks_app.rest_api.views import PAGES_AT_ONCE, PIECE_BYTES, listing, turns
from taskstore.types.tasks import NewTask
from tests.behaviour.databases import only_postgresql

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


@only_postgresql  # Of SQLite there are as many as one likes.
def test_a_slow_reader_holds_no_connection():
    add(50, size=10_000)
    pieces = listing(Task.objects.group("mail"))
    next(pieces)
    assert connection.connection is None


@only_postgresql
def test_a_connection_that_breaks_at_the_end_of_a_list_is_a_database_that_is_away(monkeypatch):
    add(2, size=10)
    close = ServerCursor.close

    def cut_before(cursor):
        with ThreadPoolExecutor(1) as other:
            other.submit(cut, cursor.connection.info.backend_pid).result(60)
        try:
            close(cursor)
        finally:
            cursor._closed = True  # As it is; else it complains when it is collected.

    monkeypatch.setattr(ServerCursor, "close", cut_before)
    # Not the driver's own error, which nobody expects.
    with pytest.raises(OperationalError):
        list(Task.objects.group("mail").of_one_moment())


def cut(backend):
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [backend])
    connections.close_all()


def test_who_reads_a_short_list_waits_for_nobody_who_reads_a_long_one():
    ids = add(2, size=10)
    with ThreadPoolExecutor(1) as others, ExitStack() as taken:
        for _ in range(PAGES_AT_ONCE):
            taken.enter_context(turns)
        long = others.submit(listed)
        assert [task["id"] for task in json.loads(b"".join(listing(Task.objects.group("mail"), limit=10)))] == ids
        assert not long.done()
        taken.close()
        assert long.result(60) == ids


def listed():
    try:
        return [task["id"] for task in json.loads(b"".join(listing(Task.objects.group("mail"))))]
    finally:
        connections.close_all()


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
