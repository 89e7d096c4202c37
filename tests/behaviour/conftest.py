"""The store under every way in, on a database in which each commit is a real one; and a clock to set."""

from collections.abc import Iterator

import pytest
from django.db import connection

from tasks_app import database
from tasks_app.database import triggers
from tasks_app.models import Task

from .masstasker import Grpc
from .ways import WAYS, Manager, Store
from .writing import writing


@pytest.fixture
def days_made_anew(transactional_db: None) -> Iterator[None]:
    """The trail's tables of days are those that a new database has; and again afterwards, wherever the clock went."""
    make_days_anew()
    yield
    make_days_anew()


def make_days_anew() -> None:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM tasks_app_endedtask")
            for table in tables_of_days():
                cursor.execute(f"DROP TABLE {table}")
        triggers.put_right("default")


def tables_of_days() -> list[str]:
    """The trail's tables beside the default one, in the order of days."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT relname::text
            FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
            WHERE inhparent = 'tasks_app_endedtask'::regclass AND relname <> 'tasks_app_endedtask_default'
            ORDER BY relname
            """
        )
        return [name for (name,) in cursor.fetchall()]


EVERY_WAY = {**WAYS, "grpc": Grpc}
# The verbs through a writer whose batches have so many operations. Batches of one are what a server has here.
BATCHES = (2, 100)


@pytest.fixture(params=[*EVERY_WAY, *BATCHES], ids=lambda way: f"batch-{way}" if isinstance(way, int) else way)
def store(request: pytest.FixtureRequest, transactional_db: None) -> Iterator[Store]:
    """The store by each of the ways in."""
    if request.param in EVERY_WAY:
        way = EVERY_WAY[request.param]
        yield way(request.getfixturevalue(way.needs) if way.needs else None)
        return
    with writing(request.param - 1):
        yield Manager(None)


class Clock:
    """The database's clock, stopped: it goes on when it is told to."""

    def __init__(self, now_ms: int, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.set(now_ms)

    def set(self, now_ms: int) -> None:
        self.now_ms = now_ms
        for dialect in database.DIALECTS.values():
            self.patch.setattr(dialect, "clock", f"CAST({now_ms} AS bigint)")

    def advance(self, by_ms: int) -> None:
        self.set(self.now_ms + by_ms)


@pytest.fixture
def clock(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(Task.objects.now_ms(), monkeypatch)
