"""The server below the application: what it refuses by itself, and how it ends."""

import json
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from http.client import HTTPResponse

import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect

from lab.testing import PROJECT
from taskstore_project.serving.connection import MOST_HEAD_BYTES

from .harness import Server, accepts, wait_for
from .small_application import LONG_BYTES, MOST_BODY_BYTES, PIECE_BYTES

pytestmark = pytest.mark.once

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
TOO_LONG = (413, {"detail": f"The request must be at most {MOST_BODY_BYTES} bytes."})


def announcement(length, more=b""):
    """The head of a request with so long a body."""
    return POST + more + b"Content-Length: %d\r\n\r\n" % length


@pytest.fixture(params=["up", "serve"], scope="module")
def kind(request):
    """Daphne or uvicorn."""
    return request.param


@contextmanager
def small_server(kind, patience_s, slow_s=600):
    command = [sys.executable, "-m", "tests.server.small_application", kind, str(patience_s), str(slow_s)]
    process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    server = Server(process)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def lasting_server(kind):
    with small_server(kind, 1) as server:
        yield server


@pytest.fixture(scope="module")
def impatient_server(kind):
    with small_server(kind, 1, slow_s=1) as server:
        yield server


@pytest.fixture
def slow_connection(impatient_server):
    with socket.create_connection(impatient_server.address, timeout=60) as connection:
        yield connection


@pytest.fixture
def connection(lasting_server):
    with socket.create_connection(lasting_server.address, timeout=10) as connection:
        yield connection


@pytest.fixture
def server(kind):
    """One that the test may end."""
    with small_server(kind, 1) as server:
        yield server


@pytest.fixture
def last_connection(server):
    with socket.create_connection(server.address, timeout=10) as connection:
        yield connection


def test_it_takes_a_body_up_to_the_limit(connection):
    connection.sendall(announcement(MOST_BODY_BYTES) + b"x" * MOST_BODY_BYTES)
    assert answer_on(connection) == (200, {"length": MOST_BODY_BYTES})


def test_it_refuses_a_longer_body_before_it_comes(connection):
    connection.sendall(announcement(MOST_BODY_BYTES + 1, b"Expect: 100-continue\r\n"))
    assert answer_on(connection) == TOO_LONG
    assert connection.recv(1000) == b""


def test_the_refusal_reaches_a_client_that_sends_on_and_on(connection):
    connection.sendall(POST + b"Content-Length: 100000000\r\n\r\n")
    for _ in range(1000):
        connection.sendall(b"x" * 10_000)
    assert answer_on(connection)[0] == 413


def test_it_refuses_a_body_that_grows_too_long_piece_by_piece(connection):
    connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
    piece = b"x" * (MOST_BODY_BYTES // 2 + 1)
    for _ in range(2):
        connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
    assert answer_on(connection) == TOO_LONG


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"x" * MOST_HEAD_BYTES + b" HTTP/1.1\r\n",
        GET + b"X-Long: " + b"x" * MOST_HEAD_BYTES + b"\r\n",
        GET + (b"X-Many: " + b"x" * 1000 + b"\r\n") * 40,
    ],
    ids=["request line", "header", "headers"],
)
def test_it_refuses_a_head_that_is_too_long(connection, head):
    connection.sendall(head + b"\r\n")
    status, body = answer_on(connection)
    assert status == 431
    assert str(MOST_HEAD_BYTES) in body["detail"]


def test_it_takes_no_body_for_a_head(lasting_server, connection):
    connection.sendall(announcement(MOST_BODY_BYTES))
    lasting_server.ask("GET", "/")  # The server has read the head: the body comes by itself.
    connection.sendall(b"x" * MOST_BODY_BYTES)
    assert MOST_BODY_BYTES > MOST_HEAD_BYTES
    assert answer_on(connection) == (200, {"length": MOST_BODY_BYTES})


@pytest.mark.parametrize(
    "request_",
    [
        b"hello\r\n\r\n",
        GET + b"no colon\r\n\r\n",
        GET + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        GET + b"Content-Length: ten\r\n\r\n",
        GET + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        GET + b"Wrong name: 1\r\n\r\n",
    ],
)
def test_it_answers_what_is_no_http_with_json(connection, request_):
    connection.sendall(request_)
    status, body = answer_on(connection)
    assert (status, body["errors"]) == (400, {"request": ["must be valid HTTP/1.1"]})


def test_it_makes_no_more_of_an_answer_than_its_client_reads(kind):
    with (
        small_server(kind, patience_s=600) as server,
        socket.create_connection(server.address, timeout=60) as connection,
    ):
        connection.sendall(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert 0 < sent_when_it_waits(server) < LONG_BYTES / 2
        response = HTTPResponse(connection)
        response.begin()
        assert sum(map(len, iter(lambda: response.read(PIECE_BYTES), b""))) == LONG_BYTES


def test_it_cuts_off_a_client_that_reads_nothing(slow_connection):
    slow_connection.sendall(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
    watch = select.poll()
    watch.register(slow_connection, select.POLLRDHUP)
    assert watch.poll(60_000)


def test_it_cuts_off_a_websocket_that_reads_nothing(slow_connection):
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    key = b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
    slow_connection.sendall(b"GET /much HTTP/1.1\r\nHost: localhost\r\n" + upgrade + key + b"\r\n")
    assert slow_connection.recv(12) == b"HTTP/1.1 101"
    watch = select.poll()
    watch.register(slow_connection, select.POLLRDHUP)
    assert watch.poll(60_000)


@pytest.mark.parametrize(
    "begun",
    [GET, b"GET /", GET + b"\r\n" + GET, announcement(1_000), POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"],
    ids=["in the head", "in the request line", "in the second head", "before the body", "in the body"],
)
def test_it_waits_for_a_slow_request_so_long_and_no_longer(slow_connection, begun):
    slow_connection.sendall(begun)
    trickle = threading.Thread(target=send_on, args=[slow_connection])
    trickle.start()
    if GET + b"\r\n" in begun:
        assert answer_on(slow_connection) == (200, {"length": 0})
    assert answer_on(slow_connection) == (408, {"detail": "The request was sent too slowly."})
    slow_connection.shutdown(socket.SHUT_RDWR)
    trickle.join()


def send_on(connection):
    """A byte now and then: it is not silence that is too slow."""
    with suppress(OSError):
        while True:
            connection.send(b"1")
            time.sleep(0.1)


def test_it_waits_for_a_first_request_so_long_and_no_longer(slow_connection):
    assert is_closed(slow_connection)


def is_closed(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_it_waits_for_an_answer_however_slow_others_may_be(slow_connection, impatient_server):
    slow_connection.sendall(b"GET /never HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with socket.create_connection(impatient_server.address, timeout=60) as other:
        assert is_closed(other)
    slow_connection.settimeout(1)
    with pytest.raises(TimeoutError):
        slow_connection.recv(1)


def test_it_sends_a_begun_answer_to_its_end(server, last_connection):
    last_connection.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
    response = HTTPResponse(last_connection)
    response.begin()
    assert response.read(5) == b"half "
    server.tell(signal.SIGTERM)
    server.tell(signal.SIGUSR1)
    assert response.read() == b"whole"
    assert last_words(server) == "all answered"


def test_it_lets_a_client_in_the_middle_of_a_request_finish(server, last_connection):
    last_connection.sendall(POST + b"Content-Length: 10\r\n\r\n12345")
    assert server.ask("GET", "/").status_code == 200  # The server has read what was sent.
    server.tell(signal.SIGTERM)
    wait_for(lambda: not accepts(server), "the end of listening")
    last_connection.sendall(b"67890")
    response = HTTPResponse(last_connection)
    response.begin()
    assert response.getheader("Connection") == "close"
    assert json.load(response) == {"length": 10}
    assert last_words(server) == "all answered"


def test_it_answers_on_a_kept_connection_once_more(kind):
    with small_server(kind, patience_s=600) as server, socket.create_connection(server.address) as connection:
        connection.sendall(GET + b"\r\n")
        assert answer_on(connection) == (200, {"length": 0})
        server.tell(signal.SIGTERM)
        wait_for(lambda: not accepts(server), "the end of listening")
        connection.sendall(GET + b"\r\n")
        assert answer_on(connection) == (200, {"length": 0})
        assert connection.recv(1000) == b""
        assert last_words(server) == "all answered"


def test_it_tells_websockets_to_come_back(server):
    with connect(server.url.replace("http", "ws"), proxy=None) as websocket:
        assert websocket.recv() == "hello"
        server.tell(signal.SIGTERM)
        with pytest.raises(ConnectionClosedError) as closed:
            websocket.recv()
        assert "received 1012" in str(closed.value)
    assert last_words(server) == "closed with 1012\nall answered"


def test_it_does_not_wait_for_ever(server, last_connection):
    last_connection.sendall(b"GET /never HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert server.ask("GET", "/").status_code == 200
    server.tell(signal.SIGTERM)
    assert last_words(server) == "cut off"


def test_it_ends_at_once_when_it_is_told_twice(kind):
    with small_server(kind, patience_s=600) as server, socket.create_connection(server.address) as connection:
        connection.sendall(b"GET /never HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert server.ask("GET", "/").status_code == 200
        server.tell(signal.SIGTERM)
        wait_for(lambda: not accepts(server), "the end of listening")
        server.tell(signal.SIGTERM)
        assert last_words(server) == "cut off"


def answer_on(connection):
    response = HTTPResponse(connection)
    response.begin()
    assert response.getheader("Content-Type") == "application/json"
    return response.status, json.load(response)


def sent_when_it_waits(server):
    """How much of the long answer it has sent when it sends no more."""
    counts = [-1]

    def is_waiting():
        counts.append(server.ask("GET", "/sent").json()["bytes"])
        return counts[-1] == counts[-2]

    wait_for(is_waiting, "the end of sending")
    return counts[-1]


def last_words(server):
    """What the process says at its end."""
    server.process.wait(10)
    assert server.complaints == ""
    return server.process.stdout.read().strip()
