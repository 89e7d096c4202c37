"""The catalogue against the REST API: named, nothing changed, and the connection is of use afterwards."""

import json
import re

import pytest
from django.test import Client

from tasks_app.models import Scope
from tests.rest_api.api import Api

from .catalogue import Bad, bodies, expanded, fields, requests
from .store import everything, secret_of, three_tasks

BY_REQUEST: dict[str, list[Bad]] = {}
for _, several in [*bodies(), *fields(), *requests()]:
    for each in several:
        BY_REQUEST.setdefault(f"{each.method} {each.path}", []).append(each)
VERB = re.compile(r"\b(?:must|is|takes|expects|say|can|can't|changed)\b")  # Of a field error, which is a sentence.


@pytest.fixture
def api(db, settings):
    settings.TASKSTORE_COMMANDS = True
    return Api(Scope.OPERATE)


@pytest.fixture
def ids(api):
    return three_tasks()


@pytest.mark.parametrize("request_line", BY_REQUEST)
def test_it_is_named_and_changes_nothing(api, ids, request_line):
    before = everything()
    for bad in BY_REQUEST[request_line]:
        status, answer = sent(api, ids, bad)
        assert status == bad.status, bad
        assert bad.refused is None or [name for name, why in answer["error"].items() if why] == bad.refused
        assert bad.refused is not None or answer.keys() - {"errors", "code"} == {"detail"}
        assert bad.names is None or list(answer["errors"]) == bad.names, bad
        errors = answer.get("errors", {})
        assert all(texts and all(map(VERB.search, texts)) for texts in errors.values()), errors
    assert everything() == before
    assert api.get("/groups") == (200, ["mail", "reports"])


@pytest.mark.parametrize("length", [64 * 2**20 + 1, 10**30])
@pytest.mark.parametrize("path", ["/update", "/claim", "/tasks"])
def test_a_body_that_is_announced_but_too_long_is_not_waited_for(api, path, length):
    response = api.http.generic("POST", path, b"", CONTENT_LENGTH=str(length))
    assert (response.status_code, list(response.json()["errors"])) == (413, ["body"])


@pytest.mark.parametrize("path", ["/update", "/claim", "/tasks"])
def test_a_body_beyond_the_limit_is_refused(api, settings, path):
    settings.TASKSTORE_MAX_REQUEST_BYTES = 1_000
    status, answer = api.send(path, b" " * 1_001)
    assert (status, answer["errors"]) == (413, {"body": ["must be at most 1000 bytes"]})


def test_an_answer_to_a_body_of_mistakes_stays_small(api):
    body = {"clientid": 1, "deletes": ["x"] * 10_000, "adds": [{"group": "mail", "labels": {"x" * 100_000: 1}}]}
    response = api.http.post("/update", body, "application/json")
    assert response.status_code == 400
    assert len(response.content) < 200_000


def sent(api: Api, ids: dict[str, int], bad: Bad):
    body = bad.body if isinstance(bad.body, bytes) else json.dumps(expanded(bad.body, ids))
    http = api.http if bad.who == "operator" else somebody(bad.who)
    response = http.generic(bad.method, bad.path, body, "application/json", headers=bad.headers)
    return response.status_code, response.json()


def somebody(who: str) -> Client:
    secret = secret_of(who)
    return Client(headers={"authorization": f"Bearer {secret}"} if secret else {})
