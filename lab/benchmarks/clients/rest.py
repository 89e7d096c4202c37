"""Claims and commits over HTTP, as a load generator sends them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from itertools import count
from typing import Any, cast

import orjson

from .. import CannotMeasure
from ..pace import DATA, GROUP, LEASE_MS
from .client import ADDER, Client

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


TASK = {"group": GROUP, "data": DATA.decode()}


NUMBERS = count()  # Of keys, in all of this process.


class RestClient(Client):
    """A connection for each client."""

    connections: dict[int, Connection]

    async def open(self, owners: Sequence[int]) -> None:
        self.connections = {}
        for owner in owners:
            self.connections[owner] = await Connection.open(self.where["url"], self.where["token"])

    async def close(self) -> None:
        for connection in self.connections.values():
            connection.close()

    async def claim(self, owner: int) -> Sequence[int]:
        asked: dict[str, Any] = {"clientid": owner, "group": GROUP, "duration": LEASE_MS}
        if self.load.batch > 1:
            asked["limit"] = self.load.batch
        return [task["id"] for task in await self._post(owner, b"/claim", asked)]

    async def finish(self, owner: int, tasks: Sequence[int]) -> None:
        await self._post(owner, b"/update", {"clientid": owner, "deletes": tasks})

    async def put(self, tasks: int) -> None:
        await self._post(ADDER, b"/update", {"clientid": ADDER, "adds": [TASK] * tasks})

    async def _post(self, owner: int, path: bytes, asked: dict[str, Any]) -> Any:
        answer = orjson.loads(await self.connections[owner].post(path, orjson.dumps(asked), self._key()))
        if answer["error"]:
            raise CannotMeasure(f"the server refused: {answer['error']}")
        return answer["tasks"]

    def _key(self) -> bytes:
        return f"{os.getpid()}-{next(NUMBERS)}".encode() if self.load.with_keys else b""
