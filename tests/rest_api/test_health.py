import pytest
from django.db import OperationalError
from django.test import Client

from tasks_app.instance import INSTANCE
from tasks_app.managers import TaskManager


def test_health_names_the_process_without_asking_the_database():
    # Without a database fixture any query fails.
    response = Client().get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok", "instance": INSTANCE})


@pytest.mark.django_db
def test_readiness_asks_the_database(django_assert_num_queries):
    with django_assert_num_queries(1):
        assert Client().get("/readyz").json() == {"status": "ok", "instance": INSTANCE}


def test_without_a_database_the_server_lives_but_is_not_ready(monkeypatch):
    def fail(*_):
        raise OperationalError("no route to host")

    monkeypatch.setattr(TaskManager, "find", fail)
    assert Client().get("/healthz").status_code == 200
    response = Client().get("/readyz")
    assert (response.status_code, response["Retry-After"], response.json()["code"]) == (503, "1", "unavailable")
