"""Strict: what was answered is on the disk. Opportunistic: it gets there soon."""

import pytest
from django.db import connection
from django.db.backends.sqlite3.base import DatabaseWrapper
from django.test.utils import CaptureQueriesContext

from tasks_app.models import Task
from taskstore.types.tasks import NewTask
from taskstore_project import environment

from .databases import only_postgresql, only_sqlite
from .people import ANN


def statements_of_a_commit():
    with CaptureQueriesContext(connection) as captured:
        Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    # The word to other processes comes after it. Settings go together, in one round trip.
    said = [query["sql"] for query in captured if "pg_notify" not in query["sql"]]
    return [statement for sql in said for statement in sql.split("; ")]


@only_postgresql
def test_strict_leaves_the_servers_own_promise_alone(transactional_db, settings):
    settings.TASKSTORE_DURABILITY = "strict"
    assert not [sql for sql in statements_of_a_commit() if "synchronous_commit" in sql]


@only_postgresql
def test_opportunistic_does_not_wait_for_the_disk(transactional_db, settings):
    settings.TASKSTORE_DURABILITY = "opportunistic"
    assert [sql for sql in statements_of_a_commit() if sql.startswith("SET LOCAL synchronous_commit = off")]
    with connection.cursor() as cursor:
        cursor.execute("SHOW synchronous_commit")
        assert cursor.fetchone() == ("on",)  # It was for that transaction only.


@only_postgresql
def test_the_jump_of_the_ids_waits_for_the_disk_in_any_case(transactional_db, settings):
    settings.TASKSTORE_DURABILITY = "opportunistic"
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE tasks_app_log_intact")
    said = [sql for sql in statements_of_a_commit() if "synchronous_commit" in sql]
    assert [sql.partition("= ")[2] for sql in said] == ["off", "on"]


@only_sqlite
@pytest.mark.parametrize(("durable", "synchronous"), [(True, 2), (False, 1)])
def test_a_sqlite_file_is_written_through_or_soon(transactional_db, tmp_path, durable, synchronous):
    described = environment.sqlite_database(tmp_path / "x.sqlite3", durable=durable)
    wrapper = DatabaseWrapper({**connection.settings_dict, **described})
    try:
        with wrapper.cursor() as cursor:
            assert cursor.execute("PRAGMA synchronous").fetchone() == (synchronous,)
            assert cursor.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    finally:
        wrapper.close()
