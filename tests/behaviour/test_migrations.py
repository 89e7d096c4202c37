"""The tables come and go by migrations."""

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.db import connection, connections
from django.db.migrations.recorder import MigrationRecorder

from tasks_app.access.policy import ROLES
from tasks_app.models import EndedTask, Task
from taskstore.types.tasks import Change, NewTask
from taskstore_project import environment

from .people import ANN


@pytest.fixture
def migrated_in_the_end(transactional_db):
    yield
    call_command("migrate", verbosity=0)


def test_the_tables_can_be_taken_back_and_made_again(migrated_in_the_end):
    call_command("migrate", "tasks_app", "zero", verbosity=0)
    left = {name for name in connection.introspection.table_names() if name.startswith("tasks_app")}
    assert left == set()
    call_command("migrate", "auth", verbosity=0)
    call_command("migrate", verbosity=0)
    [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    [held] = Task.objects.commit(owner=ANN, updates=[Change(id=task.id)])
    assert EndedTask.objects.get().successor == held.id
    for statement in ("UPDATE tasks_app_task SET owner = 1", "UPDATE tasks_app_endedtask SET owner = 1"):
        with pytest.raises(Exception, match="immutable"), connection.cursor() as cursor:
            cursor.execute(statement)


def test_the_models_are_what_the_migrations_make(transactional_db):
    call_command("makemigrations", check=True, dry_run=True)


@pytest.fixture
def fresh(transactional_db, tmp_path):
    """The name of a database in which nothing is yet."""
    described = environment.sqlite_database(tmp_path / "fresh.sqlite3", durable=False)
    connections.databases["fresh"] = {**connections["default"].settings_dict, **described}
    yield "fresh"
    connections["fresh"].close()
    del connections["fresh"], connections.databases["fresh"]


@pytest.mark.once
@pytest.mark.parametrize("application", ["contenttypes", "tasks_app", "auth"])
def test_the_first_migration_may_be_of_any_application(fresh, application):
    call_command("migrate", application, verbosity=0, database=fresh)
    call_command("migrate", verbosity=0, database=fresh)
    assert set(Group.objects.using(fresh).values_list("name", flat=True)) == set(ROLES)


@pytest.mark.once
def test_a_migration_that_is_cut_short_is_done_again(fresh, monkeypatch):
    record, cut = MigrationRecorder.record_applied, set()

    def recorded(self, application, name):
        if name not in cut:
            cut.add(name)
            raise KeyboardInterrupt
        record(self, application, name)

    monkeypatch.setattr(MigrationRecorder, "record_applied", recorded)
    for _ in range(100):
        try:
            call_command("migrate", verbosity=0, database=fresh)
            break
        except KeyboardInterrupt:
            assert connections[fresh].cursor().execute("PRAGMA foreign_keys").fetchone() == (1,)
    assert len(cut) > 10
    assert connections[fresh].cursor().execute("PRAGMA foreign_key_check").fetchall() == []
    assert Task.objects.using(fresh).count() == 0
