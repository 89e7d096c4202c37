"""A store whose tables no version has is told apart, by each command, and one of an earlier version is migrated."""

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor

from tasks_app.database import table_version
from tasks_app.database.table_version import Version, version_of
from tasks_app.models import Batch, BatchPlan, Task
from taskstore_project import startup_migration
from taskstore_project.base_command import CannotRun
from taskstore_project.management.commands import migrate
from tests.emptying import empty

FILE = Path(__file__).with_name("ede4381c.zip")
pytestmark = pytest.mark.django_db(transaction=True)

OTHER = "made by an unreleased revision with other tables: export its tasks with that revision"


@pytest.fixture
def changed(transactional_db):
    """A table has a column more, as one of the revisions had before the first migration was frozen."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE tasks_app_batchgroup ADD COLUMN later integer")
        yield
        cursor.execute("ALTER TABLE tasks_app_batchgroup DROP COLUMN later")


def test_each_command_says_that_no_version_has_these_tables(changed):
    assert version_of("default") is Version.UNRELEASED
    with pytest.raises(CannotRun, match=OTHER):
        startup_migration.migrate()
    with pytest.raises(CannotRun, match=OTHER):
        startup_migration.need_store()
    with pytest.raises(Exception, match=OTHER):
        call_command("check", databases=["default"])
    with pytest.raises(Exception, match=OTHER):
        call_command("migrate", plan=True, skip_checks=False)
    with pytest.raises(CommandError, match=OTHER):
        call_command("work", "--burst")


@pytest.fixture
def earlier(transactional_db):
    call_command("migrate", "tasks_app", "0001_initial", verbosity=0)
    yield
    call_command("migrate", verbosity=0)


def test_a_store_of_an_earlier_version_is_migrated(earlier):
    assert version_of("default") is Version.EARLIER
    with pytest.raises(CannotRun, match=r"has tables of an earlier version until `.* migrate.*` has run"):
        startup_migration.need_store()
    startup_migration.migrate()
    assert version_of("default") is Version.HERE


def test_without_tables_it_has_no_version(transactional_db, monkeypatch):
    monkeypatch.setattr(connections["default"].introspection, "table_names", lambda cursor: ["auth_user"])
    assert version_of("default") is Version.NONE
    assert "lacks tables until `x` has run" in table_version.why_unusable("default", "it", "x")


def test_a_sqlite_database_is_copied_before_its_tables_change(earlier, caplog):
    if connection.vendor != "sqlite":
        pytest.skip("the file is SQLite's")
    file = Path(connection.settings_dict["NAME"])
    copy = file.with_name(f"{file.name}.before-upgrade")
    startup_migration.migrate()
    assert f"a copy of the database before that is {copy}" in caplog.text
    assert "change to those of this version" in caplog.text
    assert copy.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as before:
        tables = {name for (name,) in before.execute("SELECT name FROM sqlite_master")}
    assert "tasks_app_task" in tables
    assert "tasks_app_batchplan" not in tables
    copy.unlink()
    startup_migration.migrate()
    assert not copy.exists()


def test_no_table_changes_where_no_copy_can_be_kept(earlier):
    if connection.vendor != "sqlite":
        pytest.skip("the file is SQLite's")
    file = Path(connection.settings_dict["NAME"])
    copy = file.with_name(f"{file.name}.before-upgrade")
    copy.mkdir()
    try:
        with pytest.raises(CannotRun, match=r"can't keep a copy of the database in .* before its tables change"):
            startup_migration.migrate()
        assert version_of("default") is Version.EARLIER
    finally:
        copy.rmdir()


def test_a_migration_gives_way_to_a_long_transaction(earlier, monkeypatch):
    if connection.vendor != "postgresql":
        pytest.skip("on SQLite a server has its file alone")
    other, pauses = connection.copy(), []
    with other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("LOCK TABLE tasks_app_recentclaim IN ROW SHARE MODE")

        def pause(seconds):
            pauses.append(seconds)
            with connection.cursor() as waiting:  # Nobody waits for the migration meanwhile.
                waiting.execute("SELECT count(*) FROM tasks_app_recentclaim")
            cursor.execute("COMMIT")

        monkeypatch.setattr(time, "sleep", pause)
        call_command("migrate", verbosity=0)
    other.close()
    assert pauses == [migrate.PAUSES_S[0]]
    assert version_of("default") is Version.HERE


def test_a_migration_that_is_kept_waiting_for_ever_says_so_and_changes_nothing(earlier, monkeypatch):
    if connection.vendor != "postgresql":
        pytest.skip("on SQLite a server has its file alone")
    other = connection.copy()
    monkeypatch.setattr(migrate, "PAUSES_S", (0.01, 0.01))
    monkeypatch.setattr(migrate, "LOCK_WAIT_MS", 10)
    with other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("LOCK TABLE tasks_app_recentclaim IN ROW SHARE MODE")
        with pytest.raises(CannotRun, match=r"other transactions hold locks .* end them, and migrate again"):
            call_command("migrate", verbosity=0)
        cursor.execute("ROLLBACK")
    other.close()
    assert version_of("default") is Version.EARLIER


def test_another_table_that_begins_like_ours_is_no_part_of_the_store(transactional_db):
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE tasks_app_task_copy AS SELECT * FROM tasks_app_task")
        try:
            assert version_of("default") is Version.HERE
        finally:
            cursor.execute("DROP TABLE tasks_app_task_copy")


def test_without_migrations_the_tables_are_those_of_the_models(transactional_db, settings):
    settings.MIGRATION_MODULES = {"tasks_app": None}
    assert version_of("default") is Version.HERE


def test_a_store_that_is_not_empty_is_not_migrated_by_a_restore(earlier, refusal):
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO tasks_app_pausedgroup VALUES ('mail', 'ann', '', '2026-11-29 00:00:00')")
    assert "is not empty (paused groups: 1)" in refusal("restore", FILE)
    assert version_of("default") is Version.EARLIER
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM tasks_app_pausedgroup")


def test_a_failure_of_before_is_told_after_the_upgrade(earlier):
    former = MigrationExecutor(connection).loader.project_state(("tasks_app", "0001_initial")).apps
    models = {model.__name__: model._base_manager for model in former.get_models()}
    plan = {"adds": [{"group": "alarm", "data": ""}], "then": None, "on_failure": None}
    models["Batch"].create(id=1, parent=0, hold=0, failed_ends=0, created_at_ms=1, on_failure=json.dumps(plan))
    models["BatchCount"].create(batch=1, part=0, open=1, failed=0, ended=1)
    task = {"available_at_ms": 0, "owner": 0, "data": b"", "labels": {}, "priority": 0, "claims": 0, "batch": 1}
    task |= {"leased_since_ms": 0, "created_at_ms": 1, "made_at_ms": 1, "made_by_commit": 1}
    models["Task"].create(id=1, origin=1, group="jobs/a/cancelled", standing=1, error="cancelled", **task)
    models["Task"].create(id=2, origin=2, group="work", **task)
    call_command("migrate", verbosity=0)
    told = Batch.objects.counted().get(pk=1).told()
    assert (told.state, told.total, told.open, told.failed, told.gone, told.ended) == ("open", 2, 1, 1, 1, 0)
    Task.objects.commit(owner=1, deletes=[2])
    assert sorted(Task.objects.values_list("group", flat=True)) == ["alarm", "jobs/a/cancelled"]
    assert Batch.objects.counted().get(pk=1).told().state == "failed"
    assert not BatchPlan.objects.exists()
    empty()
