"""`manage.py up` and `serve`, as whoever starts it and whoever asks it notices."""

import json
import re
import signal
import socket
import stat
from contextlib import ExitStack, closing
from http.client import HTTPResponse

import pytest

from .harness import END_SECONDS, accepts, wait_for

ADD = {"clientid": 1, "adds": [{"group": "mail", "data": "1"}]}


def test_it_makes_everything_at_the_first_start(empty_place, command):
    store = empty_place
    with store.up(command=command) as server:
        assert re.search(r"The first user is admin, with the password \S{19} ", server.said)
        assert server.ask("GET", "/healthz").status_code == 200
        assert server.end() == 0
        assert server.complaints == ""
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in store.folder.iterdir()} == {0o600}


def test_programs_on_this_machine_find_it_while_it_runs(store, command):
    with store.up(command=command) as server:
        file = store.folder / "server.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        shown = json.loads(file.read_bytes())
        assert shown["url"] == server.url
        assert server.ask("POST", "/update", shown["token"], json=ADD).status_code == 200
        assert server.end() == 0
    assert not file.exists()


def test_it_goes_on_at_once_where_a_killed_server_stopped(store, command):
    with store.up(command=command) as killed:
        [task] = killed.ask("POST", "/update", store.token, json=ADD).json()["tasks"]
        left_behind = store.token
    with store.up(command=command) as server:
        assert "password" not in server.said
        assert server.ask("GET", f"/task/{task['id']}", store.token).json()["data"] == "1"
        assert server.ask("GET", "/groups", left_behind).status_code == 401


def test_it_needs_no_token_when_it_is_told_so(store):
    with store.up("--no-auth") as server:
        assert server.ask("POST", "/update", json=ADD).status_code == 200
        assert server.end() == 0
        assert server.complaints == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_what_it_was_asked_before_it_ends(store, command, number):
    with store.up(command=command) as server, ExitStack() as connections:
        # Somebody who keeps a connection without asking for anything holds up nobody.
        connections.enter_context(socket.create_connection(server.address))
        with store.nobody_can_write():
            asked = [connections.enter_context(closing(ask(server, store.token))) for _ in range(4)]
            # Answered after what was sent before: the server has read all of it.
            assert server.ask("GET", "/healthz").status_code == 200
            server.tell(number)
            wait_for(lambda: not accepts(server), "the end of listening")
        assert [len(answer_to(connection)["tasks"]) for connection in asked] == [1] * 4
        assert server.process.wait(END_SECONDS) == 0
        assert server.complaints == ""


def test_it_ends_in_time_whatever_holds_it_up(store, command):
    with store.up(command=command) as server, store.nobody_can_write(), closing(ask(server, store.token)):
        assert server.ask("GET", "/healthz").status_code == 200
        server.tell(signal.SIGTERM)
        server.process.wait(END_SECONDS)
        assert "Traceback" not in server.complaints
    with store.up() as server:
        assert server.ask("POST", "/update", store.token, json=ADD).status_code == 200


def ask(server, token):
    """A connection on which a task was asked for."""
    body = json.dumps(ADD).encode()
    connection = socket.create_connection(server.address)
    head = f"POST /update HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return connection


def answer_to(connection):
    response = HTTPResponse(connection)
    response.begin()
    assert response.status == 200
    assert response.getheader("Connection") == "close"
    return json.load(response)
