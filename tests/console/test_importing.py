"""Tasks out of a file or out of pasted lines: checked first, imported then."""

import csv
import io
import re
from html import unescape

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from tasks_app.models import Task

from .store import add, one_of_each_state

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


# ---- A list as a file, from the page that shows it


def links(client, path, **asked):
    html = client.get(path, asked).content.decode()
    return [unescape(link) for link in re.findall(r'href="(/console/export\?[^"]*)"', html)]


def rows(answer):
    return list(csv.DictReader(io.StringIO(answer.getvalue().decode("utf-8-sig"), newline="")))


def test_a_tab_of_a_group_leads_to_all_that_it_has(operator):
    tasks, name = one_of_each_state('a "b"/é'), 'a "b"/é'
    add("other"), add(name, count=60)
    as_csv, as_ndjson = links(operator, "/console/group", name=name)
    assert len(rows(operator.get(as_csv))) == 66
    assert len(operator.get(as_ndjson).getvalue().splitlines()) == 66
    as_csv, _ = links(operator, "/console/group", name=name, state="failed")
    answer = operator.get(as_csv)
    assert [row["id"] for row in rows(answer)] == [str(tasks["failed"].id)]
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert re.search(r"a%20_b__%C3%A9-failed-\d{8}T\d{6}Z\.csv$", answer["Content-Disposition"])


def test_who_may_not_see_data_gets_none(viewer):
    add(data=b"secret", data_type="secret")
    for link in links(viewer, "/console/group", name="mail"):
        content = viewer.get(link).getvalue()
        assert b"secret" not in content
        assert b"data" not in content
        assert b"mail" in content
    refused = viewer.get("/console/export", {"q": "data:secret", "format": "csv"})
    assert refused.status_code == 400
    assert "your role does not allow you to see or search task data" in refused.content.decode()


@pytest.mark.parametrize(
    ("asked", "told"), [({"format": "xml"}, "one of csv, ndjson"), ({"q": "x"}, "specify where to search")]
)
def test_a_mistake_is_named_on_a_page(operator, asked, told):
    answer = operator.get("/console/export", {"q": "", "format": "csv", **asked})
    assert answer.status_code == 400
    assert told in answer.content.decode()
