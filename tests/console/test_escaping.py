"""What people and programs write stays text, on every page."""

from urllib.parse import quote

import pytest
from django.test import Client

from tasks_app import bulk
from tasks_app.models import Task
from tasks_app.operations import Change

from .conftest import make_user, signed_in
from .store import ANN, add, claim

pytestmark = pytest.mark.django_db

# Each is changed by escaping, so that none may stand in a page as it is. They say where they were written.
HOSTILE = [
    '<script>alert("{}")</script>',
    '"><img src=x onerror=alert("{}")>',
    "'-alert(`{}`)-'",
    "{{% now '{}' %}}{{{{ 7 }}}}",
]


@pytest.fixture(params=HOSTILE)
def hostile(request):
    return request.param.format


@pytest.fixture
def client(hostile) -> Client:
    return signed_in(make_user(hostile("user"), "operator", "see payloads"))


@pytest.fixture
def task(hostile) -> Task:
    """A task of which everything that can be text is hostile."""
    labels = {hostile("name"): hostile("value")}
    add(hostile("group"), data=f'{{"{hostile("key")}": 1}}'.encode(), labels=labels)
    [task] = claim(hostile("group"), owner=ANN)
    change = Change(
        id=task.id, data=hostile("data").encode(), error=hostile("error"), data_type=hostile("type"), release=True
    )
    Task.objects.commit(owner=ANN, updates=[change])
    bulk.requeue(bulk.Selection(group=task.group), expected=1, by=hostile("operator"), reason=hostile("reason"))
    [task] = claim(hostile("group"), owner=ANN)
    return Task.objects.commit(
        owner=ANN, updates=[Change(id=task.id, keep_data=True, error=hostile("error"), release=True)]
    )[0]


def addresses(task):
    group = {"name": task.group}
    return [
        ("/console/", {}),
        ("/console/", {"filter": "alert"}),
        ("/console/group", group),
        ("/console/group", {**group, "state": "failed"}),
        ("/console/group", {**group, "state": "expired"}),
        ("/console/group/facts", group),
        (f"/console/task/{task.id}", {}),
        (f"/console/task/{task.id}", {"as": "hex"}),
        ("/console/add", group),
        *[("/console/confirm", {**group, "verb": verb, "all": "1"}) for verb in ("requeue", "move", "purge")],
    ]


def assert_inert(answer, hostile, *parts):
    page = answer.content.decode()
    assert [part for part in parts if hostile(part) in page] == []


def test_it_shows_hostile_text_as_text(client, hostile, task):
    for path, query in addresses(task):
        answer = client.get(path, query)
        assert answer.status_code == 200, path
        parts = ("group", "data", "error", "name", "value", "type", "user", "operator", "reason", "key")
        assert_inert(answer, hostile, *parts)


def test_it_shows_what_was_asked_for_as_text(client, hostile):
    for path, query in [
        ("/console/", {"filter": hostile("asked")}),
        ("/console/", {"sort": hostile("asked")}),
        ("/console/group", {"name": hostile("asked")}),
        ("/console/group", {"name": "mail", "state": hostile("asked")}),
        ("/console/task", {"id": hostile("asked")}),
        ("/console/confirm", {"verb": hostile("asked"), "name": "mail"}),
        (f"/console/{quote(hostile('asked'), safe='')}", {}),
    ]:
        assert_inert(client.get(path, query, headers={"Accept": "text/html"}), hostile, "asked")


def test_it_shows_what_was_typed_as_text(client, hostile, task):
    form = {"name": task.group, "all": "1", "expected": "1", "to": hostile("to"), "reason": hostile("why")}
    answer = client.post("/console/move", form)
    assert answer.status_code == 422
    assert_inert(answer, hostile, "to", "why", "group")
    answer = client.post("/console/move", {**form, "create": "1"}, follow=True)
    assert "Moved 1 task" in answer.content.decode()
    assert_inert(answer, hostile, "to", "why", "group")
