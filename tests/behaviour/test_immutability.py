"""A task is never changed in place: not by the model, not by a queryset, not by SQL."""

import pytest
from asgiref.sync import async_to_sync
from django.db import DatabaseError, connection

from tasks_app.access import audit
from tasks_app.core.actors import Actor
from tasks_app.database import triggers
from tasks_app.models import AuditEntry, EndedTask, Payload, Task
from taskstore.errors import Immutable
from taskstore.types.tasks import NewTask

from .databases import only_sqlite
from .people import ANN

ON_QUERYSETS = {
    "update": {"error": ""},
    "delete": {},
    "create": {"group": "mail"},
    "bulk_create": {"objs": []},
    "bulk_update": {"objs": [], "fields": ["error"]},
    "get_or_create": {"group": "mail"},
    "update_or_create": {"group": "mail"},
}


@pytest.fixture
def task(transactional_db):
    [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", data=b"1")])
    yield task
    [found] = Task.objects.values().all()
    assert found == {name: getattr(task, name) for name in found}


@pytest.mark.parametrize(("name", "asked"), ON_QUERYSETS.items(), ids=ON_QUERYSETS)
@pytest.mark.parametrize("start", [lambda: Task.objects, lambda: Task.objects.all(), lambda: Task.objects.filter(id=0)])
def test_a_queryset_changes_nothing_and_names_the_verbs(task, start, name, asked):
    with pytest.raises(Immutable, match=r"Task\.objects\.commit"):
        getattr(start(), name)(**asked)
    with pytest.raises(Immutable, match=r"Task\.objects\.commit"):
        async_to_sync(as_coroutine)(getattr(start(), f"a{name}"), asked)


async def as_coroutine(method, asked):
    return await method(**asked)


def test_a_task_does_not_delete_itself(task):
    for delete in (task.delete, lambda: async_to_sync(task.adelete)()):
        with pytest.raises(Immutable, match=r"Task\.objects\.commit"):
            delete()


def test_a_new_task_does_not_save_either(task):
    with pytest.raises(Immutable):
        Task(id=2**53, group="mail").save()


@pytest.mark.parametrize("model", [Task, EndedTask, AuditEntry])
def test_the_database_itself_refuses_an_update(transactional_db, model):
    [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", id=task.id)], deletes=[task.id])
    AuditEntry.objects.create(
        actor="Ann", action="purge", group="mail", selection="", reason="", done=1, skipped=0, duration_ms=1
    )
    before = list(model.objects.values())
    assert before
    column = model._meta.get_field("group").column
    with pytest.raises(DatabaseError, match="immutable"), connection.cursor() as cursor:
        cursor.execute(f"UPDATE {model._meta.db_table} SET \"{column}\" = 'reports'")  # noqa: S608 - our own names
    assert list(model.objects.values()) == before


@pytest.fixture
def rows(transactional_db):
    """One in each table whose rows never change, and a unique index beside the key."""
    [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    long = NewTask(group="mail", data=b"long" * 20_000)
    Task.objects.commit(owner=ANN, adds=[long], deletes=[task.id])
    audit.record(Actor("ann"), "purge", group="mail", selection="all", done=1)
    execute("CREATE UNIQUE INDEX one_of_a_size ON tasks_app_payload (size)")
    triggers.put_right("default")
    yield {model: list(model.objects.values()) for model in (Task, EndedTask, Payload, AuditEntry)}
    execute("DROP INDEX one_of_a_size")
    triggers.put_right("default")


def execute(sql, *parameters):
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)


@only_sqlite
@pytest.mark.parametrize("model", [Task, EndedTask, Payload, AuditEntry])
def test_nor_does_sqlite_replace_a_row(rows, model):
    table = model._meta.db_table
    for verb in ("INSERT OR REPLACE", "REPLACE"):
        with pytest.raises(DatabaseError, match="immutable"):
            execute(f"{verb} INTO {table} SELECT * FROM {table}")  # noqa: S608 - our own name
    assert list(model.objects.values()) == rows[model]
