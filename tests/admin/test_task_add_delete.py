"""Adding and deleting tasks in Django's admin, through the store."""

import pytest

from tasks_app import bulk
from tasks_app.models import AuditEntry, Task

from ..console.store import ids
from .pages import TASKS, add, change_page, fields_of, messages_of, text_of

ADD = f"{TASKS}add/"


def delete_page(task):
    return f"{TASKS}{task.id}/delete/"


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
