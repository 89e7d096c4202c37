"""A SQLite file that another program keeps locked."""

import asyncio
import sqlite3
from contextlib import closing

import pytest
from django.db import connection

from tasks_app.core.operations import Commit
from tasks_app.database import transact
from tasks_app.writer import connection as writer_connection
from tasks_app.writer.connection import SQLiteConnection
from taskstore.errors import StoreBusy
from taskstore.types.tasks import NewTask

from ..behaviour.databases import only_sqlite
from ..behaviour.people import ANN

ADD = Commit(owner=ANN, adds=(NewTask(group="mail"),))


class Counting(SQLiteConnection):
    tries = 0

    def _locked_for_s(self):
        self.tries += 1
        return super()._locked_for_s()


@pytest.fixture
def other(transactional_db):
    with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as other:
        yield other


@only_sqlite
def test_who_was_behind_others_in_the_queue_does_not_wait_as_long_again(other, monkeypatch):
    async def add_while_it_is_locked():
        writer = Counting("default")
        other.execute("BEGIN IMMEDIATE")
        tries = []
        for _ in range(3):
            writer.tries = 0
            with pytest.raises(StoreBusy):
                await writer.run(transact([ADD], writer.dialect))
            tries.append(writer.tries)
        other.execute("ROLLBACK")
        done = await writer.run(transact([ADD], writer.dialect))
        await writer.close()
        return tries, done.decisions

    monkeypatch.setattr(writer_connection, "PATIENCE_S", 0.2)
    monkeypatch.setattr(writer_connection, "FORGOTTEN_S", 60)
    tries, [[added]] = asyncio.run(add_while_it_is_locked())
    assert tries[0] > 1
    assert tries[1:] == [1, 1]
    assert added.group == "mail"


@only_sqlite
def test_once_somebody_got_through_it_is_another_lock(other, monkeypatch):
    async def add_while_it_is_locked_twice():
        writer = Counting("default")
        for _ in range(2):
            writer.tries = 0
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusy):
                await writer.run(transact([ADD], writer.dialect))
            other.execute("ROLLBACK")
            await writer.run(transact([ADD], writer.dialect))
        await writer.close()
        return writer.tries

    monkeypatch.setattr(writer_connection, "PATIENCE_S", 0.2)
    monkeypatch.setattr(writer_connection, "FORGOTTEN_S", 60)
    assert asyncio.run(add_while_it_is_locked_twice()) > 1
