"""Dead letters over REST: the label, the search, the requeue with its targets, and files."""

import json

import pytest

from tasks_app import bulk
from tasks_app.models import Scope, Task

from .api import Api
from .test_bulk import asked, seen

pytestmark = pytest.mark.django_db

FAILED = {"group": "mail/failed"}


@pytest.fixture
def api(monkeypatch):
    monkeypatch.setattr(bulk.starting, "AT_ONCE_S", 60)  # However busy the machine is.
    return Api(Scope.OPERATE)


def letter(api, group="mail", **fields):
    task = api.add(group, data="hello")
    moved = {"group": f"{group}/failed", "id": task["id"], "data": "hello", "error": "boom", **fields}
    [there] = api.committed(adds=[moved], deletes=[task["id"]])
    return there


def test_it_shows_where_a_dead_letter_failed(api):
    there = letter(api, labels={"tier": "gold"})
    assert there["labels"] == {"tier": "gold", "failed_from": "mail"}
    assert api.get(f"/task/{there['id']}")[1] == there


@pytest.mark.parametrize("q", ["failed_from:mail", "label.failed_from:mail", "failed_from:ma*", "label:failed_from"])
def test_a_search_finds_what_failed_in_a_group(api, q):
    there, _ = letter(api), api.add("mail")
    letter(api, "news") if q != "label:failed_from" else None
    assert [task["id"] for task in api.get(f"/search?q={q}")[1]["tasks"]] == [there["id"]]


def test_a_preview_names_the_targets_and_a_requeue_sends_them_there(api):
    there = letter(api)
    preview = seen(api, "requeue", **FAILED)
    assert preview["targets"] == [{"group": "mail", "count": 1, "claimed": 0}]
    status, operation = api.post("/bulk", asked(preview, **FAILED | {"verb": "requeue"}))
    assert (status, operation["done"], operation["parameters"]["here"]) == (202, 1, False)
    [back] = api.get("/group/mail")[1]
    assert (back["origin"], back["error"], back["labels"]) == (there["origin"], "", {})


def test_it_leaves_them_here_when_that_is_asked_for(api):
    letter(api)
    preview = seen(api, "requeue", **FAILED, here=True)
    assert preview["targets"] == [{"group": "mail/failed", "count": 1, "claimed": 0}]
    status, operation = api.post("/bulk", asked(preview, **FAILED | {"verb": "requeue", "here": True}))
    assert (status, operation["done"], operation["parameters"]["here"]) == (202, 1, True)
    [stayed] = api.get("/group/mail/failed")[1]
    assert (stayed["error"], stayed["labels"]) == ("", {})


def test_a_token_sends_nothing_to_a_group_that_is_not_its_own(api):
    there = letter(api)
    failed_only = Api(Scope.OPERATE, ("mail/failed",))
    requeue = asked(seen(api, "requeue", **FAILED), **FAILED | {"verb": "requeue"})
    for path, body in (("/bulk/preview", {"verb": "requeue", **FAILED}), ("/bulk", requeue)):
        status, answer = failed_only.post(path, body)
        assert (status, '"mail"' in answer["detail"]) == (403, True)
    assert Task.objects.get().id == there["id"]


def test_an_export_can_be_imported_and_is_a_dead_letter_still(api):
    letter(api, labels={"tier": "gold"})
    exported = api.http.get("/export?q=group:mail/failed&format=ndjson").getvalue()
    Task.objects.commit(owner=0, deletes=[Task.objects.get().id])
    assert api.send("/import", exported)[0] == 200
    assert Task.objects.get().labels == {"tier": "gold", "failed_from": "mail"}


@pytest.mark.parametrize(
    ("line", "groups"),
    [
        ({"group": "x", "labels": {"failed_from": "mail"}}, ()),
        ({"group": "mail", "error": "no", "labels": {"failed_from": "mail"}}, ()),
        ({"group": "x", "error": "no", "labels": {"failed_from": "commands/a/new"}}, ()),
        ({"group": "x", "error": "no", "labels": {"failed_from": "secret"}}, ("x", "mail")),
    ],
)
def test_an_import_makes_no_dead_letter_that_its_sender_could_not_have_made(line, groups):
    worker = Api(Scope.WORK, groups)
    assert worker.send("/import", json.dumps(line))[0] == 200
    assert Task.objects.get().labels == {}


def test_what_has_ended_is_finished_and_not_ready(api):
    api.add("jobs/default/succeeded"), api.add("jobs/default/failed", error="boom"), api.add("jobs/default")
    stats = {group["group"]: group for group in api.get("/stats")[1]["groups"]}
    failed, succeeded = stats["jobs/default/failed"], stats["jobs/default/succeeded"]
    assert (failed["ready"], failed["dead"], failed["failed"], failed["oldest_ready"]) == (0, 1, 1, None)
    assert (succeeded["ready"], succeeded["finished"]) == (0, 1)
    assert (stats["jobs/default"]["ready"], "finished" in stats["jobs/default"]) == (1, False)
    metrics = api.http.get("/metrics").getvalue().decode()
    assert 'taskstore_tasks{group="jobs/default/failed",state="ready"} 0.0' in metrics
    assert 'taskstore_tasks{group="jobs/default/failed",state="failed"} 1.0' in metrics


def test_a_token_does_not_learn_the_group_in_which_a_task_failed(api):
    dead = letter(api, "secret")
    assert dead["labels"] == {"failed_from": "secret"}
    limited = Api(Scope.WORK, ("secret/failed",))
    told = [
        limited.get(f"/task/{dead['id']}")[1],
        limited.get(f"/tasks/{dead['id']}")[1][0],
        limited.get("/group/secret/failed")[1][0],
        limited.get("/search?q=group:secret/failed")[1]["tasks"][0],
        json.loads(limited.http.get("/export?q=group:secret/failed").getvalue()),
        limited.post("/claim", {"clientid": 5, "group": "secret/failed", "key": "k"})[1]["tasks"][0],
        limited.post("/claim", {"clientid": 5, "group": "secret/failed", "key": "k"})[1]["tasks"][0],
    ]
    assert [task["labels"] for task in told] == [{}] * len(told)
    assert api.get(f"/task/{told[-1]['id']}")[1]["labels"] == {"failed_from": "secret"}
