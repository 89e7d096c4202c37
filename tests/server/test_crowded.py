"""More connections than the process may open files: idle ones make room, and busy ones are left alone."""

import resource
import socket
import time
from contextlib import ExitStack, suppress

import pytest

from lab.testing.processes import family

from .harness import wait_for

MOST_FILES = 200
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture
def server(store, command):
    with store.up(command=command) as server:
        for pid in family(server.pid):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (MOST_FILES, MOST_FILES))
        yield server
        assert server.end() == 0
        assert server.complaints == ""


@pytest.fixture
def connect(server):
    with ExitStack() as stack:
        yield lambda: stack.enter_context(socket.create_connection(server.address, timeout=10))


def is_open(connection):
    connection.setblocking(False)
    try:
        connection.recv(1)
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    else:
        return False  # It was answered, or closed.
    finally:
        connection.settimeout(10)


def test_idle_connections_make_room(server, store, connect):
    used = connect()
    assert b" 200 " in answer(used)
    idle = [connect() for _ in range(260)]
    assert b" 200 " in answer(used)  # Those that were never used went first.
    for _ in range(5):
        assert server.ask("GET", "/group/mail", store.token).status_code == 200
    assert sum(map(is_open, idle)) < MOST_FILES


def test_without_an_idle_one_a_new_one_is_refused_and_told_when_to_come_back(server, store, connect):
    busy = [connect() for _ in range(MOST_FILES // 4)]
    for each in busy:
        each.sendall(REQUEST[:20])
    time.sleep(0.5)

    def refused():
        more = connect()
        more.sendall(REQUEST[:20])
        busy.append(more)
        return more

    told = b""
    while len(busy) < MOST_FILES and not told:
        last = refused()
        last.settimeout(0.05)
        with suppress(TimeoutError):
            told = last.recv(1_000)
    assert b" 503 " in told
    assert b"retry-after: 1" in told.lower()
    assert MOST_FILES // 4 < sum(map(is_open, busy)) < MOST_FILES
    for each in busy:
        each.close()
    # As soon as it has noticed.
    wait_for(lambda: server.ask("GET", "/group/mail", store.token).status_code == 200, "an answer")


def answer(connection):
    connection.sendall(REQUEST)
    answer = b""
    while not answer.endswith(b"}"):  # The body may come by itself.
        answer += connection.recv(1_000)
    return answer
