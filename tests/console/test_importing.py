"""Tasks out of a file or out of pasted lines: checked first, imported then."""

import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from tasks_app.models import Task

pytestmark = pytest.mark.django_db

TWO = '{"group": "mail", "data": "a", "priority": 3}\r\n{"group": "reports", "data": "<b>"}'


def send(client, status=200, **fields):
    answer = client.post("/console/import", fields)
    assert answer.status_code == status
    return answer.content.decode()


def digest(html):
    [found] = re.findall(r'name="digest" value="([0-9a-f]{64})"', html)
    return found


def file(content):
    return SimpleUploadedFile("tasks <b>.ndjson", content.encode())


def test_it_says_first_what_it_would_import(operator):
    html = send(operator, text="\n".join([TWO] * 2))
    assert "<strong>4 tasks</strong> into" in html
    assert "2 groups" in html
    assert html.count('<code class="data">') == 3
    assert '<code class="data">&lt;b&gt;</code>' in html
    assert "priority 3" in html
    assert not Task.objects.exists()


def test_it_imports_what_was_checked_and_says_how_many(operator):
    checked = digest(send(operator, text=TWO))
    answer = operator.post("/console/import", {"text": TWO, "digest": checked})
    assert answer.headers["Location"] == "/console/"
    assert "Imported 2 tasks into 2 groups." in operator.get("/console/").content.decode()
    assert [(task.group, task.owner) for task in Task.objects.order_by("id")] == [("mail", 0), ("reports", 0)]


def test_it_imports_nothing_but_what_was_checked(operator):
    checked = digest(send(operator, text=TWO))
    html = send(operator, text=TWO + '\n{"group": "more"}', digest=checked)
    assert "the tasks changed since they were checked" in html
    assert digest(html) != checked
    assert digest(send(operator, text=TWO, group="pay", digest=checked)) != checked
    assert not Task.objects.exists()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"text": TWO + '\n{"group": "mail", "priority": 101}'}, "<strong>line 3: priority</strong>: must be between"),
        (
            {"text": '{"group": "mail", "<i>": 1}'},
            "<strong>line 1: &lt;i&gt;</strong>: is not a known field; use one of",
        ),
        ({}, "Choose a file or paste lines, but not both."),
        ({"text": TWO, "file": file(TWO)}, "Choose a file or paste lines, but not both."),
        ({"file": file("\n")}, "<strong>lines</strong>: must have at least one task, one per line"),
        ({"text": TWO, "group": "x" * 256}, "<strong>group</strong>: Ensure this value has at most 255 characters"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_imported(operator, fields, told):
    html = send(operator, 422, **fields)
    assert told in html
    assert "Nothing was imported." in html
    assert not Task.objects.exists()
