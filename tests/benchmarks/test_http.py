"""The load generator's own HTTP."""

import asyncio

import pytest

from lab.benchmarks import CannotMeasure
from lab.benchmarks.clients.rest import Connection

pytestmark = pytest.mark.once


class Wire(asyncio.Transport):
    """Answers each request by the same pieces, or hangs up where there are none."""

    def __init__(self, connection, pieces):
        super().__init__()
        self.connection = connection
        self.pieces = pieces
        self.sent = []

    def write(self, data):
        self.sent.append(data)
        asyncio.get_running_loop().call_soon(self.answer)

    def answer(self):
        for piece in self.pieces:
            self.connection.data_received(piece)
        if not self.pieces:
            self.connection.connection_lost(ConnectionResetError())


def ask(*pieces, times=1, key=b""):
    """What came of so many requests, and what was sent for them."""

    async def talk():
        connection = Connection("127.0.0.1:8048", "ts_ann")
        wire = Wire(connection, pieces)
        connection.connection_made(wire)
        return [await connection.post(b"/claim", b"{}", key) for _ in range(times)], wire.sent

    return asyncio.run(talk())


def test_it_returns_the_body():
    bodies, _ = ask(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    assert bodies == [b"hello"]


def test_it_puts_an_answer_together_that_comes_in_pieces():
    bodies, _ = ask(b"HTTP/1.1 200 OK\r\ncontent-", b"length: 5\r\n", b"\r\nhe", b"llo")
    assert bodies == [b"hello"]


def test_it_keeps_the_connection():
    bodies, sent = ask(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", times=3)
    assert bodies == [b"{}"] * 3
    assert len(sent) == 3


def test_it_sends_token_and_key():
    _, [request] = ask(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", key=b"k-1")
    assert request.startswith(b"POST /claim HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer ts_ann\r\n" in request
    assert b"\r\nIdempotency-Key: k-1\r\n" in request
    assert request.endswith(b"\r\nContent-Length: 2\r\n\r\n{}")


def test_it_measures_nothing_that_was_refused():
    with pytest.raises(CannotMeasure, match="503 Service Unavailable: busy"):
        ask(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy")


def test_it_says_when_the_server_hangs_up():
    with pytest.raises(CannotMeasure, match="closed a connection"):
        ask()
