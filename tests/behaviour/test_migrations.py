"""The tables come and go by migrations."""

import shutil
from pathlib import Path
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.core.management.commands import migrate
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from tasks_app.access.policy import ROLES
from tasks_app.models import EndedTask, Task
from taskstore.types.tasks import Change, NewTask
from taskstore_project import environment

from .databases import on_the_server
from .people import ANN


@pytest.fixture
def migrated_in_the_end(transactional_db):
    yield
    call_command("migrate", verbosity=0)


def test_the_tables_can_be_taken_back_and_made_again(migrated_in_the_end):
    own, operator = Group.objects.create(name="lab"), Group.objects.get(name="operator")
    operator.permissions.clear()  # As a project may have had a group of this name before.
    viewer = Group.objects.get(name="viewer")
    viewer.permissions.add(Permission.objects.get(codename="view_user"))  # What a project has made of a role.
    call_command("migrate", "tasks_app", "zero", verbosity=0)
    assert left_over() == []
    assert set(Group.objects.all()) == {own, viewer, operator}
    assert not ContentType.objects.filter(app_label="tasks_app").exists()
    assert not Permission.objects.filter(content_type__app_label="tasks_app").exists()
    Group.objects.all().delete()
    call_command("migrate", "auth", verbosity=0)
    call_command("migrate", verbosity=0)
    [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    [held] = Task.objects.commit(owner=ANN, updates=[Change(id=task.id)])
    assert EndedTask.objects.get().successor == held.id
    for statement in ("UPDATE tasks_app_task SET owner = 1", "UPDATE tasks_app_endedtask SET owner = 1"):
        with pytest.raises(Exception, match="immutable"), connection.cursor() as cursor:
            cursor.execute(statement)


def left_over():
    """The names of all that the database has of ours."""
    everything = "SELECT name FROM sqlite_master WHERE name LIKE '%tasks_app%'"
    if connection.vendor == "postgresql":
        everything = """
            SELECT relname FROM pg_class WHERE relname LIKE '%tasks_app%'
            UNION ALL SELECT proname FROM pg_proc WHERE proname LIKE '%tasks_app%'
            UNION ALL SELECT tgname FROM pg_trigger WHERE tgname LIKE '%tasks_app%'
            UNION ALL SELECT typname FROM pg_type WHERE typname LIKE '%tasks_app%'
        """
    with connection.cursor() as cursor:
        cursor.execute(everything)
        return [name for (name,) in cursor.fetchall()]


def test_only_permissions_that_somebody_can_use_are_made(transactional_db):
    table = ContentType.objects.get(app_label="tasks_app", model="batch")
    Permission.objects.create(content_type=table, codename="view_batch", name="of an earlier version")
    theirs = Permission.objects.create(content_type=table, codename="approve_batch", name="of the project")
    call_command("migrate", verbosity=0)
    ours = Permission.objects.filter(content_type__app_label="tasks_app").values_list("codename", flat=True)
    assert "approve_batch" in set(ours)
    theirs.delete()
    assert sorted(ours.all()) == ["administer", "commands", "operate", "see", "see_payloads", "work"]


def test_the_models_are_what_the_migrations_make(transactional_db):
    call_command("makemigrations", check=True, dry_run=True)


@pytest.fixture
def fresh(transactional_db, tmp_path):
    """The name of a database in which nothing is yet."""
    described = environment.sqlite_database(tmp_path / "fresh.sqlite3", durable=False)
    if is_postgresql := connection.vendor == "postgresql":
        described = {"NAME": f"fresh_{uuid4().hex}", "OPTIONS": {}}
        on_the_server(f"CREATE DATABASE {described['NAME']}")
    connections.databases["fresh"] = {**connections["default"].settings_dict, **described}
    yield "fresh"
    connections["fresh"].close()
    del connections["fresh"], connections.databases["fresh"]
    if is_postgresql:
        on_the_server(f"DROP DATABASE {described['NAME']}")


def left_if_killed_now(using, folder):
    """The tables that a process leaves which is killed at this moment: what the files hold, or what others see."""
    if connection.vendor == "postgresql":
        other = connections[using].copy()
    else:
        file = Path(connections[using].settings_dict["NAME"])
        for name in (file.name, f"{file.name}-wal"):
            if file.with_name(name).exists():
                shutil.copy(file.with_name(name), folder / name)
        other = connections[using].copy()
        other.settings_dict = {**other.settings_dict, "NAME": folder / file.name}
    try:
        return other.introspection.table_names()
    finally:
        other.close()


def test_a_first_start_leaves_all_tables_or_none_wherever_it_is_killed(fresh, tmp_path):
    left, folder = [], tmp_path / "left"
    folder.mkdir()

    def look(execute, *statement):
        answer = execute(*statement)
        left.append(left_if_killed_now(fresh, folder))
        return answer

    with connections[fresh].execute_wrapper(look):
        call_command("migrate", verbosity=0, database=fresh)
    assert len(left) > 300
    whole = left_if_killed_now(fresh, folder)
    assert whole == connections[fresh].introspection.table_names()
    assert [tables for tables in left if tables not in ([], whole)] == []
    assert Task.objects.using(fresh).count() == 0


@pytest.mark.parametrize(
    "migration", ["auth.0001_initial", "admin.0001_initial", "axes.0008_accessfailurelog", "tasks_app.0001_initial"]
)
def test_what_an_earlier_version_left_half_made_is_finished(fresh, monkeypatch, migration):
    """It recorded some migrations after their tables were there."""
    record = MigrationRecorder.record_applied

    def recorded(self, application, name):
        if f"{application}.{name}" == migration:
            raise KeyboardInterrupt
        record(self, application, name)

    with monkeypatch.context() as patched:
        patched.setattr(MigrationRecorder, "record_applied", recorded)
        patched.setattr(migrate, "MigrationExecutor", MigrationExecutor)
        with pytest.raises(KeyboardInterrupt):
            call_command(migrate.Command(), verbosity=0, database=fresh)
    call_command("migrate", verbosity=0, database=fresh)
    call_command("migrate", verbosity=0, database=fresh, check_unapplied=True)
    connections[fresh].check_constraints()
    assert Task.objects.using(fresh).count() == 0


@pytest.mark.parametrize("application", ["contenttypes", "tasks_app", "auth"])
def test_the_first_migration_may_be_of_any_application(fresh, application):
    call_command("migrate", application, verbosity=0, database=fresh)
    call_command("migrate", verbosity=0, database=fresh)
    roles = Group.objects.using(fresh)
    assert set(roles.values_list("name", flat=True)) == set(ROLES)
    may_see = set(roles.filter(permissions__codename="see").values_list("name", flat=True))
    assert may_see == {"viewer", "operator", "admin"}


@pytest.mark.once
def test_a_migration_that_is_cut_short_is_done_again(fresh, monkeypatch):
    call_command("migrate", "contenttypes", verbosity=0, database=fresh)
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
            if connection.vendor == "sqlite":
                assert connections[fresh].cursor().execute("PRAGMA foreign_keys").fetchone() == (1,)
    assert len(cut) > 10
    connections[fresh].check_constraints()
    assert Task.objects.using(fresh).count() == 0
