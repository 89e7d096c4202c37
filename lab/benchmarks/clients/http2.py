"""gRPC as a load generator needs it: it must cost less than what it measures.

Of HTTP/2 (RFC 9113, RFC 7541) there is what one call at a time needs, whose messages fit a frame.
"""

from __future__ import annotations

import asyncio
import struct
from enum import IntEnum
from typing import cast

from .. import CannotMeasure

MOST_BYTES = 16_000  # Of a message: a frame has at most 16 384, and as many may be sent at once.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9  # Of a frame.
PREFIX_BYTES = 5  # Of a message of gRPC.
# We keep no table of headers, so that each answer spells out what it says; and we take in what comes.
OUR_SETTINGS = struct.pack(">HIHI", 1, 0, 4, 2**31 - 1)
OUR_WINDOW = struct.pack(">I", 2**31 - 1 - 65_535)
STATUS = b"grpc-status"
NOT_FOUND = b"5"
# In the order of the table of headers: what the first call says of itself the others name by their numbers.
POST, HTTP, PATH, AUTHORITY, CONTENT_TYPE, AUTHORIZATION = b"\x83", b"\x86", b"\x04", b"\x41", b"\x5f", b"\x57"
NEW_NAME = b"\x40"
AS_BEFORE = b"\xc1\xc0\xbf\xbe"


class Kind(IntEnum):
    """Of a frame."""

    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8


ACK = END_STREAM = 1
END_HEADERS = 4


class Connection(asyncio.Protocol):
    """A connection that is kept, with one call at a time."""

    _transport: asyncio.Transport
    _answer: asyncio.Future[bytes | None]

    def __init__(self, authority: str, token: str) -> None:
        said = [AUTHORITY + _text(authority), CONTENT_TYPE + _text("application/grpc")]
        said += [NEW_NAME + _text("te") + _text("trailers"), AUTHORIZATION + _text(f"Bearer {token}")]
        self._of_all = b"".join(said)
        self._stream = -1
        self._received = b""
        self._message: bytes | None = None

    @classmethod
    async def open(cls, address: str, token: str) -> Connection:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: cls(address, token), host, int(port))
        return connection

    async def call(self, path: str, message: bytes) -> bytes | None:
        """The message that answers this one; None for the status NOT_FOUND. Raises CannotMeasure for any other.

        At most MOST_BYTES long.
        """
        self._answer = asyncio.get_running_loop().create_future()
        self._stream += 2
        headers = POST + HTTP + PATH + _text(path) + self._of_all
        self._of_all = AS_BEFORE
        self._transport.write(
            _frame(Kind.HEADERS, END_HEADERS, self._stream, headers)
            + _frame(Kind.DATA, END_STREAM, self._stream, b"\0" + struct.pack(">I", len(message)) + message)
        )
        return await self._answer

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: uvloop's transports do not say what they are.
        self._transport = cast("asyncio.Transport", transport)
        ours = _frame(Kind.SETTINGS, 0, 0, OUR_SETTINGS) + _frame(Kind.WINDOW_UPDATE, 0, 0, OUR_WINDOW)
        self._transport.write(PREFACE + ours)

    def data_received(self, data: bytes) -> None:
        received = self._received + data
        while len(received) >= HEAD_BYTES:
            end = HEAD_BYTES + int.from_bytes(received[:3])
            if len(received) < end:
                break
            self._take(received[3], received[4], received[HEAD_BYTES:end])
            received = received[end:]
        self._received = received

    def connection_lost(self, problem: Exception | None) -> None:
        self._fail(f"the server closed a connection in use: {problem}")

    def _take(self, kind: int, flags: int, content: bytes) -> None:
        if kind == Kind.DATA:
            self._message = content if self._message is None else self._message + content
        elif kind == Kind.HEADERS and flags & END_STREAM:
            self._settle(content)
        elif kind in (Kind.RST_STREAM, Kind.GOAWAY):
            self._fail(f"the server broke off: {content!r}")
        elif kind in (Kind.SETTINGS, Kind.PING) and not flags & ACK:
            self._transport.write(_frame(kind, ACK, 0, content if kind == Kind.PING else b""))

    def _settle(self, trailers: bytes) -> None:
        message, self._message = self._message, None
        if message is not None:  # Only with the status OK.
            self._answer.set_result(message[PREFIX_BYTES:])
        elif trailers.partition(STATUS)[2][1:].startswith(NOT_FOUND):
            self._answer.set_result(None)
        else:
            self._fail(f"the server refused: {trailers!r}")

    def _fail(self, reason: str) -> None:
        if hasattr(self, "_answer") and not self._answer.done():
            self._answer.set_exception(CannotMeasure(reason))


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + content


def _text(text: str) -> bytes:
    """As it stands in a header: its length, in one byte as it is below 127, and its letters."""
    letters = text.encode()
    return bytes([len(letters)]) + letters
