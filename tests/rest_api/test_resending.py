"""Requests with a key: sent again, they answer what the first one answered, and do nothing."""

import asyncio

import msgspec
import pytest

from tasks_app.models import Scope, Task
from tasks_app.rest_api.bodies import digest_of
from taskstore.types.tasks import Change, NewTask

from .api import ANN, BOB, Api
from .workers import Worker, on_a_loop, until_waiting

ADD = {"clientid": ANN, "adds": [{"group": "mail", "data": "1"}]}


def post(api, path, body, key=""):
    headers = {"idempotency-key": key} if key else {}
    response = api.http.post(path, body, "application/json", headers=headers)
    return response.status_code, response.json()


@pytest.mark.parametrize("first", ["header", "body"])
@pytest.mark.parametrize("again", ["header", "body"])
def test_the_same_request_is_answered_once(api, first, again):
    ways = {"header": (ADD, "a"), "body": (ADD | {"key": "a"}, "")}
    answers = [post(api, "/update", *ways[way]) for way in (first, again)]
    assert answers[0] == answers[1]
    assert [task.id for task in Task.objects.group("mail")] == [answers[0][1]["tasks"][0]["id"]]


def test_it_does_not_matter_in_which_order_a_version_has_the_fields():
    task, request = [("group", str), ("data", str), ("labels", dict)], ("key", str)

    def digest(fields):
        add = msgspec.defstruct("Add", fields, kw_only=True)
        asked = msgspec.defstruct("UpdateRequest", [("adds", list[add]), request], kw_only=True)  # type: ignore[valid-type]
        adds = [{"group": "mail", "data": "1", "labels": {"b": "1", "a": "2"}}]
        return digest_of(msgspec.convert({"adds": adds, "key": "a"}, asked))

    assert digest(task) == digest(task[::-1])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/update", ADD | {"clientid": BOB}),
        ("/update", {"clientid": ANN, "adds": [{"group": "mail", "data": "2"}]}),
        ("/claim", {"clientid": ANN, "group": "mail"}),
    ],
)
def test_another_request_with_the_same_key_is_a_conflict(api, path, body):
    assert post(api, "/update", ADD, "a")[0] == 200
    status, answer = post(api, path, body, "a")
    assert (status, answer["code"]) == (409, "key_reused")
    assert len(Task.objects.group("mail")) == 1


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/update", {"clientid": ANN, "adds": [{"group": "mail", "error": "\ud800"}]}, "adds[0].error"),
        ("/update", {"clientid": ANN, "adds": [{"group": "mail", "labels": {"\ud800": "x"}}]}, "adds[0].labels"),
        ("/update", {"clientid": ANN, "adds": [{"group": "\ud800", "data": "x" * 300_000}]}, "adds[0].group"),
        ("/claim", {"clientid": ANN, "group": "\ud800"}, "group"),
    ],
)
def test_text_that_is_not_utf8_is_named(api, path, body, field):
    status, answer = post(api, path, body, "a")
    assert (status, list(answer["errors"])) == (400, [field])
    assert post(api, "/update", ADD, "a")[0] == 200


def test_header_and_body_must_agree(api):
    assert post(api, "/update", ADD | {"key": "a"}, "a")[0] == 200
    status, answer = post(api, "/update", ADD | {"key": "b"}, "a")
    assert (status, list(answer["errors"])) == (400, ["key"])
    assert len(Task.objects.group("mail")) == 1


@pytest.mark.parametrize("key", ["a\0", "\ud800", "x" * 256, 1, True, ["a"]])
def test_a_key_is_a_short_text(api, key):
    status, answer = api.post("/update", ADD | {"key": key})
    assert (status, list(answer["errors"])) == (400, ["key"])
    assert not Task.objects.group("mail")


def test_each_token_has_keys_of_its_own(api):
    other = Api()
    [first, second] = [post(asker, "/update", ADD, "a") for asker in (api, other)]
    assert first[1]["tasks"][0]["id"] != second[1]["tasks"][0]["id"]
    assert len(Task.objects.group("mail")) == 2


def test_without_tokens_each_client_has_keys_of_its_own(db, client, settings):
    settings.TASKSTORE_NO_AUTH = True

    def add(owner):
        headers = {"idempotency-key": "a", "host": "localhost"}
        return client.post("/update", ADD | {"clientid": owner}, "application/json", headers=headers)

    answers = [add(owner) for owner in (ANN, BOB, ANN)]
    assert [answer.status_code for answer in answers] == [200] * 3
    ids = [answer.json()["tasks"][0]["id"] for answer in answers]
    assert ids[0] == ids[2] != ids[1]


def test_a_repeated_claim_answers_with_what_its_client_still_holds(api):
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", data=b"x" * size) for size in (1, 3, 2)])
    claim = {"clientid": BOB, "group": "mail", "limit": 3, "order": "oldest", "wait": 60_000}
    first = post(api, "/claim", claim, "a")[1]
    assert post(api, "/claim", claim, "a") == (200, first)
    ended, renewed, held = [task["id"] for task in first["tasks"]]
    Task.objects.commit(owner=BOB, deletes=[ended], updates=[Change(id=renewed, timespec_ms=-60_000)])
    again = post(api, "/claim", claim, "a")[1]
    assert again == {"tasks": first["tasks"][2:], "error": None, "gone": [ended, renewed]}
    Task.objects.commit(owner=BOB, deletes=[held])
    assert post(api, "/claim", claim, "a")[1] == {"tasks": [], "error": None, "gone": [ended, renewed, held]}
    assert [task.origin for task in Task.objects.all()] == [first["tasks"][1]["origin"]]


def test_requests_that_come_together_have_one_effect(server):
    worker = Worker(server.url, Api().secret)

    @on_a_loop
    async def story():
        answers = await asyncio.gather(*(worker.post("/update", ADD, idempotency_key="a") for _ in range(10)))
        assert answers == [answers[0]] * 10
        assert answers[0][0] == 200

    story()
    assert len(Task.objects.group("mail")) == 1


def test_a_waiting_claim_can_be_sent_again_when_its_connection_broke(server):
    worker = Worker(server.url, Api(Scope.WORK).secret)

    @on_a_loop
    async def story():
        broken = worker.begin_claim(key="a")
        await until_waiting(1)
        broken.cancel()
        await until_waiting(0)
        again = worker.begin_claim(key="a")
        await until_waiting(1)
        await worker.post("/update", ADD | {"adds": [{"group": "mail"}] * 2})
        first = await again
        assert len(first[1]["tasks"]) == 1
        assert await worker.begin_claim(key="a") == first

    story()
