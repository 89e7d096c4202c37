"""Nobody holds up the others for ever: not with a lock, not with a long statement, not by falling silent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction

from tasks_app.database import Statement, Steps, postgresql
from tasks_app.database.time_limits import TookTooLong, at_most
from tasks_app.models import Task
from tasks_app.writer import connection as writer_connection
from tasks_app.writer.connection import PostgreSQLConnection, settings_of_batches
from taskstore.errors import StoreUnavailable
from taskstore.types.tasks import NewTask

from ..behaviour.databases import only_postgresql
from ..behaviour.rivals import Rival

pytestmark = pytest.mark.usefixtures("transactional_db")

ANN, BOB = 1, 2
FOR_EVER = {
    "postgresql": "SELECT pg_sleep(3600)",
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
}


@pytest.fixture
def ann() -> Iterator[Rival]:
    with Rival("Ann") as ann:
        yield ann


def test_what_somebody_waits_for_ends_in_time_and_what_follows_is_not_limited():
    with pytest.raises(TookTooLong), at_most(0.2, using="default"), connection.cursor() as cursor:
        cursor.execute(FOR_EVER[connection.vendor])
    with at_most(0.2, using="default"), transaction.atomic():
        pass
    time.sleep(0.3)
    assert Task.objects.count() == 0
    if connection.vendor == "postgresql":
        assert shown("statement_timeout") == "0"


@only_postgresql
def test_a_commit_that_falls_silent_lets_go_of_its_tasks(ann, monkeypatch):
    monkeypatch.setattr(postgresql, "SILENCE_S", 1)
    [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    ann.steps.stop_before("DELETE FROM tasks_app_task")
    silent = ann.start(lambda: Task.objects.commit(owner=ANN, deletes=[task.id]))
    ann.steps.wait_until_there()
    # Bob waits for the lock: for Ann's second, and not until she goes on.
    [changed] = Task.objects.commit(owner=BOB, adds=[NewTask(group="mail", id=task.id)], deletes=[task.id])
    ann.steps.go_on()
    with pytest.raises(StoreUnavailable):
        silent.result(20)
    assert [each.id for each in Task.objects.all()] == [changed.id]


@only_postgresql
@pytest.mark.parametrize("name", ["idle_in_transaction_session_timeout", "statement_timeout"])
def test_the_writers_transactions_are_limited_by_its_session_which_nobody_else_uses(name):
    def shows() -> Steps[str]:
        [[(value,)]] = yield [Statement(f"SHOW {name}")]
        return str(value)

    async def limits() -> list[str]:
        writing = PostgreSQLConnection("default")
        shown = [await run(shows()) for run in (writing.run, writing.read)]
        await writing.close()
        await sync_to_async(connections.close_all)()
        return shown

    assert asyncio.run(limits()) == [f"{postgresql.SILENCE_S // 60}min"] * 2


@only_postgresql
def test_a_writer_that_fell_silent_says_that_the_store_is_away(monkeypatch):
    monkeypatch.setattr(writer_connection, "SILENCE_S", 1)
    monkeypatch.setattr(writer_connection, "settings_of_batches", settings_of_batches.__wrapped__)

    def silent_steps() -> Steps[None]:
        yield [Statement("SELECT 1")]
        time.sleep(3)

    async def fall_silent() -> None:
        try:
            await PostgreSQLConnection("default").run(silent_steps())
        finally:
            await sync_to_async(connections.close_all)()

    with pytest.raises(StoreUnavailable):
        asyncio.run(fall_silent())


@only_postgresql
def test_a_commit_waits_for_locks_as_long_as_somebody_would_for_an_answer():
    with transaction.atomic():
        Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
        # A caller's own transaction is the caller's: its limits stay.
        assert shown("idle_in_transaction_session_timeout") == "0"
    dialect = postgresql.PostgreSQL("default", waits=True)
    with transaction.atomic():
        dialect.send(dialect.preparation([]))
        assert 0 < int(shown("lock_timeout").removesuffix("ms").replace("5s", "5000")) <= 5_000
        assert shown("idle_in_transaction_session_timeout") == "1min"
    assert shown("lock_timeout") == "0"


def shown(name: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {name}")
        return str(cursor.fetchone()[0])
