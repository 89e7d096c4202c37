"""Connections of our servers without a socket: bytes come in as a test cuts them, and it sees what goes out."""

from __future__ import annotations

import asyncio
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IPushProducer, ITransport
from twisted.python.failure import Failure
from zope.interface import implementer  # type: ignore[import-untyped]

from tasks_app.rest_api.lane import Lane
from taskstore_project.serving.uvicorn_server import Protocol
from taskstore_project.serving.uvicorn_server import Server as Uvicorn
from tests.served import PATIENCE_S, Served


class Transport(asyncio.Transport):
    """What uvicorn writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.protocol: Any = None
        self.is_closed = self.is_paused = False

    def write(self, data: Any) -> None:
        if not self.is_closed:
            self.sent.append(bytes(data))

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


@implementer(ITransport, IPushProducer)
class TwistedTransport:
    """What daphne writes to."""

    disconnecting = False

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.protocol: Any = None
        self.connected = True
        self.is_paused = False

    @property
    def is_closed(self) -> bool:
        return not self.connected

    def fileno(self) -> int:
        return 0  # There is room for it.

    def write(self, data: bytes) -> None:
        if self.connected:
            self.sent.append(data)

    def writeSequence(self, parts: list[bytes]) -> None:  # noqa: N802 - Twisted's names, here and below.
        self.write(b"".join(parts))

    def loseConnection(self) -> None:  # noqa: N802
        if self.connected:
            self.connected = False
            asyncio.get_running_loop().call_soon(self.protocol.connectionLost, Failure(ConnectionDone()))

    abortConnection = loseConnection  # noqa: N815

    def loseWriteConnection(self) -> None:  # noqa: N802
        pass

    def getPeer(self) -> IPv4Address:  # noqa: N802
        return IPv4Address("TCP", "127.0.0.1", 1)

    getHost = getPeer  # noqa: N815

    def registerProducer(self, producer: Any, streaming: bool) -> None:  # noqa: N802
        pass

    def unregisterProducer(self) -> None:  # noqa: N802
        pass

    def pauseProducing(self) -> None:  # noqa: N802
        self.is_paused = True

    def resumeProducing(self) -> None:  # noqa: N802
        self.is_paused = False

    stopProducing = loseConnection  # noqa: N815


class Connection:
    """One of a server that is entered. To be used on its loop."""

    def __init__(self, served: Served, lane: Lane | None) -> None:
        server: Any = served._server
        self.transport: Any
        self.protocol: Any
        if isinstance(server, Uvicorn):
            self.transport = Transport()
            self.protocol = self.transport.protocol = Protocol(server.config, server.server_state, {}, lane=lane)
            self.protocol.connection_made(self.transport)
        else:
            self.transport = TwistedTransport()
            self.protocol = self.transport.protocol = server.http_factory.buildProtocol(None)
            self.protocol.use(lane)
            self.protocol.makeConnection(self.transport)

    @property
    def is_answering(self) -> bool:
        """Whether a request that has come as a whole is not answered yet."""
        protocol = self.protocol
        if self.transport.is_closed or protocol.is_refused:
            return False
        if not isinstance(protocol, Protocol):
            return bool(protocol.is_answering or protocol.lane.is_answering)
        cycle = protocol.cycle
        is_in_cycle = cycle and not (cycle.response_complete or cycle.more_body or cycle.disconnected)
        return bool(protocol.lane.is_answering or protocol.pipeline or is_in_cycle)

    @property
    def sent(self) -> bytes:
        return b"".join(self.transport.sent)

    def receive(self, data: bytes) -> None:
        if not self.transport.is_closed:
            self.protocol.receive(data)

    async def answered(self) -> None:
        """Return when nothing is being answered."""
        for _ in range(3):  # What is answered may begin only with the next turn of the loop.
            await asyncio.sleep(0)
        deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
        while self.is_answering:
            assert asyncio.get_running_loop().time() < deadline_s
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        """As when the client goes."""
        if isinstance(self.transport, Transport):
            self.transport.close()
        else:
            self.transport.loseConnection()
        await asyncio.sleep(0)
