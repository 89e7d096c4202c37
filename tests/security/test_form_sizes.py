"""Forms are refused by their size before anybody reads them, and strangers' forms have to be small."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from email.message import Message
from http.client import HTTPResponse
from typing import NamedTuple

import pytest
from django.conf import settings as configured
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.test import Client

from tasks_app.access import sessions
from tasks_app.models import Task
from taskstore_project.serving.connection import FORM_BYTES

from ..people import signed_in
from .test_headers import assert_strict

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("transactional_db")]

PAGE, PROGRAM = "text/html", "application/json"
FORM = "application/x-www-form-urlencoded"
PIECE = 64 * 1024
ANSWERED_S = 30
# The first part of a path may be written in another way; a target may name the host.
DOORS = ["/console/login", "/console/import", "/console/theme?a=b", "/admin/login/", "/admin/tasks_app/task/add/",
         "/docs/", "/", "/%63onsole/login", "http://localhost/console/login", "/console#a"]  # fmt: skip


@pytest.fixture(params=["served", "served_by_uvicorn"])
def server(request):
    """Daphne, or uvicorn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def person(transactional_db) -> Client:
    """Somebody who may add tasks, and has a form open."""
    client = signed_in(User.objects.create_superuser("ada"))
    client.get("/console/add")
    return client


@pytest.fixture
def parsed(monkeypatch) -> list[str]:
    """The paths of the requests whose forms Django has parsed."""
    paths: list[str] = []
    load = HttpRequest._load_post_and_files

    def noted(request):
        paths.append(request.path)
        load(request)

    monkeypatch.setattr(HttpRequest, "_load_post_and_files", noted)
    return paths


def head(target: str, length: str, client: Client | None = None, **more: str) -> bytes:
    cookies = "; ".join(f"{name}={cookie.value}" for name, cookie in client.cookies.items()) if client else ""
    lines = {"Host": "localhost", "Content-Type": FORM, "Accept": PROGRAM, "Cookie": cookies, **more}
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
    return f"POST {target} HTTP/1.1\r\n{text}{length}\r\n\r\n".encode()


class Answer(NamedTuple):
    status: int
    headers: Message
    content: bytes


def announced(size: int) -> str:
    return f"Content-Length: {size}"


@pytest.fixture
def connection(server) -> Iterator[socket.socket]:
    host, _, port = server.url.removeprefix("http://").partition(":")
    with closing(socket.create_connection((host, int(port)), ANSWERED_S)) as connection:
        yield connection


def answer_on(connection: socket.socket) -> Answer:
    response = HTTPResponse(connection, method="POST")
    response.begin()
    return Answer(response.status, response.headers, response.read())


@pytest.mark.parametrize("target", DOORS)
def test_a_stranger_is_refused_before_the_form_comes(connection, parsed, target):
    connection.sendall(head(target, announced(FORM_BYTES + 1), Expect="100-continue"))
    answer = answer_on(connection)
    assert answer.status == 413
    assert b"at most 1 MiB" in answer.content
    assert parsed == []


def test_a_stranger_is_refused_while_the_form_comes(connection, parsed):
    connection.sendall(head("/console/login", "Transfer-Encoding: chunked"))
    for _ in range(FORM_BYTES // PIECE + 1):
        connection.sendall(b"%x\r\n%b\r\n" % (PIECE, b"x" * PIECE))
    assert answer_on(connection).status == 413
    assert parsed == []


def test_a_form_of_a_stranger_that_is_small_is_read(connection):
    body = b"username=ann&password=" + b"x" * 1_000
    connection.sendall(head("/console/login", announced(len(body))) + body)
    assert answer_on(connection).status == 403  # It has no token against forged forms.


@pytest.mark.parametrize("headers", [{"Accept": PAGE}, {"Accept": PAGE, "HX-Request-Type": "partial"}, {}])
def test_the_answer_is_what_was_asked_for(connection, headers):
    connection.sendall(head("/console/login", announced(64 * 2**20), **headers))
    answer = answer_on(connection)
    assert answer.status == 413
    assert_strict(answer)
    text = answer.content.decode()
    assert "The request must be at most 1 MiB." in text
    if not headers:
        assert f'"errors": {{"body": ["must be at most {FORM_BYTES} bytes"]}}' in text
    else:
        assert "<h1>The form is too large</h1>" in text or '<h2 id="dialog-title">The form is too large</h2>' in text
        assert ("<html" in text) is ("HX-Request-Type" not in headers)


def test_the_api_keeps_its_own_limit(connection):
    connection.sendall(head("/update", announced(FORM_BYTES + 1), Expect="100-continue"))
    assert connection.recv(1000).startswith(b"HTTP/1.1 100")


def test_someone_who_is_signed_in_adds_the_largest_data(connection, person, settings):
    settings.TASKSTORE_MAX_DATA_BYTES = 1_000_000
    token = person.cookies[configured.CSRF_COOKIE_NAME].value
    fields = f"csrfmiddlewaretoken={token}&group=mail&encoding=text&priority=0&content="
    body = fields.encode() + b"%C3%A9" * 500_000
    connection.sendall(head("/admin/tasks_app/task/add/", announced(len(body)), person) + body)
    assert answer_on(connection).status == 302
    assert len(Task.objects.get().data) == 1_000_000


def test_someone_who_is_signed_in_sends_no_larger_form(connection, person, settings, parsed):
    settings.TASKSTORE_MAX_DATA_BYTES = 1_000_000
    parsed.clear()
    connection.sendall(head("/console/add", announced(FORM_BYTES + 6_000_001), person))
    assert answer_on(connection).status == 413
    assert parsed == []


def test_someone_who_is_signed_in_imports_the_largest_file(connection, person, settings):
    settings.TASKSTORE_MAX_DATA_BYTES = 1
    connection.sendall(head("/console/import", announced(32 * 2**20), person, Expect="100-continue"))
    assert connection.recv(1000).startswith(b"HTTP/1.1 100")


def no_session(client: Client) -> None:
    del client.cookies[configured.SESSION_COOKIE_NAME]


def forged_session(client: Client) -> None:
    client.cookies[configured.SESSION_COOKIE_NAME] = client.cookies[configured.SESSION_COOKIE_NAME].value + "x"


def no_token(client: Client) -> None:
    del client.cookies[configured.CSRF_COOKIE_NAME]


def ended_session(client: Client) -> None:
    """The session was ended, and a request has told this server so."""
    sessions.end_all_of(User.objects.get())
    assert client.get("/console/").status_code == 302


@pytest.mark.parametrize("change", [no_session, forged_session, no_token, ended_session])
def test_who_has_no_valid_session_or_no_token_is_a_stranger(connection, person, parsed, change):
    change(person)
    parsed.clear()
    connection.sendall(head("/console/import", announced(FORM_BYTES + 1), person))
    assert answer_on(connection).status == 413
    assert parsed == []
