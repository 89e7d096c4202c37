"""Editing a task in Django's admin: it is deleted, and a successor is made."""

from typing import Any

import pytest

from tasks_app import bulk
from tasks_app.forms import EDITABLE_BYTES
from tasks_app.models import AuditEntry, Task
from taskstore.errors import StoreBusy
from taskstore.types.tasks import Change, State

from ..console.store import ids
from .pages import ANN, BOB, TASKS, add, change_page, claim, fields_of, messages_of, text_of


def save(client, task, **typed):
    return client.post(change_page(task), fields_of(client, change_page(task)) | typed)


def only_task():
    return Task.objects.get_queryset().get()


@pytest.mark.parametrize(
    ("typed", "changed"),
    [
        ({"group": "reports"}, {"group": "reports"}),
        ({"content": "Grüße"}, {"data": "Grüße".encode()}),
        ({"content": "AAEC/w==", "encoding": "base64"}, {"data": b"\0\1\2\xff"}),
        ({"data_type": "type.googleapis.com/Mail"}, {"data_type": "type.googleapis.com/Mail"}),
        ({"priority": "-100"}, {"priority": -100}),
        ({"labels": "colour=blue"}, {"labels": {"colour": "blue"}}),
        ({"labels": ""}, {"labels": {}}),
        ({"error": "no such\r\nrecipient"}, {"error": "no such\nrecipient"}),
        ({"available_at_0": "2099-01-01", "available_at_1": "00:00:00"}, {"available_at_ms": 4_070_908_800_000}),
        ({"available_at_0": "2001-01-01", "available_at_1": "00:00:00"}, {"available_at_ms": 978_307_200_000}),
    ],
)
def test_what_is_typed_is_what_the_successor_has(operator, typed, changed):
    fields: dict[str, Any] = {"data": b"hello\n", "labels": {"colour": "red"}, "priority": 3}
    old = add(**fields)
    save(operator, old, **typed)
    kept = fields | {"group": "mail", "data_type": "", "error": "", "available_at_ms": old.available_at_ms}
    assert {name: value_of(only_task(), name) for name in kept} == kept | changed


def test_a_task_keeps_its_unique_key(operator):
    old = add(unique="Bob")
    page = text_of(operator.get(change_page(old)))
    assert "Unique key" in page
    assert "Bob" in page
    save(operator, old, priority="5")
    assert (only_task().unique, only_task().priority) == ("Bob", 5)


def test_an_edit_ends_the_lease_and_says_so(operator):
    add()
    claimed = claim()
    assert "Saving ends its lease" in text_of(operator.get(change_page(claimed)))
    save(operator, claimed)
    task = only_task()
    assert task.state(Task.objects.now_ms()) is State.READY
    assert (task.owner, task.claims) == (0, 1)


def test_a_task_that_changed_meanwhile_is_refused(operator):
    old = add(data=b"hello")
    typed = fields_of(operator, change_page(old)) | {"content": "typed by Olaf"}
    now = claim()
    response = operator.post(change_page(old), typed)
    assert f"Nothing was changed: the task has changed in the meantime; {old.id} is now {now.id}." in text_of(response)
    assert bytes(only_task().data) == b"hello"
    assert only_task().id == now.id
    assert AuditEntry.objects.count() == 0


def test_a_task_that_is_finished_meanwhile_is_refused(operator):
    old = add()
    typed = fields_of(operator, change_page(old))
    Task.objects.commit(owner=ANN, deletes=[old.id])
    response = operator.post(change_page(old), typed)
    assert messages_of(response) == [f"Nothing was changed: task {old.id} no longer exists."]
    assert not Task.objects.get_queryset().exists()


def test_a_task_that_changes_in_the_last_moment_is_refused(operator, monkeypatch):
    old = add()
    typed = fields_of(operator, change_page(old)) | {"priority": "9"}
    commit = Task.objects.commit

    def claimed_first(**asked):
        monkeypatch.undo()
        commit(owner=BOB, updates=[Change(id=old.id)])
        return commit(**asked)

    monkeypatch.setattr(Task.objects, "commit", claimed_first)
    response = operator.post(change_page(old), typed)
    assert "Nothing was changed: the task has changed in the meantime" in text_of(response)
    assert only_task().priority == 0


def test_a_busy_store_is_told_and_what_was_typed_stays(operator, monkeypatch):
    old = add()
    typed = fields_of(operator, change_page(old)) | {"content": "typed by Olaf"}

    def busy(**asked):
        raise StoreBusy("the tasks are locked by another transaction: try again later")

    monkeypatch.setattr(Task.objects, "commit", busy)
    response = operator.post(change_page(old), typed)
    assert "Nothing was changed: the tasks are locked by another transaction" in text_of(response)
    assert response.context["adminform"].form["content"].value() == "typed by Olaf"


def test_the_page_of_an_old_id_leads_to_the_task(operator):
    old = add()
    now = claim()
    response = operator.get(change_page(old), follow=True)
    assert response.redirect_chain == [(change_page(now), 302)]
    assert f"Task {old.id} is now {now.id}." in text_of(response)


@pytest.mark.parametrize("what", ["999", "nonsense", "9" * 30, "-1", "\u0663", "0"])
def test_the_page_of_no_task_says_so(operator, what):
    response = operator.get(f"{TASKS}{what}/change/", follow=True)
    assert response.status_code == 200
    assert f"Task {what} does not exist." in text_of(response)


@pytest.mark.parametrize("next_page", ["_continue", "_addanother", "_save"])
def test_it_goes_on_to_the_page_that_was_asked_for(operator, next_page):
    old = add()
    response = save(operator, old, **{next_page: "1"})
    pages = {"_continue": change_page(only_task()), "_addanother": f"{TASKS}add/", "_save": TASKS}
    assert response.url == pages[next_page]


@pytest.mark.parametrize(
    ("typed", "field", "text"),
    [
        ({"group": ""}, "group", "required"),
        ({"group": "x" * 256}, "group", "255"),
        ({"group": "ma\0il"}, "group", "Null characters are not allowed"),
        ({"content": "AAE", "encoding": "base64"}, "content", "Base64: "),
        ({"content": "\u00e9", "encoding": "base64"}, "content", "Base64: "),
        ({"encoding": "rot13"}, "encoding", "rot13 is not one of the available choices"),
        ({"priority": "101"}, "priority", "100"),
        ({"priority": "1.5"}, "priority", "whole number"),
        ({"priority": ""}, "priority", "required"),
        ({"labels": "a"}, "labels", "one label per line, as name=value"),
        ({"labels": "a=" + "x" * 256}, "labels", "255"),
        ({"error": "x" * 100_001}, "error", "100000"),
        ({"data_type": "x" * 1_001}, "data_type", "1000"),
        ({"available_at_0": "1969-12-31", "available_at_1": "23:59:59"}, "available_at", "after 1 January 1970"),
        ({"available_at_0": "tomorrow", "available_at_1": "noon"}, "available_at", "valid date"),
        ({"available_at_0": "2026-01-01", "available_at_1": ""}, "available_at", "valid time"),
    ],
)
def test_what_makes_no_sense_is_named_beside_its_field(operator, typed, field, text):
    old = add()
    response = save(operator, old, **typed)
    assert response.status_code == 200
    assert text in str(response.context["adminform"].form.errors[field])
    assert only_task().id == old.id


def test_who_may_not_see_data_edits_the_rest_and_the_data_stays(blind_operator):
    old = add(data=b"a secret", data_type="t")
    page = blind_operator.get(change_page(old))
    assert "a secret" not in page.content.decode()
    assert "content" not in page.context["adminform"].form.fields
    save(blind_operator, old, priority="5", content="forged", encoding="text", data_type="forged")
    new = only_task()
    assert (new.priority, bytes(new.data), new.data_type) == (5, b"a secret", "t")


def test_large_data_stays_as_it_is(operator):
    old = add(data=b"x" * (EDITABLE_BYTES + 1))
    page = operator.get(change_page(old))
    assert f"{EDITABLE_BYTES + 1} bytes: too large to show here" in text_of(page)
    save(operator, old, priority="5")
    assert len(only_task().data) == EDITABLE_BYTES + 1


def value_of(task, name):
    value = getattr(task, name)
    return bytes(value) if name == "data" else value


# ---- Adding and deleting tasks in Django's admin, through the store


ADD = f"{TASKS}add/"


def delete_page(task):
    return f"{TASKS}{task.id}/delete/"


def select(client, *tasks, **more):
    return client.post(TASKS, {"action": "purge", "_selected_action": [t.id for t in tasks], **more})


# ---- Adding


def test_it_adds_a_task(operator):
    typed = {"group": "mail", "content": "hello", "labels": "colour=red", "priority": "3"}
    response = operator.post(ADD, fields_of(operator, ADD) | typed)
    task = Task.objects.get_queryset().get()
    assert (task.group, bytes(task.data), task.labels, task.priority) == ("mail", b"hello", {"colour": "red"}, 3)
    assert task.owner == 0
    assert messages_of(response) == [f'Added task {task.id}. <a href="{change_page(task)}">View it</a>.']
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.action, entry.group, entry.details) == ("olaf", "add", "mail", {"ids": [task.id]})


# ---- Deleting and changing several: in the console, which shows the effect and can undo it


def test_a_deletion_is_confirmed_in_the_console(operator):
    task = add()
    response = operator.post(delete_page(task), {"post": "yes"})
    assert response.url == f"/console/confirm?verb=purge&id={task.id}&task={task.id}"
    assert "Purge 1 task" in text_of(operator.get(response.url))
    assert ids() == {task.id}


@pytest.mark.parametrize("verb", bulk.ACTIONS)
def test_an_action_is_confirmed_in_the_console(operator, verb):
    tasks = [add(), add("reports")]
    response = select(operator, *tasks, action=verb)
    assert response.url == f"/console/confirm?verb={verb}&id={tasks[0].id}&id={tasks[1].id}"
    page = operator.get(response.url)
    assert page.status_code == 200
    assert "2 tasks" in text_of(page)
    assert ids() == {task.id for task in tasks}
