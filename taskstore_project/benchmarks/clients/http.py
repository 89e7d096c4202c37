"""HTTP as a load generator needs it: it must cost less than what it measures."""

from __future__ import annotations

import asyncio
from typing import cast

from .. import CannotMeasure

OK = b"HTTP/1.1 200 "
END_OF_HEAD = b"\r\n\r\n"
LENGTH = b"\r\ncontent-length:"


class Connection(asyncio.Protocol):
    """A connection that is kept, with one request at a time."""

    _transport: asyncio.Transport
    _answer: asyncio.Future[bytes]

    def __init__(self, authority: str, token: str) -> None:
        self._head = (
            f"Host: {authority}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        ).encode()
        self._received = b""

    @classmethod
    async def open(cls, url: str, token: str) -> Connection:
        authority = url.removeprefix("http://")
        host, _, port = authority.rpartition(":")
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: cls(authority, token), host, int(port))
        return connection

    async def post(self, path: bytes, body: bytes, key: bytes = b"") -> bytes:
        """The body of the answer. Raises CannotMeasure when its status is not 200."""
        self._answer = asyncio.get_running_loop().create_future()
        more = b"Idempotency-Key: %b\r\n" % key if key else b""
        self._transport.write(
            b"POST %b HTTP/1.1\r\n%b%bContent-Length: %d\r\n\r\n%b" % (path, self._head, more, len(body), body)
        )
        return await self._answer

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: uvloop's transports do not say what they are.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(END_OF_HEAD)
        if not found or len(body) < _length(head):
            return
        self._received = b""
        if head.startswith(OK):
            self._answer.set_result(body)
        else:
            self._answer.set_exception(CannotMeasure(f"the server answered {_shown(head)}: {_shown(body)}"))

    def connection_lost(self, problem: Exception | None) -> None:
        if hasattr(self, "_answer") and not self._answer.done():
            self._answer.set_exception(CannotMeasure(f"the server closed a connection in use: {problem}"))


def _length(head: bytes) -> int:
    lower = head.lower()
    start = lower.index(LENGTH) + len(LENGTH)
    return int(lower[start:].partition(b"\r\n")[0])


def _shown(text: bytes) -> str:
    return text.partition(b"\r\n")[0][:500].decode(errors="replace")
