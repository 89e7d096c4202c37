"""A store whose tables no version has is told apart, by each command, and one of an earlier version is migrated."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections

from tasks_app.database import table_version
from tasks_app.database.table_version import Version, version_of
from taskstore_project import startup_migration
from taskstore_project.base_command import CannotRun
from taskstore_project.management.commands import migrate

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
