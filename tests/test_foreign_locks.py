"""Somebody's transaction holds every row of the store, or changes limits, and each change is answered in time.

All ways of the table in test_audited_changes.py, and what workers do.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest
from django.apps import apps
from django.db import connection
from django.test import Client

from tasks_app.database import PostgreSQL
from taskstore.errors import StoreBusy

from .behaviour.databases import only_postgresql
from .rest_api.api import ANN
from .test_audited_changes import WAYS, World, world

__all__ = ["world"]

pytestmark = [only_postgresql, pytest.mark.django_db(transaction=True)]

PATIENCE_S = 0.3
TOO_LONG_S = 8.0
# What a request to sign in or out changes beside the store is the business of Django.
TABLES = [model._meta.db_table for model in apps.get_app_config("tasks_app").get_models() if model._meta.managed]
HOLDS = {
    "the rows": [f"SELECT 1 FROM {table} FOR UPDATE" for table in TABLES],  # noqa: S608 - the names are ours
    "the limits": [statement.sql for statement in PostgreSQL("default", waits=True).change_limits(0)[0]],
}


def of_worker(path: str, method: str = "POST", **body: Any) -> Callable[[World], Any]:
    def send(world: World) -> Any:
        told = {name: value(world) if callable(value) else value for name, value in body.items()}
        text = json.dumps({"clientid": ANN, **told})
        return world.operator.http.generic(method, path.format(world=world), text, "application/json")

    return send


WORKERS = {
    "delete": of_worker("/update", deletes=lambda world: [world.task.id]),
    "update": of_worker("/update", updates=lambda world: [{"id": world.held.id}]),
    "depend": of_worker("/update", depends=lambda world: [world.task.id], adds=[{"group": "mail"}]),
    "add": of_worker("/update", adds=[{"group": "mail", "unique": "a"}]),
    "claim": of_worker("/claim", group="mail"),
    "create_batch": of_worker("/batches", adds=[{"group": "mail"}]),
    "heartbeat": of_worker("/clients/1", "PUT", name="ann"),
    "progress": of_worker("/progress/{world.held.id}", "PUT", done=0.5),
    "enqueue": of_worker("/jobs", queue="default", function="os.getcwd"),
    "bulk_preview": of_worker("/bulk/preview", verb="purge", group="mail"),
}


@contextmanager
def holder(statements: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Somebody who does this before each request, keeps what it locks, and gives up in the end."""
    gave_up = threading.Event()
    chosen = connection.settings_dict
    server = {"user": chosen["USER"], "password": chosen["PASSWORD"], "host": chosen["HOST"], "port": chosen["PORT"]}
    plain = Client.request
    with psycopg.connect(dbname=chosen["NAME"], **server) as foreign:

        def give_up() -> None:
            gave_up.set()
            with psycopg.connect(dbname=chosen["NAME"], autocommit=True, **server) as other:
                other.execute("SELECT pg_terminate_backend(%s)", [foreign.info.backend_pid])

        def request(client: Client, /, **asked: Any) -> Any:
            for statement in statements:
                foreign.execute(statement)
            return plain(client, **asked)

        timer = threading.Timer(TOO_LONG_S, give_up)
        timer.start()
        try:
            with monkeypatch.context() as patched:
                patched.setattr(Client, "request", request)
                yield gave_up
        finally:
            timer.cancel()
            if gave_up.is_set():
                foreign.close()
            else:
                foreign.rollback()


WAYS_IN = {"worker": WORKERS}
for (door, name), (_, way) in WAYS.items():
    WAYS_IN.setdefault(door, {})[name] = way


@pytest.mark.parametrize("hold", HOLDS)
@pytest.mark.parametrize("door", WAYS_IN)
def test_each_change_is_answered_while_somebody_holds(door, hold, world, monkeypatch, subtests):
    monkeypatch.setattr(PostgreSQL, "patience_s", PATIENCE_S)
    for name, change in WAYS_IN[door].items():
        with subtests.test(name), holder(HOLDS[hold], monkeypatch) as gave_up:
            with suppress(StoreBusy):  # Of what the way does without a request.
                change(world)
            assert not gave_up.is_set()
