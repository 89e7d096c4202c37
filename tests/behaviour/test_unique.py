"""Adds with a key: while a task holds the key, an equal add makes none."""

from typing import Any

import pytest

from tasks_app import bulk
from tasks_app.access import tokens
from tasks_app.core.actors import Actor
from tasks_app.database import dialect_of
from tasks_app.models import Scope, Task, UniqueKey
from tasks_app.writer.housekeeping import forget_keys
from taskstore import Client
from taskstore.errors import InvalidInput
from taskstore.types.tasks import Change, NewTask
from tests.console.store import change_all

ANN, BOB = 7, 8
DAY_MS = 24 * 3_600_000


def letter(key="Bob", group="mail", **others: Any) -> NewTask:
    return NewTask(group=group, unique=key, **others)


def held_keys():
    return sorted(UniqueKey.objects.values_list("group", "key", "origin", "ended"))


def test_an_equal_add_creates_nothing_and_shows_the_task_that_holds_the_key(store):
    [first] = store.commit(owner=ANN, adds=[letter(data=b"first", labels={"to": "Bob"})])
    assert (first.unique, first.duplicate) == ("Bob", False)
    [second] = store.commit(owner=BOB, adds=[letter(data=b"second")])
    assert second.duplicate
    assert (second.id, second.data, second.labels, second.owner) == (first.id, b"first", {"to": "Bob"}, ANN)
    assert [task.id for task in store.group("mail", owned=True)] == [first.id]


def test_successors_keep_the_key_and_a_duplicate_shows_the_living_one(store):
    store.commit(owner=ANN, adds=[letter()])
    [claimed] = store.claim("mail", owner=BOB)
    assert claimed.unique == "Bob"
    [changed] = store.commit(owner=BOB, updates=[Change(id=claimed.id, data=b"new", unique="Bob")])
    [again] = store.commit(owner=ANN, adds=[letter()])
    assert (again.id, again.data, again.duplicate) == (changed.id, b"new", True)
    [successor] = store.commit(owner=BOB, adds=[NewTask(group="sent", id=changed.id)], deletes=[changed.id])
    assert successor.unique == "Bob"
    [moved] = store.commit(owner=ANN, adds=[letter()])
    assert (moved.id, moved.group, moved.duplicate) == (successor.id, "sent", True)
    [free] = store.commit(owner=ANN, adds=[letter(group="sent")])
    assert not free.duplicate


def test_a_key_is_free_once_its_task_has_ended(store):
    [first] = store.commit(owner=ANN, adds=[letter()])
    store.commit(owner=ANN, deletes=[first.id])
    assert held_keys() == []
    [second] = store.commit(owner=ANN, adds=[letter()])
    assert not second.duplicate
    assert held_keys() == [("mail", "Bob", second.id, 0)]


def test_of_two_adds_in_the_place_of_one_task_only_its_successor_has_the_key(store):
    [first] = store.commit(owner=ANN, adds=[letter()])
    adds = [letter(id=first.id, data=b"1"), letter(id=first.id, data=b"2"), letter(group="sent", id=first.id)]
    [successor, again, other] = store.commit(owner=ANN, adds=adds, deletes=[first.id])
    assert (successor.duplicate, successor.origin, successor.unique) == (False, first.id, "Bob")
    assert (again.duplicate, again.id) == (True, successor.id)
    assert (other.duplicate, other.origin) == (False, other.id)
    assert held_keys() == [("mail", "Bob", first.id, 0), ("sent", "Bob", other.id, 0)]


def test_a_kept_key_names_the_id_that_ended_and_how(store):
    [first] = store.commit(owner=ANN, adds=[letter(unique_for_ms=DAY_MS)])
    store.commit(owner=ANN, deletes=[first.id])
    [again] = store.commit(owner=ANN, adds=[letter()])
    assert (again.id, again.duplicate, again.ending) == (first.id, True, "deleted")
    assert store.groups() == []


def test_a_kept_key_holds_in_the_commit_that_ends_its_task(store):
    [first] = store.commit(owner=ANN, adds=[letter(unique_for_ms=DAY_MS)])
    [again] = store.commit(owner=ANN, adds=[letter()], deletes=[first.id])
    assert (again.id, again.duplicate, again.ending) == (first.id, True, "deleted")


def test_a_task_out_of_scope_is_not_shown(store):
    [first] = store.commit(owner=ANN, adds=[letter(unique_for_ms=DAY_MS)])
    [moved] = store.commit(owner=ANN, adds=[NewTask(group="secret", id=first.id)], deletes=[first.id])
    mail = store.within("mail")
    [again] = mail.commit(owner=ANN, adds=[letter()])
    assert (again.id, again.duplicate, again.group) == (0, True, "")
    store.commit(owner=ANN, deletes=[moved.id])
    [again] = mail.commit(owner=ANN, adds=[letter()])
    assert (again.id, again.duplicate, again.ending) == (0, True, "")


def test_a_successor_cannot_get_another_key(store):
    [keyed, plain] = store.commit(owner=ANN, adds=[letter(), NewTask(group="mail")])
    wrong = {
        "updates[0].unique": ['must be "Bob" or absent: a successor keeps its key'],
        "updates[1].unique": ["must be absent: the task has no key"],
    }
    with pytest.raises(InvalidInput) as refused:
        store.commit(owner=ANN, updates=[Change(id=keyed.id, unique="Ann"), Change(id=plain.id, unique="Ann")])
    assert refused.value.fields == wrong
    with pytest.raises(InvalidInput) as refused:
        store.commit(owner=ANN, adds=[letter("Ann", id=keyed.id)], deletes=[keyed.id])
    assert refused.value.fields == {"adds[0].unique": wrong["updates[0].unique"]}
    assert {task.id for task in store.group("mail", owned=True)} == {keyed.id, plain.id}


@pytest.mark.parametrize(
    ("add", "wrong"),
    [
        (letter(""), {"adds[0].unique": ["must not be empty"]}),
        (letter("x" * 256), {"adds[0].unique": ["must have at most 255 characters, not 256"]}),
        (letter("a\0b"), {"adds[0].unique": ["must not contain the NUL character"]}),
        (letter(unique_for_ms=-1), {"adds[0].unique_for": ["must be between 0 and 2592000000, not -1"]}),
        (
            letter(unique_for_ms=31 * DAY_MS),
            {"adds[0].unique_for": ["must be between 0 and 2592000000, not 2678400000"]},
        ),
        (letter(None, unique_for_ms=1), {"adds[0].unique_for": ["must be given together with unique"]}),
        (
            letter(group="jobs/mail/failed"),
            {"adds[0].unique": ['must be absent: tasks of the group "jobs/mail/failed" have ended']},
        ),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(store, add, wrong):
    with pytest.raises(InvalidInput) as refused:
        store.commit(owner=ANN, adds=[NewTask(group="mail"), add][::-1])
    assert refused.value.fields == wrong
    assert store.groups() == []
    assert held_keys() == []


def test_hundreds_of_keys_go_into_one_commit(store):
    adds = [letter(str(number % 900)) for number in range(1_000)]
    tasks = store.commit(owner=ANN, adds=adds)
    assert sum(task.duplicate for task in tasks) == 100
    assert UniqueKey.objects.count() == Task.objects.count() == 900


def test_an_import_skips_taken_keys_and_counts_them(served):
    with operator_of(served) as client:
        first = client.add("mail", "first", unique="Bob", unique_for_ms=DAY_MS)
        exported = b"".join(client.export_tasks("unique:Bob"))
        imported = client.import_tasks(exported + b'{"group": "mail", "data": "second"}')
        assert (imported.imported, imported.skipped) == (1, 1)
        client.delete(first)
        again = client.add("mail", unique="Bob")
        assert (again.id, again.duplicate, again.ending) == (first.id, True, "deleted")


def test_an_undo_skips_taken_keys_and_counts_them(transactional_db):
    [first, second] = Task.objects.commit(owner=ANN, adds=[letter("Ann", data=b"1"), letter("Bob", data=b"2")])
    purge = change_all(bulk.Purge, bulk.Selection(ids=(first.id, second.id)))
    assert held_keys() == []
    [other] = Task.objects.commit(owner=ANN, adds=[letter("Bob", data=b"3")])
    undo = bulk.undo(purge, Actor("Cid"))
    assert (undo.done, undo.skipped) == (1, 1)
    assert bulk.reasons(undo.pk) == {"another task holds its key": 1}
    [back] = Task.objects.get_queryset().of_chain(first.origin)
    assert (back.unique, back.duplicate) == ("Ann", False)
    assert held_keys() == [("mail", "Ann", first.origin, 0), ("mail", "Bob", other.id, 0)]


def test_an_import_takes_the_key_in_the_group_of_the_add_also_after_a_move(served):
    [first, dead] = Task.objects.commit(owner=ANN, adds=[letter(), letter("Ann")])
    [moved, elsewhere] = Task.objects.commit(
        owner=ANN, updates=[Change(id=first.id, group="sent"), Change(id=dead.id, group="reports")]
    )
    [dead] = Task.objects.commit(owner=ANN, updates=[Change(id=elsewhere.id, group="reports/dead", error="no ink")])
    with operator_of(served) as client:
        exported = b"".join(client.export_tasks("unique:Bob")) + b"".join(client.export_tasks("unique:Ann"))
        assert client.import_tasks(exported).skipped == 2
        Task.objects.commit(owner=ANN, deletes=[moved.id, dead.id])
        [sent, failed] = client.import_tasks(exported).ids
        assert held_keys() == [("mail", "Ann", failed, 0), ("mail", "Bob", sent, 0)]
        assert [task.group for task in client.tasks([sent, failed])] == ["sent", "reports/dead"]
        Task.objects.commit(owner=ANN, deletes=[sent, failed])
        [there] = client.import_tasks(exported.splitlines()[0], group="there").ids
        assert held_keys() == [("there", "Bob", there, 0)]
        _, secret = tokens.create("Dan", Scope.OPERATE, ("sent",))
        with Client(served.url, token=secret, client_id=BOB) as narrow:
            [sent] = narrow.import_tasks(exported.splitlines()[0]).ids
        assert held_keys() == [("sent", "Bob", sent, 0), ("there", "Bob", there, 0)]
        with pytest.raises(InvalidInput) as refused:
            client.import_tasks(b'{"group": "mail", "unique": "a", "unique_group": "a\\u0000b"}')
        assert refused.value.fields == {"line 1: unique_group": ["must not contain the NUL character"]}


def test_an_answer_with_a_duplicate_is_given_again_for_the_same_idempotency_key(served):
    _, secret = tokens.create("Ann", Scope.WORK)
    headers = {"Authorization": f"Bearer {secret}", "Idempotency-Key": "once"}
    adds = [{"group": "mail", "data": data, "unique": key} for data, key in (("1", "a"), ("2", "a"), ("3", "b"))]
    body = {"clientid": ANN, "adds": adds}
    first = served.request("POST", "/update", headers=headers, json=body).json()
    assert [task.get("duplicate", False) for task in first["tasks"]] == [False, True, False]
    assert served.request("POST", "/update", headers=headers, json=body).json() == first


def test_rest_shows_no_more_of_a_duplicate_than_it_may(served):
    _, secret = tokens.create("Ann", Scope.WORK, ("mail",))
    headers = {"Authorization": f"Bearer {secret}"}
    [first] = Task.objects.commit(owner=ANN, adds=[letter(unique_for_ms=DAY_MS)])

    def again():
        body = {"clientid": ANN, "adds": [{"group": "mail", "unique": "Bob"}]}
        return served.request("POST", "/update", headers=headers, json=body).json()

    [moved] = Task.objects.commit(owner=ANN, adds=[NewTask(group="secret", id=first.id)], deletes=[first.id])
    assert again() == {"tasks": [{"id": None, "duplicate": True}], "error": None}
    [back] = Task.objects.commit(owner=ANN, updates=[Change(id=moved.id, group="mail")])
    assert again()["tasks"][0]["id"] == back.id
    Task.objects.commit(owner=ANN, deletes=[back.id])
    assert again() == {"tasks": [{"id": back.id, "duplicate": True, "ending": "deleted"}], "error": None}


def test_kept_keys_are_forgotten_when_their_time_is_over(transactional_db):
    [first, second] = Task.objects.commit(owner=ANN, adds=[letter("a", unique_for_ms=DAY_MS), letter("b")])
    Task.objects.commit(owner=ANN, deletes=[first.id])
    dialect = dialect_of("default")
    dialect.drive(forget_keys(dialect))
    assert UniqueKey.objects.count() == 2
    UniqueKey.objects.update(until_ms=1)
    dialect.drive(forget_keys(dialect))
    assert held_keys() == [("mail", "b", second.id, 0)]


def operator_of(served):
    _, secret = tokens.create("Cid", Scope.OPERATE)
    return Client(served.url, token=secret, client_id=ANN)
