"""An id is used once, for ever, and a successor's is larger."""

from contextlib import suppress

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, migrations, models, transaction
from django.db.backends.sqlite3.base import DatabaseWrapper
from django.db.migrations.loader import MigrationLoader
from django.test.utils import CaptureQueriesContext

from tasks_app import database
from tasks_app.models import Task
from taskstore.types.tasks import Change, NewTask
from taskstore_project import environment

from .databases import only_postgresql, only_sqlite
from .people import ANN, BOB

MAIL = NewTask(group="mail")


def add(store):
    [task] = store.commit(owner=ANN, adds=[MAIL])
    return task.id


def execute(sql, *parameters):
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall() if cursor.description else []


def test_ids_rise(store):
    ids = [add(store)]
    ids += [task.id for task in store.commit(owner=ANN, adds=[MAIL] * 3, updates=[Change(id=ids[0])])]
    ids += [task.id for task in store.claim("mail", owner=BOB, limit=2)]
    ids += [add(store)]
    assert ids == sorted(set(ids))


def test_an_id_of_a_transaction_that_was_rolled_back_is_not_given_out_again(transactional_db):
    """Whoever saw it in the transaction may have kept it: a file, a message, another database."""
    seen = []
    for _ in range(3):
        with suppress(ZeroDivisionError), transaction.atomic():
            seen += [task.id for task in Task.objects.commit(owner=ANN, adds=[MAIL] * 2)]
            1 / 0  # noqa: B018
    seen.append(add(Task.objects))
    assert len(set(seen)) == 7


def test_an_emptied_store_counts_on(transactional_db):
    newest = Task.objects.commit(owner=ANN, adds=[MAIL] * 5)[-1].id
    call_command("flush", interactive=False, verbosity=0)
    assert not Task.objects.exists()
    assert Task.objects.commit(owner=ANN, adds=[MAIL])[0].id > newest


def test_a_table_that_is_built_anew_counts_on_and_is_guarded_again(transactional_db):
    newest = Task.objects.commit(owner=ANN, adds=[MAIL] * 5)[-1].id
    Task.objects.commit(owner=ANN, deletes=[newest])
    add_and_remove_a_column()
    call_command("migrate", verbosity=0)
    [task] = Task.objects.commit(owner=ANN, adds=[MAIL])
    assert task.id > newest
    with pytest.raises(DatabaseError, match="immutable"):
        execute("UPDATE tasks_app_task SET owner = owner WHERE id = %s", task.id)


def add_and_remove_a_column():
    """As a migration does it: on SQLite by copying the table, which loses its triggers."""
    before = MigrationLoader(connection).project_state()
    for operation in (
        migrations.AddField("task", "extra", models.IntegerField(default=1)),
        migrations.RemoveField("task", "extra"),
    ):
        after = before.clone()
        operation.state_forwards("tasks_app", after)
        with connection.schema_editor() as editor:
            operation.database_forwards("tasks_app", editor, before, after)
        before = after


@only_sqlite
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_counter_that_lags_behind_is_put_right_by_migrate(transactional_db, is_deleted):
    newest = Task.objects.commit(owner=ANN, adds=[MAIL] * 5)[-1].id
    if is_deleted:
        Task.objects.commit(owner=ANN, deletes=[newest])
    execute("UPDATE tasks_app_counters SET value = 1 WHERE name = 'ids'")
    call_command("migrate", verbosity=0)
    assert Task.objects.commit(owner=ANN, adds=[MAIL])[0].id > newest


@only_postgresql
def test_ids_jump_once_when_the_end_of_the_log_may_be_lost(store):
    """PostgreSQL empties an unlogged table after a crash, and only then."""
    before = add(store)
    execute("TRUNCATE tasks_app_log_intact")
    jumped = add(store)
    assert jumped > before + 2**32
    assert jumped < 2**53
    assert add(store) == jumped + 1


@only_postgresql
def test_ids_jump_also_when_the_first_to_notice_fails(transactional_db):
    [before] = Task.objects.commit(owner=ANN, adds=[MAIL])
    execute("TRUNCATE tasks_app_log_intact")
    with transaction.atomic():
        Task.objects.commit(owner=ANN, adds=[MAIL])
        transaction.set_rollback(True)
    [after] = Task.objects.commit(owner=ANN, adds=[MAIL])
    assert after.id > before.id + 2**32


@only_postgresql
def test_the_numbers_of_commits_jump_too(transactional_db):
    [before] = Task.objects.commit(owner=ANN, adds=[MAIL])
    execute("TRUNCATE tasks_app_log_intact")
    [after] = Task.objects.commit(owner=ANN, updates=[Change(id=before.id)])
    assert after.made_by_commit > before.made_by_commit + 2**32


@only_sqlite
def test_ids_jump_when_the_disk_may_have_lost_some(store):
    before = add(store)
    database.dialect_of("default").jump_ids()
    jumped = add(store)
    assert jumped > before + 2**32
    assert add(store) == jumped + 1


# ---- Strict: what was answered is on the disk. Opportunistic: it gets there soon


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
