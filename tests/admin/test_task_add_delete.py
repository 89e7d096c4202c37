"""Adding and deleting tasks in Django's admin, through the store."""

import pytest

from tasks_app import bulk
from tasks_app.models import AuditEntry, BulkOperation, Task

from ..console.store import ids
from .pages import TASKS, add, change_page, fields_of, messages_of, text_of

ADD = f"{TASKS}add/"


def delete_page(task):
    return f"{TASKS}{task.id}/delete/"


def undo_link():
    return f'<a href="/console/operations/{BulkOperation.objects.latest("pk").pk}">Undo it</a>.'


def select(client, *tasks, **more):
    return client.post(TASKS, {"action": "purge", "_selected_action": [t.id for t in tasks], **more})


# ---- Adding


def test_it_adds_a_task(operator):
    typed = {"group": "mail", "content": "hello", "labels": '{"colour": "red"}', "priority": "3"}
    response = operator.post(ADD, fields_of(operator, ADD) | typed)
    task = Task.objects.get_queryset().get()
    assert (task.group, bytes(task.data), task.labels, task.priority) == ("mail", b"hello", {"colour": "red"}, 3)
    assert task.owner == 0
    assert messages_of(response) == [f'Added task {task.id}. <a href="{change_page(task)}">View it</a>.']
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.action, entry.group, entry.details) == ("olaf", "add", "mail", {"ids": [task.id]})


def test_it_adds_a_task_with_a_key_that_is_free(operator):
    typed = {"group": "mail", "unique": "Bob"}
    operator.post(ADD, fields_of(operator, ADD) | typed)
    [task] = Task.objects.get_queryset()
    assert task.unique == "Bob"
    response = operator.post(ADD, fields_of(operator, ADD) | typed | {"content": "hello"})
    assert f"Nothing was added: task {task.id} holds this key." in text_of(response)
    assert response.context["adminform"].form["content"].value() == "hello"
    assert (ids(), AuditEntry.objects.count()) == ({task.id}, 1)
    response = operator.post(ADD, fields_of(operator, ADD) | {"group": "jobs/mail/failed", "unique": "Ann"})
    assert "have ended." in str(response.context["adminform"].form.errors["unique"])


def test_it_adds_a_task_for_later(operator):
    typed = {"group": "mail", "available_at_0": "2099-01-01", "available_at_1": "00:00:00"}
    operator.post(ADD, fields_of(operator, ADD) | typed)
    assert Task.objects.get_queryset().get().available_at_ms == 4_070_908_800_000


def test_who_may_not_see_data_may_write_some(blind_operator):
    blind_operator.post(ADD, fields_of(blind_operator, ADD) | {"group": "mail", "content": "hello"})
    assert bytes(Task.objects.get_queryset().get().data) == b"hello"


def test_a_task_needs_a_group(operator):
    response = operator.post(ADD, fields_of(operator, ADD))
    assert "This field is required." in str(response.context["adminform"].form.errors["group"])
    assert ids() == set()


def test_a_viewer_adds_nothing(viewer):
    assert viewer.get(ADD).status_code == 403
    assert viewer.post(ADD, {"group": "mail"}).status_code == 403


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


def test_it_deletes_nothing_that_is_not_on_the_page(operator):
    task, other = add(), add()
    response = select(operator, task, select_across="1")
    assert messages_of(response) == ["Nothing was done: select rows on the page."]
    assert ids() == {task.id, other.id}


@pytest.mark.parametrize("selected", ["nonsense", "9" * 30, "-1", ""])
def test_a_selection_that_makes_no_sense_is_refused(operator, selected):
    task = add()
    response = operator.post(TASKS, {"action": "purge", "_selected_action": [selected, task.id]})
    assert messages_of(response) == ["Nothing was done: select rows on the page."]


def test_a_viewer_has_no_actions(viewer):
    task = add()
    assert "selected tasks" not in text_of(viewer.get(TASKS))
    assert viewer.get(delete_page(task)).status_code == 403
    assert viewer.post(delete_page(task), {"post": "yes"}).status_code == 403
    assert {select(viewer, task, action=verb).get("Location", TASKS) for verb in bulk.ACTIONS} == {TASKS}
    assert ids() == {task.id}


def test_the_list_saves_nothing(operator):
    task = add(priority=3)
    form = {"_save": "Save", "form-TOTAL_FORMS": "1", "form-INITIAL_FORMS": "1", "form-0-id": task.id}
    operator.post(TASKS, form | {"form-0-priority": "9"})
    assert Task.objects.get_queryset().get().priority == 3
