"""The tables come and go by migrations, in any order and as far as one likes."""

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.db import connection, connections

from tasks_app.counts import group_counts
from tasks_app.models import CountDelta, EndedTask, Task
from tasks_app.operations import Change, NewTask
from tasks_app.policy import ROLES
from taskstore_project import environment

from .people import ANN


@pytest.fixture
def migrated_in_the_end(transactional_db):
    yield
    call_command("migrate", verbosity=0)


@pytest.mark.parametrize("target", ["zero", "0001"])
def test_migrations_can_be_taken_back_and_done_again(migrated_in_the_end, target):
    call_command("migrate", "tasks_app", target, verbosity=0)
    call_command("migrate", "auth", verbosity=0)
    call_command("migrate", verbosity=0)
    [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    with pytest.raises(Exception, match="immutable"), connection.cursor() as cursor:
        cursor.execute("UPDATE tasks_app_task SET owner = 1 WHERE id = %s", [task.id])


def test_tasks_that_are_there_already_are_counted(migrated_in_the_end):
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail"), NewTask(group="mail", error="broken")])
    Task.objects.commit(owner=ANN, adds=[NewTask(group="reports", timespec_ms=-3_600_000)])
    Task.objects.claim("mail", owner=ANN, duration_ms=3_600_000)
    before = group_counts()
    call_command("migrate", "tasks_app", "0004", verbosity=0)
    call_command("migrate", verbosity=0)
    assert not CountDelta.objects.exists()
    assert group_counts() == before


def test_a_lease_that_runs_already_is_taken_to_have_begun_when_its_task_was_made(clock, migrated_in_the_end):
    adds = [NewTask(group="mail"), NewTask(group="mail", timespec_ms=-3_600_000)]
    added, scheduled = Task.objects.commit(owner=ANN, adds=adds)
    [held] = Task.objects.claim("mail", owner=ANN)
    clock.advance(1_000)
    renewal = Change(id=held.id, timespec_ms=-60_000, keep_data=True)
    [renewed] = Task.objects.commit(owner=ANN, updates=[renewal])
    call_command("migrate", "tasks_app", "0008_payload", verbosity=0)
    call_command("migrate", verbosity=0)
    assert leases_of(EndedTask) == {added.id: 0, held.id: held.made_at_ms}
    assert leases_of(Task) == {scheduled.id: 0, renewed.id: renewed.made_at_ms}
    assert renewed.made_at_ms == held.made_at_ms + 1_000


def leases_of(model):
    return dict(model.objects.values_list("id", "leased_since_ms"))


def test_the_trail_stays_on_its_way_to_tables_of_days_and_back(migrated_in_the_end):
    [task, *others] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")] * 3)
    [held] = Task.objects.commit(owner=ANN, updates=[Change(id=task.id)])
    Task.objects.commit(owner=ANN, deletes=[other.id for other in others])
    before = trail()
    assert len(before) == 3
    call_command("migrate", "tasks_app", "0009", verbosity=0)
    assert trail() == before
    call_command("migrate", verbosity=0)
    assert trail() == before
    Task.objects.commit(owner=ANN, deletes=[held.id])
    assert len(trail()) == 4
    with pytest.raises(Exception, match="immutable"), connection.cursor() as cursor:
        cursor.execute("UPDATE tasks_app_endedtask SET reason = 'forged'")


def trail():
    """In words that every version of the table knows."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT id, "group", origin, claims, made_at_ms, ended_at_ms, ending, successor
            FROM tasks_app_endedtask
            ORDER BY id
            """
        )
        return cursor.fetchall()


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
