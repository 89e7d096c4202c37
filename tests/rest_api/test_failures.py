"""What is answered when it is not the client's mistake, and where there is no view."""

import logging

import pytest
from django.core.exceptions import (
    BadRequest,
    RequestDataTooBig,
    SuspiciousOperation,
    TooManyFieldsSent,
    TooManyFilesSent,
)
from django.db import InterfaceError, OperationalError
from django.http.multipartparser import MultiPartParserError
from django.test import Client

from tasks_app.managers import TaskManager
from tasks_app.rest_api import bodies
from taskstore.errors import CommitUnknown, StoreBusy, StoreUnavailable

BODY = {"clientid": 1, "adds": [{"group": "mail", "data": "secret letter"}]}


@pytest.fixture
def failing(monkeypatch):
    """Lets the verbs raise something."""

    def fail_with(error):
        def verb(*args, **kwargs):
            raise error

        for name in ("perform", "find", "group", "groups"):
            monkeypatch.setattr(TaskManager, name, verb)

    return fail_with


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreBusy("locked"), "busy"),
        (StoreUnavailable("gone"), "unavailable"),
        (CommitUnknown("lost"), "commit_unknown"),
        (OperationalError("no route to host"), "unavailable"),
        (InterfaceError("connection closed"), "unavailable"),
    ],
)
def test_a_store_that_cannot_answer_says_when_to_try_again(api, failing, error, code):
    failing(error)
    for response in (api.http.post("/update", BODY, "application/json"), api.http.get("/group/mail")):
        assert (response.status_code, response["Retry-After"]) == (503, "1")
        assert response.json().keys() == {"detail", "code"}
        assert response.json()["code"] == code


def test_the_database_does_not_speak_to_clients(api, failing):
    failing(OperationalError('connection to server at "db.internal" failed: SELECT secret'))
    assert "db.internal" not in str(api.get("/groups"))


def test_the_unexpected_has_a_number_that_the_log_has(api, failing, caplog):
    failing(ZeroDivisionError("of all things"))
    api.http.raise_request_exception = False
    with caplog.at_level(logging.ERROR):
        status, answer = api.post("/update", BODY)
    assert (status, answer.keys()) == (500, {"detail", "request_id"})
    assert "of all things" not in answer["detail"]
    [record] = caplog.records
    assert f"request {answer['request_id']} failed: POST /update" in record.getMessage()
    assert record.exc_info
    assert "secret letter" not in caplog.text


@pytest.mark.parametrize("path", ["/nothing", "/update/", "/group/", "/schema/", "/GROUPS"])
@pytest.mark.parametrize("accept", [None, "*/*", "application/json"])
def test_an_unknown_path_answers_json(client, path, accept):
    response = client.get(path, headers={} if accept is None else {"accept": accept})
    assert (response.status_code, response["Content-Type"]) == (404, "application/json")
    assert list(response.json()) == ["detail"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/update", "POST, OPTIONS"),
        ("PUT", "/claim", "POST, OPTIONS"),
        ("POST", "/groups", "GET, HEAD, OPTIONS"),
        ("DELETE", "/task/1", "GET, HEAD, OPTIONS"),
        ("PATCH", "/group/mail", "GET, HEAD, OPTIONS"),
        ("TRACE", "/groups", "GET, HEAD, OPTIONS"),
        ("BREW", "/groups", "GET, HEAD, OPTIONS"),
    ],
)
def test_other_methods_are_refused(api, method, path, allowed):
    response = api.http.generic(method, path)
    assert (response.status_code, response["Allow"]) == (405, allowed)
    assert list(response.json()) == ["detail"]


@pytest.mark.parametrize(
    ("error", "status", "field"),
    [
        (SuspiciousOperation("odd"), 400, "request"),
        (BadRequest("odd"), 400, "request"),
        (TooManyFieldsSent("many"), 400, "body"),
        (TooManyFilesSent("many"), 400, "body"),
        (MultiPartParserError("broken"), 400, "body"),
        (RequestDataTooBig("large"), 413, "body"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_django_refuses_is_told_as_the_api_tells_it(api, monkeypatch, error, status, field):
    def refuse(*_):
        raise error

    monkeypatch.setattr(bodies, "query_in", refuse)
    response = api.http.get("/groups")
    assert response.status_code == status
    assert response.headers["Content-Type"] == "application/json"
    assert list(response.json()["errors"]) == [field]
    # A person gets a page.
    response = api.http.get("/groups", headers={"accept": "text/html"})
    assert (response.status_code, "<html" in response.content.decode()) == (status, True)


def test_too_many_parameters_are_told_by_their_place(db):
    response = Client().get("/console/login?" + "a=1&" * 1_001, headers={"accept": "application/json"})
    assert response.status_code == 400
    assert response.json()["errors"] == {"query": ["must have at most 1000 fields"]}
    form = {f"field-{number}": "1" for number in range(1_001)}
    client = Client(enforce_csrf_checks=True)
    client.cookies["csrftoken"] = "x" * 32
    response = client.post("/console/login", form, headers={"accept": "application/json"})
    assert response.status_code == 400
    assert response.json()["errors"] == {"body": ["must have at most 1000 fields"]}
