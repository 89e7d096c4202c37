"""Claims that wait, and requests that are sent again, over real connections."""

import json
import signal
import socket
import time
from contextlib import ExitStack, closing
from http.client import HTTPResponse

import pytest

from .harness import empty

ADD = {"clientid": 1, "adds": [{"group": "mail", "data": "1"}]}
CLAIM = {"clientid": 2, "group": "mail"}


@pytest.fixture
def server(store, command):
    with store.up(command=command) as server:
        yield server


@pytest.fixture
def serving(lasting_server, lasting_store):
    """One that no test ends."""
    yield lasting_server
    empty(lasting_server, lasting_store.token)


def ask(server, token, path, body):
    """A connection on which this was asked."""
    data = json.dumps(body).encode()
    connection = socket.create_connection(server.address, timeout=30)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return connection


def answer_to(connection):
    response = HTTPResponse(connection)
    response.begin()
    return response.status, json.load(response)


def post(server, token, path, body):
    response = server.ask("POST", path, token, json=body)
    assert response.status_code == 200
    return response.json()


def test_claims_that_wait_are_answered_when_the_server_ends(server, store):
    with ExitStack() as connections:
        waiting = [
            connections.enter_context(closing(ask(server, store.token, "/claim", CLAIM | {"wait": 60_000})))
            for _ in range(3)
        ]
        assert server.ask("GET", "/healthz").status_code == 200
        told_s = time.monotonic()
        server.tell(signal.SIGTERM)
        assert [answer_to(connection) for connection in waiting] == [(200, {"tasks": [], "error": None})] * 3
        assert time.monotonic() - told_s < 5
    assert server.process.wait(10) == 0
    assert server.complaints == ""


def test_a_request_whose_answer_was_lost_can_be_sent_to_the_next_server(store, command):
    body = ADD | {"key": "a"}
    with store.up(command=command) as server:
        first = post(server, store.token, "/update", body)
        # The token is of this start only.
        token = store.manage("token", "create", "Ann", "--scope", "work").stdout.strip()
        kept = post(server, token, "/update", body)
        server.kill()
    with store.up(command=command) as server:
        assert post(server, token, "/update", body) == kept
        assert kept["tasks"][0]["id"] != first["tasks"][0]["id"]
        assert len(server.ask("GET", "/group/mail", token).json()) == 2
