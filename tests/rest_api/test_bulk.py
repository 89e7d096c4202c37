"""Changing many tasks over REST: previewed, begun, followed, cancelled, undone."""

import pytest

from tasks_app import bulk
from tasks_app.models import BulkOperation, Scope, Task

from ..console.store import add, claim, fail, ids
from .api import Api

pytestmark = pytest.mark.django_db

MAIL = {"group": "mail"}


@pytest.fixture
def api(db, monkeypatch):
    monkeypatch.setattr(bulk.starting, "AT_ONCE_S", 60)  # However busy the machine is.
    return Api(Scope.OPERATE)


def seen(api, verb="purge", **selection):
    status, preview = api.post("/bulk/preview", {"verb": verb, **(selection or MAIL)})
    assert status == 200
    return preview


def asked(preview, **body):
    return {
        "verb": "purge",
        **{name: preview[name] for name in ("bound", "as_of")},
        "expected": preview["count"],
        "typed": preview["to_type"],
        **body,
    }


def purge(api, **body):
    status, operation = api.post("/bulk", asked(seen(api), **MAIL, **body))
    assert status == 202
    return operation


def refusal(api, path, body, status=400):
    answered, answer = api.post(path, body)
    assert answered == status
    return answer["errors"] if status == 400 else answer["detail"]


def test_a_preview_says_what_is_meant_and_changes_nothing(api):
    tasks = add(count=3)
    claim()
    fail(add()[0])
    before = ids()
    preview = seen(api)
    assert preview == {
        "count": 4,
        "by_state": {"ready": 2, "claimed": 1, "expired": 0, "scheduled": 0, "retrying": 1, "failed": 0, "finished": 0},
        "claimed": 1,
        "ready_already": 2,
        "group": "mail",
        "samples": preview["samples"],
        "bound": Task.objects.newest_id(),
        "as_of": preview["as_of"],
        "to_type": "mail",
    }
    assert set(preview["samples"]) <= ids() == before
    assert seen(api, ids=[tasks[1].id, 999_999])["count"] == 1
    assert seen(api, q="group:*")["count"] == 4
    assert not BulkOperation.objects.exists()


def test_it_is_done_to_the_tasks_of_the_preview_and_undone(api):
    first, second = add(count=2, data=b"kept")
    preview = seen(api)
    [later] = add()
    response = api.http.post("/bulk", asked(preview, **MAIL, reason="a test"), content_type="application/json")
    operation = response.json()
    assert (response.status_code, response["Location"]) == (202, f"/operations/{operation['id']}")
    assert (operation["state"], operation["done"], operation["by"]) == ("done", 2, "token:Ann")
    assert (operation["selection"], operation["reason"], operation["undoable"]) == ("all tasks", "a test", True)
    assert ids() == {later.id}
    assert api.get(response["Location"]) == (200, operation)
    status, undo = api.post(operation["links"]["undo"], {"reason": "a mistake"})
    assert (status, undo["undoes"], undo["done"]) == (202, operation["id"], 2)
    back = set(Task.objects.get_queryset().values_list("origin", flat=True))
    assert back == {first.id, second.id, later.id}
    _, operation = api.get(operation["links"]["operation"])
    assert (operation["undoable"], operation["not_undoable"]) == (False, "it was already undone")
    assert refusal(api, operation["links"]["undo"], {})["operation"][0].endswith("it was already undone")
    status, history = api.get(f"/history/{first.id}")
    purged, living = history["steps"]
    assert (purged["ended"]["how"], purged["ended"]["successor"], living["ended"]) == ("purged", None, None)
    _, gone = api.get(f"/task/{first.id}")
    assert gone["detail"] == f"task {first.id} was purged by token:Ann, and came back as {living['id']}"


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"verb": "purge"}, "q", "must select tasks"),
        ({"verb": "purge", "q": " "}, "q", "must select tasks"),
        ({"verb": "undo", "group": "mail"}, "verb", f"one of {', '.join(bulk.ACTIONS)}"),
        ({"verb": "purge", "group": ""}, "group", "must not be empty"),
        ({"verb": "purge", "state": "odd"}, "state", "one of ready"),
        ({"verb": "purge", "q": "nonsense"}, "q", "specify where to search"),
        ({"verb": "purge", "ids": [1], "state": "ready"}, "ids", "must not be given together with state or q"),
        ({"verb": "purge", "ids": ["1"]}, "ids[0]", "a 64-bit integer, not a string"),
        ({"verb": "purge", "ids": list(range(10_001))}, "ids", "at most 10000"),
        ({"verb": "purge", "group": "mail", "to": "x"}, "to", "is not a known field; use one of"),
    ],
)
def test_a_preview_of_nonsense_names_what_is_wrong(api, body, field, words):
    assert words in refusal(api, "/bulk/preview", body)[field][0]


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"expected": 40}, "expected", "the selection changed from 40 to 3 tasks"),
        ({"typed": "x"}, "typed", "type the group's name, mail"),
        ({"bound": 10**15}, "bound", "an id between 1 and"),
        ({"as_of": 10**14}, "as_of", "not in the future"),
        ({"expected": None}, "expected", "required"),
        ({"bound": 0}, "bound", "must be between 1 and"),
        ({"to": "x"}, "to", "must be given only with move, not with purge"),
        ({"verb": "move", "to": "new"}, "to", "existing group, and new does not exist"),
        ({"verb": "edit"}, "error", "must be given unless a priority is"),
        ({"verb": "requeue", "spread_minutes": 10**9}, "spread_minutes", "between 0 (all at once) and 43200"),
        ({"verb": "edit", "error": "\ud800", "key": "a"}, "error", "it contains a lone surrogate"),
        ({"reason": "\ud800", "key": "a"}, "reason", "it contains a lone surrogate"),
        ({"claimed": "maybe"}, "claimed", "one of skip, take"),
        ({"reason": "x" * 1_001}, "reason", "at most 1000 characters"),
        ({"q": "error:x", "group": None, "expected": 0, "as_of": None}, "as_of", "required"),
    ],
)
def test_what_was_not_agreed_to_is_refused_by_name(api, body, field, words):
    add(count=3)
    assert words in refusal(api, "/bulk", asked(seen(api), **MAIL | body))[field][0]
    assert len(ids()) == 3
    assert not BulkOperation.objects.exists()


def test_a_request_with_a_key_is_sent_again_without_being_done_again(api):
    add(count=3)
    body = asked(seen(api, q="group:*"), q="group:*", verb="requeue", at=4_000_000_000_000, key="a")
    status, operation = api.post("/bulk", body)
    assert status == 202
    assert api.post("/bulk", body) == (202, operation)
    assert "another request" in refusal(api, "/bulk", body | {"reason": "other"}, 409)
    assert BulkOperation.objects.count() == 1
    assert api.post("/bulk", body | {"key": "b"})[0] == 202
    assert api.post("/update", {"clientid": 1, "adds": [MAIL], "key": "a"})[0] == 200


def test_no_ids_at_all_are_no_tasks(api):
    add(count=3)
    assert seen(api, ids=[])["count"] == 0
    _, operation = api.post("/bulk", asked(seen(api, ids=[]), ids=[]))
    assert (operation["done"], len(ids())) == (0, 3)


def test_operations_are_listed_the_newest_first_page_by_page(api, monkeypatch):
    add(count=3)
    first, second = purge(api), purge(api)
    status, page = api.get("/operations?limit=1")
    assert (status, [one["id"] for one in page["operations"]]) == (200, [second["id"]])
    assert "reasons" not in page["operations"][0]
    _, page = api.get(f"/operations?limit=1&after={page['after']}")
    assert ([one["id"] for one in page["operations"]], page["after"]) == ([first["id"]], None)
    assert api.get("/operations?state=running")[1] == {"operations": [], "after": None}
    assert api.get("/operations?state=odd")[0] == api.get("/operations?limit=0")[0] == 400
    assert api.get("/operations/999")[0] == 404


def test_it_tells_what_was_skipped_and_why(api):
    tasks = add(count=4)
    held = claim(count=2)
    operation = purge(api)
    assert (operation["done"], operation["reasons"]) == (2, {"claimed by a worker": 2})
    link = f"{operation['links']['items']}?outcome=skipped&limit=1"
    _, page = api.get(link)
    assert page["items"] == [
        {"origin": tasks[0].id, "task": held[0].id, "outcome": "skipped", "why": "claimed by a worker"}
    ]
    _, page = api.get(f"{link}&after={page['after']}")
    assert ([item["origin"] for item in page["items"]], page["after"]) == ([tasks[1].id], None)
    assert len(api.get(operation["links"]["items"])[1]["items"]) == 4


def test_a_token_for_some_groups_reaches_and_sees_no_others(api, db):
    add(count=2)
    add("other", count=2)
    every = purge(api)
    add(count=2)
    limited = Api(Scope.OPERATE, ("mail",))
    assert "no access" in refusal(limited, "/bulk/preview", {"verb": "purge", "group": "other"}, 403)
    preview = seen(limited, q="group:*")
    assert (preview["count"], preview["group"]) == (2, "mail")
    body = asked(preview, q="group:*", verb="move", to="other")
    assert "no access" in refusal(limited, "/bulk", body, 403)
    _, own = limited.post("/bulk", asked(preview, q="group:*"))
    assert own["done"] == 2
    _, undo = limited.post(own["links"]["undo"], {})
    assert undo["done"] == 2
    _, page = limited.get("/operations")
    assert [one["id"] for one in page["operations"]] == [undo["id"], own["id"]]
    for path in (every["links"]["operation"], every["links"]["items"]):
        assert limited.get(path)[0] == 404
    for path in (every["links"]["cancel"], every["links"]["undo"]):
        assert limited.post(path, {})[0] == 404
    of_the_same_name = Api(Scope.OPERATE, ("other",))
    assert of_the_same_name.get("/operations")[1]["operations"] == []
    assert len(api.get("/operations")[1]["operations"]) == 3
