"""A token that is bound to clients acts for no other owner, whichever way in."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest
from django.test import Client

from tasks_app.access import tokens
from tasks_app.models import Client as Worker
from tasks_app.models import Scope, Task
from taskstore.types.tasks import NewTask
from tests.grpc_api.client import message, theirs

ANN, BOB = 1, 2
PATIENCE_S = 60


@pytest.fixture
def secret(transactional_db) -> str:
    return tokens.create("Ann", Scope.WORK, clients=[ANN, 17])[1]


@pytest.fixture
def post(secret):
    http = Client(headers={"authorization": f"Bearer {secret}"})

    def send(path, method="POST", **body):
        answer = http.generic(method, path, json.dumps(body), "application/json")
        return answer.status_code, answer.json()

    return send


@pytest.fixture
def held() -> Task:
    """By Bob."""
    Task.objects.commit(owner=BOB, adds=[NewTask(group="mail", data=b"1")])
    return Task.objects.claim("mail", owner=BOB)[0]


def test_it_claims_and_commits_for_its_own_clients(post):
    status, answer = post("/update", clientid=ANN, adds=[{"group": "reports"}])
    assert (status, answer["error"]) == (200, None)
    status, answer = post("/claim", clientid=17, group="reports")
    assert [task["ownerid"] for task in answer["tasks"]] == [17]
    assert post("/clients/17", "PUT", name="Ann")[0] == 200


def test_it_changes_nothing_that_another_client_holds(post, held):
    before = list(Task.objects.values())
    for change in ({"deletes": [held.id]}, {"updates": [{"id": held.id}]}, {"adds": [{"group": "mail"}]}):
        status, answer = post("/update", clientid=BOB, **change)
        assert (status, answer["detail"]) == (403, "This token can't act for client 2, only for 1, 17.")
    # As itself it is told who holds it.
    assert post("/update", clientid=ANN, deletes=[held.id])[1]["error"]["owned"] == [held.id]
    assert post("/update", clientid=0, deletes=[held.id])[0] == 403
    assert list(Task.objects.values()) == before


def test_it_claims_for_no_other_client(post):
    [task] = Task.objects.commit(owner=BOB, adds=[NewTask(group="mail")])
    assert post("/claim", clientid=BOB, group="mail")[0] == 403
    assert post("/claim", clientid=0, group="mail")[0] == 403
    assert Task.objects.get() == task


def test_it_does_not_say_that_another_client_lives(post):
    assert post("/clients/2", "PUT", name="Bob")[0] == 403
    assert not Worker.objects.exists()


def test_it_adds_what_is_nobodys(post):
    assert post("/import", group="mail")[0] == 200
    assert post("/jobs", function="a.b")[0] == 200
    assert post("/jobs", function="a.b", clientid=BOB)[0] == 403


def test_by_grpc_it_is_another_client(grpc_channel, secret):
    [task] = Task.objects.commit(owner=BOB, adds=[NewTask(group="mail")])
    calls: dict[str, dict[str, Any]] = {
        "Query": {"group": "mail", "own_for": {"seconds": 60}},
        "Update": {"deleted": [{"id": task.id}]},
    }
    for name, fields in calls.items():
        with pytest.raises(grpc.RpcError) as refused:
            call(grpc_channel, name, secret, **fields)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert call(grpc_channel, "Query", secret, group="mail").task.id == task.id  # It only looks.
    own = tokens.create("Bob", Scope.WORK, clients=[0])[1]
    assert not call(grpc_channel, "Update", own, **calls["Update"]).created_ids
    assert not Task.objects.exists()


def call(channel, name, secret, **fields):
    request = message(f"{name}Request", **fields).SerializeToString()
    ask = channel.unary_unary(
        f"/masstasker.MassTasker/{name}", response_deserializer=theirs()[f"{name}Response"].FromString
    )
    return ask(request, timeout=PATIENCE_S, metadata=[("authorization", f"Bearer {secret}")])
