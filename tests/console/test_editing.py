"""Editing a task: the form, the difference, and what comes of it."""

import re
from html import unescape

import pytest

from tasks_app.forms import EDITABLE_BYTES
from tasks_app.models import AuditEntry, EndedTask, Task
from taskstore.errors import CommitRefused

from ..people import signed_in
from .store import BOB, add, claim, fail

pytestmark = pytest.mark.django_db


def form_of(html):
    """What a browser would send for the form that is shown."""
    fields = {}
    for tag in re.findall(r"<input[^>]*>", html.partition('<form class="fields"')[2].partition("</form>")[0]):
        given = dict(re.findall(r'(\w+)="([^"]*)"', tag))
        if given.get("type") != "checkbox" or "checked" in tag:
            fields[given["name"]] = unescape(given.get("value", "on" if given.get("type") == "checkbox" else ""))
    for name, text in re.findall(r'<textarea name="(\w+)"[^>]*>\s?([^<]*)</textarea>', html):
        fields[name] = unescape(text).removeprefix("\n")
    for name, options in re.findall(r'<select name="(\w+)"[^>]*>(.*?)</select>', html, re.DOTALL):
        [fields[name]] = re.findall(r'value="([^"]*)" selected', options)
    return fields


def opened(client, task):
    answer = client.get(f"/console/task/{task.id}/edit")
    assert answer.status_code == 200
    return form_of(answer.content.decode())


def words_of(client, task):
    return client.get(f"/console/task/{task.id}/edit").content.decode()


def send(client, task, fields, status=200):
    answer = client.post(f"/console/task/{task.id}/edit", fields)
    assert answer.status_code == status
    return answer


def edit(client, task, **changed):
    """Change some fields, look at the review, and save."""
    review = send(client, task, opened(client, task) | changed).content.decode()
    send(client, task, form_of(review) | {"confirmed": "1"}, status=302)
    return Task.objects.get()


def differences(html):
    found = re.findall(r"<h2>([^<]*)</h2>\s*<pre[^>]*>(.*?)</pre>", html, re.DOTALL)
    return {name: unescape(re.sub(r"<[^>]*>", "", lines)).split("\n") for name, lines in found}


def test_labels_that_no_line_holds_stay_as_they_are(operator):
    [task] = add(labels={"note": "two\nlines"})
    assert "labels" not in opened(operator, task)
    changed = edit(operator, task, priority="5")
    assert (changed.priority, changed.labels) == (5, {"note": "two\nlines"})


def test_the_review_shows_what_differs_line_by_line(operator):
    [task] = add(data=b"one\ntwo\nthree", labels={"tier": "gold"})
    fields = opened(operator, task) | {"content": "one\nTWO\nthree", "priority": "5", "labels": "tier=tin"}
    found = differences(send(operator, task, fields).content.decode())
    assert set(found) == {"Data", "Priority", "Labels"}
    assert [line for line in found["Data"] if line[:1] in "+-"] == ["-two", "+TWO", ""]
    assert [line for line in found["Labels"] if line[:1] in "+-"] == ["-tier=gold", "+tier=tin", ""]
    assert Task.objects.get().id == task.id


def test_a_failed_task_is_edited_and_requeued_in_one(operator):
    add(data=b"wrong")
    task = fail(claim()[0], error="can't read this")
    fields = opened(operator, task)
    assert fields["requeue"] == "on"
    edited = edit(operator, task, content="right", reason="a typing error")
    assert (bytes(edited.data), edited.error, edited.leased) == (b"right", "", False)
    ended = EndedTask.objects.get(id=task.id)
    assert (ended.ending, ended.operator, ended.reason) == ("requeued", "olaf", "a typing error")
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.selection, entry.reason) == ("edit", f"task {task.id}", "a typing error")


def test_editing_a_claimed_task_warns_and_ends_the_lease(operator):
    add()
    [task] = claim()
    assert "Saving ends its lease" in operator.get(f"/console/task/{task.id}/edit").content.decode()
    review = send(operator, task, opened(operator, task) | {"priority": "1"}).content.decode()
    assert "Saving ends its lease" in review
    assert differences(review)["Lease"] == [f"-held by {BOB}", ""]
    send(operator, task, form_of(review) | {"confirmed": "1"}, status=302)
    with pytest.raises(CommitRefused):
        Task.objects.commit(owner=BOB, deletes=[task.id])


@pytest.mark.parametrize("step", ["open", "review", "save"])
def test_a_worker_that_finishes_meanwhile_wins(operator, step):
    add()
    [task] = claim()
    fields = opened(operator, task) | {"priority": "1"}
    Task.objects.commit(owner=BOB, deletes=[task.id])
    if step == "open":
        answer = operator.get(f"/console/task/{task.id}/edit")
    else:
        answer = operator.post(f"/console/task/{task.id}/edit", fields | ({"confirmed": "1"} if step == "save" else {}))
    assert answer.status_code == 409
    assert "a worker claimed or finished it in the meantime" in answer.content.decode()
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("group", "", "This field is required"),
        ("group", "x" * 300, "at most 255 characters"),
        ("priority", "101", "less than or equal to 100"),
        ("labels", "tier", "one label per line, as name=value"),
        ("available_at_0", "soon", "Enter a valid date"),
        ("reason", "x" * 1_001, "at most 1000 characters"),
    ],
)
def test_a_mistake_is_named_beside_its_field(operator, field, value, told):
    [task] = add()
    html = send(operator, task, opened(operator, task) | {field: value}, status=422).content.decode()
    assert told in html
    assert Task.objects.get().id == task.id


def test_bytes_are_edited_as_base64(operator):
    [task] = add(data=b"\xff\x00")
    assert opened(operator, task)["encoding"] == "base64"
    assert bytes(edit(operator, task, content="/wE=").data) == b"\xff\x01"


def test_large_data_and_that_which_one_may_not_see_stay(operator, roles):
    [large] = add(data=b"x" * (EDITABLE_BYTES + 1))
    assert "content" not in opened(operator, large)
    assert "The data stays unchanged: it is larger than 256 kB." in words_of(operator, large)
    edited = edit(operator, large, priority="1")
    assert len(bytes(edited.data)) == EDITABLE_BYTES + 1
    blind = signed_in(roles["operator"])
    assert "content" not in opened(blind, edited)
    assert "The data stays unchanged: your role does not allow you to see it." in words_of(blind, edited)
    assert len(bytes(edit(blind, edited, priority="2").data)) == EDITABLE_BYTES + 1


def test_it_is_scheduled_by_the_minute_in_utc(operator):
    [task] = add()
    edited = edit(operator, task, available_at_0="2027-01-31", available_at_1="12:30:00")
    assert edited.available_at_ms == 1_801_398_600_000
