"""`manage.py verify`: it finds what can be wrong with a store, and mends its counts and keys."""

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import QuerySet

from tasks_app.database import COLUMNS
from tasks_app.models import AuditEntry, EndedTask, GroupTotal, Payload, Task, UniqueKey
from tasks_app.writer.totals import fold_here
from taskstore.types.tasks import Change, NewTask
from tests.behaviour.people import ANN, BOB

# What an entry of the trail has beside what it keeps of the task.
ENDED = {"ended_at_ms": 1, "ended_by_commit": 1, "ended_by": ANN, "ending": "claimed", "operator": "", "reason": ""}


@pytest.fixture
def task(transactional_db):
    """The living task of a chain of two, with data of its own row; its counts are folded."""
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", data=b"x" * 100_000, labels={"a": "b"})])
    [task] = Task.objects.claim("mail", owner=BOB, duration_ms=60_000)
    fold_here()
    return task


def put(model, task, **changed):
    """One more row with the values of the task, but for some. Past the verbs, which would not have it."""
    known = {name: getattr(task, name) for name in COLUMNS if name != "data"} | ENDED | changed
    names = {field.attname for field in model._meta.concrete_fields}
    QuerySet(model).bulk_create([model(**{name: value for name, value in known.items() if name in names})])


def hold(key, task, **others):
    """A row for a key of a chain that begins with this task."""
    kept = {"until_ms": 0, "ended": 0, "ending": "", "ended_in": ""} | others
    UniqueKey.objects.create(group="mail", key=key, origin=task.id, **kept)


def delete(model):
    QuerySet(model)._raw_delete("default")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda task: delete(Payload), "tasks without their data: {id}"),
        (lambda task: Payload.objects.create(id=1000, data=b"", size=0), "data without a task: 1000"),
        (lambda task: put(EndedTask, task), "tasks that have ended but still exist: {id}"),
        (lambda task: put(Task, task, id=0), "tasks older than the first task of their chain: 0"),
        (lambda task: put(Task, task, id=0), "chains with several existing tasks: {origin}"),
        (
            lambda task: put(EndedTask, task, id=0, successor=0),
            "ended tasks that are not older than their successor: 0",
        ),
        (lambda task: put(EndedTask, task, id=-1, origin=-1, successor=task.id), "successors in another chain: {id}"),
        (lambda task: put(Task, task, id=0, claims=-1), "tasks with leases or claims below zero: 0"),
        (lambda task: put(Task, task, id=0, standing=2), "tasks whose standing contradicts their error: 0"),
        (lambda task: put(Task, task, id=task.id + 7), "tasks with ids above {id}, the last assigned id: {far}"),
        (lambda task: put(Task, task, id=0, made_by_commit=10**12), ", the last commit: 0"),
        (lambda task: put(Task, task, id=0, labels=[1]), "tasks with labels that are not strings: 0"),
        (lambda task: put(Task, task, id=0, labels={"a": 1}), "tasks with labels that are not strings: 0"),
        (lambda task: put(Task, task, id=0, unique="a"), "tasks without their unique key: 0"),
        (lambda task: hold("a", task), "unique keys of tasks that do not hold them, by the id of the first task: {id}"),
        (lambda task: delete(GroupTotal), "counts of the group 'mail' are wrong: 1 tasks too few, 1 leases too few"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_it_says_what_is_wrong(command, task, damage, told):
    assert command("verify") == (0, "no problems found\n")
    damage(task)
    code, said = command("verify")
    assert code == 1
    assert told.format(id=task.id, origin=task.origin, far=task.id + 7) in said


@pytest.mark.skipif(connection.vendor == "postgresql", reason="a server looks after its own files")
def test_it_names_rows_that_lead_nowhere(command, task):
    with connection.constraint_checks_disabled():
        User.groups.through.objects.create(user_id=1000, group_id=1)
        code, said = command("verify")
        User.groups.through.objects.all().delete()
    assert (code, "auth_user_groups refers to a missing row" in said) == (1, True)


def test_it_mends_counts_and_says_so_in_the_audit(command, task):
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", error="no luck"), NewTask(group="reports")])
    fold_here()
    Task.objects.commit(owner=ANN, adds=[NewTask(group="reports")])  # Of which there is a delta only.
    GroupTotal.objects.filter(group="mail").update(tasks=7, leases=0)
    GroupTotal.objects.create(group="gone", tasks=1, leases=0, errors=0, finished=0, retrying=0, failed=0)
    code, said = command("verify")
    assert (code, said.splitlines()) == (
        1,
        [
            "counts of the group 'gone' are wrong: 1 tasks too many",
            "counts of the group 'mail' are wrong: 5 tasks too many, 1 leases too few",
        ],
    )
    assert command("verify", "--mend") == (0, "groups with fixed counts: 2\nno problems found\n")
    assert command("verify", "--mend") == (0, "no problems found\n")
    assert [entry.action for entry in AuditEntry.objects.all()] == ["mend counts"]
    fold_here()
    totals = GroupTotal.objects.order_by("group").values_list("group", "tasks", "leases", "retrying")
    assert list(totals) == [("mail", 2, 1, 1), ("reports", 2, 0, 0)]


def test_it_mends_keys_and_says_so_in_the_audit(command, task):
    def add(key, **others):
        [made] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", unique=key, **others)])
        return made

    right, lost, moved, gone, over = add("right"), add("lost"), add("moved"), add("gone"), add("over")
    kept = add("kept", unique_for_ms=3_600_000)
    [moved] = Task.objects.commit(owner=ANN, updates=[Change(id=moved.id, group="sent")])
    Task.objects.commit(owner=ANN, deletes=[gone.id, kept.id, over.id])
    fold_here()
    UniqueKey.objects.filter(key__in=["lost", "moved"]).delete()
    UniqueKey.objects.filter(key="kept").update(ended=0, ending="", ended_in="")
    hold("gone", gone)
    hold("lost", over, until_ms=1, ended=over.id, ending="deleted", ended_in="mail")  # Nobody has forgotten it yet.
    code, said = command("verify")
    assert (code, said.splitlines()) == (
        1,
        [
            f"tasks without their unique key: {lost.id}, {moved.id}",
            f"unique keys of tasks that do not hold them, by the id of the first task: {gone.id}, {kept.id}",
        ],
    )
    assert command("verify", "--mend") == (0, "fixed unique keys: 4\nno problems found\n")
    assert command("verify", "--mend") == (0, "no problems found\n")
    assert [entry.action for entry in AuditEntry.objects.all()] == ["mend keys"]
    keys = UniqueKey.objects.order_by("key").values_list("group", "key", "origin", "ended", "ending")
    assert list(keys) == [
        ("mail", "kept", kept.id, kept.id, "deleted"),
        ("mail", "lost", lost.id, 0, ""),
        ("mail", "moved", moved.origin, 0, ""),
        ("mail", "right", right.id, 0, ""),
    ]
    assert add("kept").ending == "deleted"


def test_a_key_that_two_tasks_claim_is_not_mended(command, task):
    [first] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", unique="a")])
    put(Task, task, id=0, origin=0, unique="a")
    code, said = command("verify", "--mend")
    assert (code, "tasks without their unique key: 0" in said, "fixed" in said) == (1, True, True)
    assert [key.origin for key in UniqueKey.objects.all()] == [first.id]
