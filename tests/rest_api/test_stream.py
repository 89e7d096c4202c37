"""How a long list is read: what it sees, and what it holds."""

import json
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import OperationalError, connection, connections
from django.test import RequestFactory
from psycopg import ServerCursor
from rest_framework.request import Request

from tasks_app.models import Task
from tasks_app.reading.exporting import LONG_LISTS, long_lists
from tasks_app.rest_api.views import listing
from taskstore.types.tasks import NewTask
from tests.behaviour.databases import only_postgresql

from .api import ANN

# Whether a transaction is open is seen only where the test is none.
pytestmark = pytest.mark.usefixtures("transactional_db")


def add(number: int, size: int) -> list[int]:
    adds = [NewTask(group="mail", data=b"x" * size, timespec_ms=1)] * number
    return [task.id for task in Task.objects.commit(owner=ANN, adds=adds)]


def pieces_of_list(limit=None):
    request = Request(RequestFactory().get("/group/mail"))
    content: Any = listing(request, Task.objects.group("mail"), limit).streaming_content
    return iter(content)


def elsewhere(work):
    """Do it on a connection of its own."""

    def done():
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as other:
        return other.submit(done).result(60)


@only_postgresql  # In the tests SQLite's tables are in memory, where a reader locks out the writer.
def test_a_long_list_shows_one_moment_however_slow_its_reader_is():
    ids = add(300, size=10_000)
    pieces = pieces_of_list()
    begin = next(pieces)
    elsewhere(lambda: Task.objects.commit(owner=ANN, deletes=ids))
    assert [task["id"] for task in json.loads(begin + b"".join(pieces))] == ids


def test_a_short_list_shows_one_moment_and_holds_nothing_while_it_is_sent():
    ids = add(50, size=10_000)
    pieces = pieces_of_list()
    assert not connection.in_atomic_block
    if connection.vendor == "postgresql":  # In the tests SQLite's tables are in memory, and gone without a connection.
        assert connection.connection is None
    begin = next(pieces)
    Task.objects.commit(owner=ANN, deletes=ids)
    assert [task["id"] for task in json.loads(begin + b"".join(pieces))] == ids


def test_large_data_is_there_although_its_task_ends_while_the_list_is_sent():
    ids = add(3, size=1_000_000)
    pieces = pieces_of_list()
    begin = next(pieces)
    elsewhere(lambda: Task.objects.commit(owner=ANN, deletes=ids[2:]))
    assert [len(task["data"]) for task in json.loads(begin + b"".join(pieces))] == [1_000_000] * 3


@pytest.mark.parametrize("path", ["/group/mail", "/export?q=group:mail", "/export?format=csv"])
def test_so_many_long_lists_are_read_at_once_and_no_more(api, path):
    add(300, size=10_000)
    places = list(filter(None, [long_lists.take(1, LONG_LISTS) for _ in range(LONG_LISTS)]))
    refused = api.http.get(path)
    assert (refused.status_code, refused["Retry-After"]) == (429, "1")
    text = "8 long lists are being read: try again when one of them is finished"
    assert json.loads(refused.content) == {"detail": text, "code": "readers"}
    assert len(api.get("/group/mail?limit=9")[1]) == 9  # A short one waits for nobody.
    places[0].leave()
    assert len(api.http.get(path).getvalue()) > 3_000_000
    places.clear()
    assert long_lists.add(0) == 0


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


def test_memory_does_not_grow_with_the_list():
    for _ in range(3):
        add(10_000, size=1_000)
    tracemalloc.start()
    try:
        length = sum(map(len, pieces_of_list()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert length > 30_000_000
    assert peak < 4_000_000
