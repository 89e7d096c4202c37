"""Adding and deleting tasks in Django's admin, through the store."""

import pytest

from tasks_app.errors import StoreBusy
from tasks_app.models import AuditEntry, Task

from .pages import BOB, TASKS, add, change_page, claim, fields_of, messages_of, text_of, trail_of

ADD = f"{TASKS}add/"


def delete_page(task):
    return f"{TASKS}{task.id}/delete/"


def ids():
    return set(Task.objects.get_queryset().values_list("id", flat=True))


def select(client, *tasks, **more):
    return client.post(TASKS, {"action": "delete_selected", "_selected_action": [t.id for t in tasks], **more})


# ---- Adding


def test_it_adds_a_task(operator):
    typed = {"group": "mail", "content": "hello", "labels": '{"colour": "red"}', "priority": "3"}
    response = operator.post(ADD, fields_of(operator, ADD) | typed)
    task = Task.objects.get_queryset().get()
    assert (task.group, bytes(task.data), task.labels, task.priority) == ("mail", b"hello", {"colour": "red"}, 3)
    assert task.owner == 0
    assert messages_of(response) == [f'Added task {task.id}. <a href="{change_page(task)}">Look at it</a>.']
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.action, entry.group, entry.details) == ("olaf", "add", "mail", {"ids": [task.id]})


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
    operator.post(delete_page(task), {"post": "yes"})
    assert ids() == set()
    [ended] = trail_of(task)
    assert (ended.ending, ended.operator) == ("purged", "olaf")
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.action, entry.group, entry.selection) == ("olaf", "delete", "mail", f"task {task.id}")


def test_it_does_not_delete_what_a_task_has_become(operator):
    old = add()
    now = claim()
    response = operator.post(delete_page(old), {"post": "yes"})
    assert messages_of(response) == [f"Nothing was deleted: task {old.id} is no longer there."]
    assert ids() == {now.id}


def test_it_says_when_the_store_is_busy(operator, monkeypatch):
    task = add()

    def busy(**asked):
        raise StoreBusy("the tasks are locked by another transaction: try again later")

    monkeypatch.setattr(Task.objects, "commit", busy)
    response = operator.post(delete_page(task), {"post": "yes"})
    assert messages_of(response)[0].startswith("Nothing was deleted: the tasks are locked")


def test_a_viewer_deletes_nothing(viewer):
    task = add()
    assert viewer.get(delete_page(task)).status_code == 403
    assert viewer.post(delete_page(task), {"post": "yes"}).status_code == 403
    assert ids() == {task.id}


# ---- Deleting several


def test_it_asks_before_it_deletes_several(operator):
    tasks = [add(), add("reports")]
    response = select(operator, *tasks)
    assert f"{tasks[0].id} in mail" in text_of(response)
    assert f"{tasks[1].id} in reports" in text_of(response)
    assert ids() == {task.id for task in tasks}


def test_it_purges_the_selected_tasks_at_once(operator):
    first, other, last = add(), add(), add("reports")
    response = select(operator, first, last, post="yes")
    assert messages_of(response) == ["Deleted 2 tasks."]
    assert ids() == {other.id}
    endings = [trail_of(task)[-1] for task in (first, last)]
    assert {(ended.ending, ended.operator) for ended in endings} == {("purged", "olaf")}
    assert len({ended.ended_by_commit for ended in endings}) == 1
    [entry] = AuditEntry.objects.all()
    assert (entry.action, entry.group, entry.selection, entry.done) == ("delete", "", "2 tasks", 2)
    assert entry.details == {"ids": [last.id, first.id]}


@pytest.mark.parametrize("agreed", [{}, {"post": "yes"}])
def test_it_deletes_nothing_when_one_of_them_has_changed(operator, agreed):
    changed, other = add(), add("reports")
    now = claim()
    response = select(operator, changed, other, **agreed)
    assert messages_of(response) == [f"Nothing was deleted: not there to be deleted: {changed.id}."]
    assert ids() == {now.id, other.id}


@pytest.mark.parametrize("agreed", [{}, {"post": "yes"}])
def test_it_deletes_nothing_that_is_not_on_the_page(operator, agreed):
    task, other = add(), add()
    response = select(operator, task, select_across="1", **agreed)
    assert messages_of(response) == ["Nothing was done: select rows of the page."]
    assert ids() == {task.id, other.id}


@pytest.mark.parametrize("selected", ["nonsense", "9" * 30, "-1", ""])
def test_a_selection_that_makes_no_sense_deletes_nothing(operator, selected):
    task = add()
    response = operator.post(
        TASKS, {"action": "delete_selected", "_selected_action": [selected, task.id], "post": "yes"}
    )
    assert messages_of(response) == ["Nothing was done: select rows of the page."]
    assert ids() == {task.id}


def test_a_viewer_has_no_actions(viewer):
    task = add()
    assert "Delete selected" not in text_of(viewer.get(TASKS))
    select(viewer, task, post="yes")
    assert ids() == {task.id}


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
