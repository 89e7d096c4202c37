"""Adding a task by hand."""

import pytest

from tasks_app.models import AuditEntry, Task

pytestmark = pytest.mark.django_db

FORM = {"group": "mail", "text": "hello", "delay": "0", "unit": "seconds", "priority": "0", "labels": ""}


def send(client, **fields):
    return client.post("/console/add", {**FORM, **fields})


def test_it_adds_a_task_and_shows_it(operator):
    answer = send(operator)
    [task] = Task.objects.all()
    assert answer.headers["Location"] == f"/console/task/{task.id}"
    assert (task.group, bytes(task.data), task.owner, task.priority) == ("mail", b"hello", 0, 0)
    assert f"Added task {task.id} to mail." in operator.get(answer.headers["Location"]).content.decode()


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("group", "", "This field is required"), ("group", "x" * 256, "at most 255 characters"),
        ("group", "a\0b", "Null characters"), ("text", "a\0b", "Null characters"),
        ("delay", "-1", "Must be a whole number between 0"), ("delay", "1_0", "a whole number"),
        ("delay", "9" * 15, "Must be at most 126701150399 seconds"), ("unit", "years", "Select a valid choice"),
        ("priority", "101", "a whole number between -100 and 100"), ("priority", "1.5", "a whole number"),
        ("labels", "novalue", "one label per line"), ("labels", "=x", "one label per line"),
        ("labels", "a=" + "x" * 256, "255 characters, not 256"),
        ("labels", "\n".join(f"{n}=1" for n in range(65)), "64 labels"),
    ],
)  # fmt: skip
def test_it_names_what_is_wrong_and_keeps_what_was_typed(operator, field, value, error):
    answer = send(operator, **{field: value}, **({} if field == "text" else {"text": "kept"}))
    assert answer.status_code == 422
    html = answer.content.decode()
    assert error in html
    assert f'id="id_{field}_error"' in html
    assert field == "text" or ">\nkept</textarea>" in html
    assert not Task.objects.exists()
    assert not AuditEntry.objects.exists()


def test_it_names_data_that_is_too_large(operator, settings):
    settings.TASKSTORE_MAX_DATA_BYTES = 10
    answer = send(operator, text="x" * 11)
    assert answer.status_code == 422
    assert "10 bytes, not 11" in answer.content.decode()
