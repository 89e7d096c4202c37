"""What people and programs write stays text, on every page."""

import json
from datetime import timedelta
from urllib.parse import quote

import pytest
from django.test import Client
from django.utils import timezone

from tasks_app.bulk import Requeue, Selection
from tasks_app.control import pauses
from tasks_app.core.actors import Actor
from tasks_app.models import AuditEntry, PausedGroup, Task
from tasks_app.models import Client as Worker
from tasks_app.reading import clients
from tasks_app.reading.search.grammar import label_term, quoted
from taskstore.types.tasks import Change

from ..people import make_user, signed_in
from .store import ANN, add, change_all, claim

pytestmark = [pytest.mark.once, pytest.mark.django_db]

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
    add(hostile("group") + "/in"), add(hostile("group") + "/out")
    add(hostile("group"), data=f'{{"{hostile("key")}": 1}}'.encode(), labels=labels)
    [task] = claim(hostile("group"), owner=ANN)
    change = Change(
        id=task.id, data=hostile("data").encode(), error=hostile("error"), data_type=hostile("type"), release=True
    )
    Task.objects.commit(owner=ANN, updates=[change])
    change_all(Requeue, Selection(group=task.group), by=hostile("operator"), reason=hostile("reason"))
    [task] = claim(hostile("group"), owner=ANN)
    change = Change(id=task.id, error=hostile("error"), release=True)
    [task] = Task.objects.commit(owner=ANN, updates=[change])
    said = {field: hostile(field) for field in ("name", "host", "version")}
    clients.hear(Worker(id=ANN, groups=[task.group], info="{}", **said))
    pauses.pause(task.group, Actor(hostile("operator"), reason=hostile("reason")))
    PausedGroup.objects.update(at=timezone.now() - timedelta(hours=2))
    return task


def addresses(task):
    group = {"name": task.group}
    return [
        ("/console/", {}),
        ("/console/", {"filter": "alert"}),
        ("/console/", {"view": "tree", "open": f"{task.group}/"}),
        ("/console/", {"view": "tree", "filter": "alert"}),
        ("/console/group", group),
        ("/console/group", {**group, "state": "failed"}),
        ("/console/group", {**group, "state": "expired"}),
        ("/console/group/facts", group),
        ("/console/attention", {}),
        ("/console/failed", {}),
        ("/console/workers", {}),
        ("/console/audit", {}),
        (f"/console/audit/{AuditEntry.objects.order_by('id')[0].id}", {}),
        ("/console/search", {"q": f"id:{task.id} data:{quoted(HOSTILE[0])} state:failed"}),
        ("/console/search", {"q": f"group:{quoted(task.group)}"}),
        ("/console/search", {"q": label_term(*next(iter(task.labels.items())))}),
        ("/console/search/suggestions", {"q": "group:"}),
        ("/console/search/suggestions", {"q": "label:"}),
        ("/console/search/suggestions", {"q": "owner:"}),
        ("/console/pause", group),
        (f"/console/task/{task.id}/edit", {}),
        (f"/console/task/{task.id}/give-back", {}),
        (f"/console/task/{task.id}", {}),
        (f"/console/task/{task.id}", {"as": "hex"}),
        ("/console/add", group),
        ("/console/import", group),
        *[("/console/confirm", {**group, "verb": verb, "all": "1"}) for verb in ("requeue", "move", "purge")],
    ]


def assert_inert(answer, hostile, *parts):
    page = answer.content.decode()
    assert [part for part in parts if hostile(part) in page] == []


def test_it_shows_hostile_text_as_text(client, hostile, task):
    for path, query in addresses(task):
        answer = client.get(path, query)
        assert answer.status_code == 200, path
        parts = (
            "group",
            "data",
            "error",
            "name",
            "value",
            "type",
            "user",
            "operator",
            "reason",
            "key",
            "host",
            "version",
        )
        assert_inert(answer, hostile, *parts)


def test_it_shows_what_was_asked_for_as_text(client, hostile):
    for path, query in [
        ("/console/", {"filter": hostile("asked")}),
        ("/console/", {"sort": hostile("asked")}),
        ("/console/", {"view": hostile("asked")}),
        ("/console/", {"view": "tree", "open": hostile("asked") + "/"}),
        ("/console/flow", {"folder": hostile("asked")}),
        ("/console/group", {"name": hostile("asked")}),
        ("/console/group", {"name": "mail", "state": hostile("asked")}),
        ("/console/group", {"name": "mail", "label": hostile("asked")}),
        ("/console/search", {"q": hostile("asked")}),
        ("/console/search", {"q": f"error:{quoted(hostile('asked'))}"}),
        ("/console/search", {"q": "state:ready", "after": hostile("asked")}),
        ("/console/export", {"q": hostile("asked"), "format": "csv"}),
        ("/console/export", {"format": hostile("asked")}),
        ("/console/rates", {"span": hostile("asked")}),
        ("/console/audit", dict.fromkeys(("by", "action", "group", "since", "reason", "after"), hostile("asked"))),
        ("/console/audit/export", {"format": hostile("asked")}),
        ("/console/pause", {"name": hostile("asked")}),
        ("/console/confirm", {"verb": hostile("asked"), "name": "mail"}),
        (f"/console/{quote(hostile('asked'), safe='')}", {}),
    ]:
        assert_inert(client.get(path, query, headers={"Accept": "text/html"}), hostile, "asked")


def test_it_shows_what_was_typed_as_text(client, hostile, task):
    form = {"name": task.group, "all": "1", "expected": "1", "bound": task.id}
    form |= {"to": hostile("to"), "reason": hostile("why")}
    answer = client.post("/console/move", form)
    assert answer.status_code == 422
    assert_inert(answer, hostile, "to", "why", "group")
    edited = {"group": hostile("to"), "content": hostile("why"), "encoding": "text", "priority": "0", "labels": ""}
    review = client.post(
        f"/console/task/{task.id}/edit", {**edited, "error": hostile("error"), "reason": hostile("why")}
    )
    assert "Save these changes?" in review.content.decode()
    assert_inert(review, hostile, "to", "why", "group", "error", "data", "name", "value")
    line = {"group": hostile("to"), "data": hostile("data"), "error": hostile("error")}
    assert_inert(client.post("/console/import", {"text": json.dumps(line)}), hostile, "to", "data", "error")
    wrong = {hostile("name"): 1}
    assert_inert(client.post("/console/import", {"text": json.dumps(wrong)}), hostile, "name")
    answer = client.post("/console/move", {**form, "create": "1"}, follow=True)
    assert "Moved 1 task" in answer.content.decode()
    assert_inert(answer, hostile, "to", "why", "group")
