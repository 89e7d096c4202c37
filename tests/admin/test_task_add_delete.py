"""Adding and deleting tasks in Django's admin, through the store."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tasks_app import bulk
from tasks_app.core.actors import Actor
from tasks_app.models import AuditEntry, BulkOperation, Task
from taskstore.errors import StoreBusy

from ..bulk.test_dead_letters import letter
from ..console.store import ids
from .pages import BOB, TASKS, add, change_page, claim, fields_of, messages_of, text_of, trail_of

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


# ---- Deleting one


def test_it_asks_before_it_deletes(operator):
    task = add()
    assert f"{task.id} in mail" in text_of(operator.get(delete_page(task)))
    assert ids() == {task.id}


def test_it_says_that_a_deletion_ends_a_lease(operator):
    add()
    assert f"claimed by {BOB}: its lease ends" in text_of(operator.get(delete_page(claim())))


def test_it_purges_a_task(operator):
    task = add()
    response = operator.post(delete_page(task), {"post": "yes"})
    assert messages_of(response) == [f"Purged 1 task. {undo_link()}"]
    assert ids() == set()
    [ended] = trail_of(task)
    assert (ended.ending, ended.operator) == ("purged", "olaf")
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.action, entry.group, entry.selection) == ("olaf", "purge", "mail", "1 selected task")


def test_it_purges_a_task_that_a_worker_holds(operator):
    add()
    operator.post(delete_page(claim()), {"post": "yes"})
    assert ids() == set()


def test_it_does_not_delete_what_a_task_has_become(operator):
    old = add()
    now = claim()
    response = operator.post(delete_page(old), {"post": "yes"})
    assert messages_of(response) == [f"Nothing was deleted: task {old.id} no longer exists."]
    assert ids() == {now.id}


def test_it_says_when_the_store_is_busy(operator, monkeypatch):
    task = add()

    def busy(operation):
        raise StoreBusy("the tasks are locked by another transaction: try again later")

    monkeypatch.setattr(Task.objects, "perform", busy)
    monkeypatch.setattr(bulk.starting, "AT_ONCE_S", 0)
    response = operator.post(delete_page(task), {"post": "yes"})
    assert messages_of(response)[0].startswith("Purging 1 task is running.")
    assert ids() == {task.id}


def test_a_viewer_deletes_nothing(viewer):
    task = add()
    assert viewer.get(delete_page(task)).status_code == 403
    assert viewer.post(delete_page(task), {"post": "yes"}).status_code == 403
    assert ids() == {task.id}


# ---- Deleting several


def test_it_asks_before_it_purges_several(operator):
    tasks = [add(), add("reports")]
    claim()
    with CaptureQueriesContext(connection) as captured:
        page = text_of(select(operator, *tasks))
    assert [query["sql"] for query in captured if '"tasks_app_task"."data"' in query["sql"]] == []
    assert f"{tasks[1].id} in reports" in page
    assert "Purge 1 task" in page  # The other one has another id by now.
    assert len(ids()) == 2


def test_it_purges_the_selected_tasks_and_they_come_back(operator):
    first, other, last = add(), add(), add("reports")
    response = select(operator, first, last, post="yes", reason="a test")
    assert messages_of(response) == [f"Purged 2 tasks. {undo_link()}"]
    assert ids() == {other.id}
    endings = [trail_of(task)[-1] for task in (first, last)]
    assert {(ended.ending, ended.operator, ended.reason) for ended in endings} == {("purged", "olaf", "a test")}
    [entry] = AuditEntry.objects.all()
    assert (entry.action, entry.group, entry.selection, entry.done) == ("purge", "", "2 selected tasks", 2)
    assert bulk.undo(BulkOperation.objects.get(), Actor("olaf")).done == 2
    assert set(Task.objects.get_queryset().values_list("origin", flat=True)) == {first.id, other.id, last.id}


def test_it_tells_of_what_was_skipped_and_what_is_gone(operator):
    held, gone, task = add("reports"), add(), add()
    Task.objects.commit(owner=BOB, deletes=[gone.id])
    held = claim("reports")
    assert f"{held.id} in reports, claimed by {BOB}: skipped" in text_of(select(operator, held, task))
    response = select(operator, held, gone, task, post="yes")
    assert messages_of(response) == [f"Purged 1 task. Skipped 1: claimed by a worker. Already gone: 1. {undo_link()}"]
    assert ids() == {held.id}


def test_it_says_when_nothing_is_left_of_what_was_selected(operator):
    gone = add()
    Task.objects.commit(owner=BOB, deletes=[gone.id])
    response = select(operator, gone, post="yes")
    assert messages_of(response) == ["Nothing was done: the tasks no longer exist."]
    assert not BulkOperation.objects.exists()


@pytest.mark.parametrize("agreed", [{}, {"post": "yes"}])
def test_it_deletes_nothing_that_is_not_on_the_page(operator, agreed):
    task, other = add(), add()
    response = select(operator, task, select_across="1", **agreed)
    assert messages_of(response) == ["Nothing was done: select rows on the page."]
    assert ids() == {task.id, other.id}


@pytest.mark.parametrize("selected", ["nonsense", "9" * 30, "-1", ""])
def test_a_selection_that_makes_no_sense_deletes_nothing(operator, selected):
    task = add()
    response = operator.post(TASKS, {"action": "purge", "_selected_action": [selected, task.id], "post": "yes"})
    assert messages_of(response) == ["Nothing was done: select rows on the page."]
    assert ids() == {task.id}


def test_a_viewer_has_no_actions(viewer):
    task = add()
    assert "selected tasks" not in text_of(viewer.get(TASKS))
    for action in ("purge", "requeue", "move"):
        select(viewer, task, post="yes", to="reports", create="on", action=action)
    assert ids() == {task.id}


# ---- Requeueing and moving several


def test_it_requeues_the_selected_tasks(operator):
    failed, ready = add(error="boom"), add()
    response = select(operator, failed, ready, action="requeue")
    assert messages_of(response) == [f"Requeued 1 task. Skipped 1: already ready. {undo_link()}"]
    assert not Task.objects.filter(error="boom").exists()


def test_it_says_where_dead_letters_go_before_it_sends_them_there(operator):
    first, second = letter(), add(error="boom")
    page = text_of(select(operator, first, second, action="requeue"))
    assert f"{first.id} in mail/failed, goes back to mail" in page
    assert ids() == {first.id, second.id}
    select(operator, first, second, action="requeue", post="yes")
    assert [task.group for task in Task.objects.order_by("id")] == ["mail", "mail"]
    there = letter()
    page = select(operator, there, action="requeue").content.decode()
    assert 'value="Send back to mail"' in page
    select(operator, there, action="requeue", post="yes", here="on")
    assert Task.objects.get(origin=there.origin).group == "mail/failed"


def test_it_edits_the_selected_tasks(operator):
    tasks = [add(error="boom"), add()]
    assert "Leave empty to keep the current value." in text_of(select(operator, *tasks, action="edit"))
    assert "there is nothing to change" in text_of(select(operator, *tasks, action="edit", post="yes"))
    response = select(operator, *tasks, action="edit", post="yes", priority="0", error="", reason="")
    assert messages_of(response) == [f"Edited 2 tasks. {undo_link()}"]
    select(operator, *Task.objects.all(), action="edit", post="yes", priority="7")
    assert [(task.priority, task.error) for task in Task.objects.order_by("id")] == [(7, "boom"), (7, "")]


def test_it_asks_into_which_group_it_moves(operator):
    tasks = [add(), add()]
    add("reports")
    page = text_of(select(operator, *tasks, action="move"))
    assert "Move 2 tasks" in page
    assert "To group" in page
    for to, words in (
        ("", "This field is required."),
        ("new", "existing group, and new does not exist"),
        ("mail", "other than"),
    ):
        assert words in text_of(select(operator, *tasks, action="move", post="yes", to=to)), to
    assert ids() >= {task.id for task in tasks}
    response = select(operator, *tasks, action="move", post="yes", to="reports")
    assert messages_of(response) == [f"Moved 2 tasks. {undo_link()}"]
    assert Task.objects.get_queryset().in_group("reports").count() == 3
    [task] = Task.objects.get_queryset().in_group("reports").filter(origin=tasks[0].id)
    select(operator, task, action="move", post="yes", to="new", create="on")
    assert Task.objects.get_queryset().in_group("new").count() == 1


def test_the_list_saves_nothing(operator):
    task = add(priority=3)
    form = {"_save": "Save", "form-TOTAL_FORMS": "1", "form-INITIAL_FORMS": "1", "form-0-id": task.id}
    operator.post(TASKS, form | {"form-0-priority": "9"})
    assert Task.objects.get_queryset().get().priority == 3


def test_deleting_without_the_token_of_the_form_is_refused(operator):
    task = add()
    operator.handler.enforce_csrf_checks = True
    assert operator.post(delete_page(task), {"post": "yes"}).status_code == 403
    assert ids() == {task.id}
