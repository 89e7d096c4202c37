"""`manage.py up` and `serve`, as whoever starts it and whoever asks it notices."""

import ipaddress
import json
import os
import re
import signal
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPResponse
from pathlib import Path

import pytest

from .harness import END_SECONDS, Server, accepts, wait_for

ADD = {"clientid": 1, "adds": [{"group": "mail", "data": "1"}]}
LISTENS = "0A"  # The state of a socket, as the kernel writes it.


@pytest.mark.usefixtures("new_interpreters")
def test_it_makes_everything_at_the_first_start_and_prints_the_password_once(empty_place, command):
    store = empty_place
    with store.up(command=command) as first:
        [password] = re.findall(r"The first user is admin, with the password (\S{19}) ", first.said)
        assert first.ask("GET", "/healthz").status_code == 200
        if Path("/proc/net/tcp").exists():  # Sockets are visible in other places on other systems.
            listening = set(listening_addresses())
            # For HTTP and for gRPC; `serve` has a process for each of its workers, which share them.
            mine = {address for address, inode in listening if inode in sockets_of(first)}
            assert mine
            assert [address for address in mine if not address.is_loopback] == []
        assert first.end() == 0
        assert first.complaints == ""
        assert first.said.count(password) == 1
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in store.folder.iterdir()} == {0o600}
    for file in filter(Path.is_file, store.folder.rglob("*")):
        assert password.encode() not in file.read_bytes(), file
    with store.up(command=command) as second:
        assert second.end() == 0
        assert "with the password" not in second.said + second.complaints


@pytest.mark.usefixtures("new_interpreters")
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


@pytest.mark.usefixtures("new_interpreters")
def test_it_ends_in_time_whatever_holds_it_up(store, every_command):
    with store.up(command=every_command) as server, store.nobody_can_write(), closing(ask(server, store.token)):
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


def listening_addresses() -> Iterator[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, str]]:
    """Of every process here: where it listens, and the number of the socket."""
    for name in ("tcp", "tcp6"):
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
            if state == LISTENS:
                yield address_of(local.partition(":")[0]), inode


def address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The kernel writes words of four bytes, each in the order of the machine."""
    words = [bytes.fromhex(text[place : place + 8])[::-1] for place in range(0, len(text), 8)]
    return ipaddress.ip_address(b"".join(words))


def sockets_of(server: Server) -> set[str]:
    """The numbers of the sockets of the server's process."""
    found = set()
    for descriptor in Path(f"/proc/{server.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # It was closed meanwhile.
            if number := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(descriptor)):
                found.add(number[1])
    return found
