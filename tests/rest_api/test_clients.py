import json

import pytest
from django.utils import timezone

from tasks_app.access import tokens
from tasks_app.models import Client, Scope, Task, Token, WorkDone
from tasks_app.reading import clients
from taskstore.types.groups import LOST_MS

from .api import Api, answered

SAID = {
    "name": "mailer",
    "host": "ann.example.org",
    "pid": 4711,
    "groups": ["mail", "reports"],
    "version": "1.2",
    "info": {"tasks": 3, "of": {"a": [1.5, "\0"]}},
}
DAY_MS = 24 * 3600 * 1000


def put(api, clientid, said):
    return answered(api.http.put(f"/clients/{clientid}", json.dumps(said), "application/json"))


def grow_older(by_ms):
    for client in Client.objects.all():
        Client.objects.filter(pk=client.pk).update(seen_at_ms=client.seen_at_ms - by_ms)


def test_what_a_worker_says_of_itself_is_listed(api):
    status, heard = put(api, 1643, SAID)
    assert (status, heard) == (200, {"clientid": 1643, **SAID, "seen": heard["seen"], "age": 0})
    [listed] = api.get("/clients")[1]
    assert listed == heard | {"age": listed["age"], "done_per_minute": 0.0}
    assert 0 <= listed["age"] < 60_000


def test_it_is_told_how_much_each_has_done_lately(api):
    put(api, 1, {}), put(api, 2, {})
    minute = Task.objects.now_ms() // 60_000
    for minutes_ago, tasks in ((2, 7), (9, 8), (30, 1_000)):
        WorkDone.objects.create(minute=minute - minutes_ago, client=2, tasks=tasks)
    listed = api.get("/clients")[1]
    assert {client["clientid"]: client["done_per_minute"] for client in listed} == {1: 0.0, 2: 1.5}


def test_a_foreign_group_is_forbidden(db):
    assert put(Api(groups=("mail",)), 1, SAID)[0] == 403
    assert not Client.objects.exists()


def test_clients_of_foreign_groups_are_not_shown(api):
    put(api, 1, SAID)
    put(api, 2, {"groups": ["reports"]})
    put(api, 3, {})
    [listed] = Api(groups=("mail",)).get("/clients")[1]
    assert (listed["clientid"], listed["groups"]) == (1, ["mail"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", 1), ("name", "x" * 256), ("host", "a\0b"), ("version", "\ud800"),
        ("pid", -1), ("pid", "1"), ("pid", 2**63), ("pid", 1.0), ("pid", True),
        ("groups", "mail"), ("groups[1]", ["mail", ""]), ("groups[0]", [1]), ("groups", ["mail"] * 1_001),
        ("info", []), ("info", "a"), ("info", {"a": "\ud800"}), ("info", {"\ud800": 1}), ("info", {"a": "x" * 10_000}),
        ("clientid", 1), ("seen", 1),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(api, field, value):
    status, answer = put(api, 1, {field.partition("[")[0]: value})
    assert (status, list(answer["errors"])) == (400, [field])
    assert not Client.objects.exists()


def test_no_other_token_speaks_for_a_client_that_is_not_lost(api):
    put(api, 7, SAID)
    other = Api(Scope.WORK)
    status, answer = put(other, 7, SAID | {"name": "other"})
    assert (status, answer["code"]) == (403, "forbidden")
    assert "Client 7 sends heartbeats with another token" in answer["detail"]
    assert [client["name"] for client in api.get("/clients")[1]] == ["mailer"]
    grow_older(LOST_MS + 1_000)
    assert put(other, 7, SAID | {"name": "other"})[0] == 200
    assert put(api, 7, SAID)[0] == 403
    Token.objects.filter(pk__in=Client.objects.values("token")).update(revoked_at=timezone.now())
    assert put(api, 7, SAID)[0] == 200


def test_programs_of_a_machine_go_on_with_the_next_token_of_its_server(db):
    for _ in range(2):
        token, _ = tokens.create_for_node("n1", Scope.OPERATE)
        Client.objects.update(seen_at_ms=Task.objects.now_ms())
        assert clients.hear(Client(id=7, groups=[], info="{}", token=token.pk)).client.token == token.pk
