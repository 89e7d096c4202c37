import asyncio
import gc

import pytest
from django.db import OperationalError
from django.test import Client

from tasks_app import database
from tasks_app.managers import TaskManager
from tasks_app.models import KeptAnswer
from tasks_app.writer import writer
from tasks_app.writer.peers import INSTANCE
from taskstore.errors import StoreUnavailable


def test_health_names_the_process_without_asking_the_database():
    # Without a database fixture any query fails.
    response = Client().get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok", "instance": INSTANCE})


@pytest.mark.django_db
def test_readiness_asks_the_database(django_assert_num_queries):
    with django_assert_num_queries(5):  # It reads, and writes within a savepoint.
        assert Client().get("/readyz").json() == {"status": "ok", "instance": INSTANCE}


def test_without_a_database_the_server_lives_but_is_not_ready(monkeypatch):
    def fail(*_):
        raise OperationalError("no route to host")

    monkeypatch.setattr(TaskManager, "find", fail)
    assert Client().get("/healthz").status_code == 200
    response = Client().get("/readyz")
    assert (response.status_code, response["Retry-After"], response.json()["code"]) == (503, "1", "unavailable")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("database or disk is full", "the disk of the database is full"),
        ("attempt to write a readonly database", "the database is read-only or a standby"),
    ],
)
def test_where_nothing_can_be_written_it_is_not_ready_and_says_why(monkeypatch, text, reason):
    def fail(*_):
        raise OperationalError(text)

    monkeypatch.setattr(database, "probe", fail)
    response = Client().get("/readyz")
    assert (response.status_code, response["Retry-After"]) == (503, "1")
    assert response.json()["detail"].startswith(reason)


@pytest.mark.django_db
def test_it_leaves_no_trace_of_the_question(django_assert_num_queries):
    assert Client().get("/readyz").status_code == 200
    assert not KeptAnswer.objects.exists()


def test_a_server_that_writes_is_ready_however_often_it_is_asked(served):
    assert [served.request("GET", "/readyz").status_code for _ in range(3)] == [200] * 3


def test_a_check_that_fails_after_its_answer_is_no_error_of_the_server(served, monkeypatch, caplog):
    async def fail_late(steps):
        steps.close()
        await asyncio.sleep(0.1)
        raise StoreUnavailable("the database is locked by another program")

    monkeypatch.setattr(writer, "PATIENCE_S", 0.02)
    monkeypatch.setattr(served.writer._housekeeper.connection, "change", fail_late)
    assert served.request("GET", "/readyz").status_code == 503
    check = served.writer._check
    served.run(asyncio.wait_for(asyncio.wait([check]), 5))
    served.writer._check = check = None
    gc.collect()
    assert "never retrieved" not in caplog.text
