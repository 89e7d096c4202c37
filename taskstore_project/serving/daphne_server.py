"""daphne, which `up` runs in one process: what it needs beyond `connection` and `server`."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

# Compiled checks for long messages over websockets, of which pages send none: to get them ready is a twentieth of a
# start. Autobahn reads this when it is imported.
os.environ.setdefault("AUTOBAHN_USE_NVX", "0")

import daphne.server
from daphne.http_protocol import HTTPFactory, WebRequest
from daphne.server import reactor, twisted_loop
from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol
from twisted.logger import STDLibLogObserver, globalLogBeginner
from twisted.web import http
from twisted.web.http_headers import Headers

from . import sd_notify
from .connection import MOST_HEAD_BYTES, MOST_SOCKET_BYTES, NOT_HTTP, Connection, Reader, detail, long_head, not_http
from .server import Lifecycle

if TYPE_CHECKING:
    from tasks_app.rest_api.hot_path import Answer

BODY_AT_ONCE = 2**20  # Bytes that the application gets of a body: eight thousand parts of the largest take too long.
SERVICE_RESTART = 1012  # The websocket's close code: come back in a moment.

# Twisted has no words for statuses as young as 422 and 429, and would call them unknown.
for status in HTTPStatus:
    http.RESPONSES.setdefault(status.value, status.phrase.encode())


class Flow(Reader):
    """Whether the client reads what it was sent: Twisted says so to a `producer`, whose methods these are.

    Without it a list of a gigabyte for a slow reader would lie in memory as a whole.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.room = asyncio.Event()
        self.room.set()

    def pauseProducing(self) -> None:  # noqa: N802 - Twisted's name, as below.
        self.room.clear()
        self.pause()

    def resumeProducing(self) -> None:  # noqa: N802
        self.room.set()
        self.resume()

    stopProducing = resumeProducing  # noqa: N815 - The client has gone: nobody has to wait for it.


class Request(WebRequest):  # type: ignore[misc]
    """A request. Its body is refused before it is kept anywhere, when it is too large."""

    content: Any  # A file; None before the head is complete.

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.flow = Flow(self.channel.abort)
        # Django parses forms; here a large one would hold up everybody else, and to look whether it is one costs
        # as much as a claim.
        self._parsePOSTFormSubmission = False  # Twisted's name.

    def isSecure(self) -> bool:  # noqa: N802
        return False  # TLS ends at a proxy. Twisted looks for it in a slow way, with each request.

    def gotLength(self, length: int | None) -> None:  # noqa: N802
        if self.channel.takes_body(length or 0):
            super().gotLength(length)
        else:
            self.requestHeaders.removeHeader(b"expect")  # Else the client would be told to go on.

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802
        if not self.channel.is_refused and self.channel.body_came(self.content.tell() + len(data)):
            super().handleContentChunk(data)

    def requestReceived(self, *args: Any) -> None:  # noqa: N802
        if not self.channel.is_refused:
            super().requestReceived(*args)

    def finish(self) -> None:
        self.channel.answered()
        super().finish()

    def handle_reply(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body" and not self.finished and self.channel:
            is_going_on = message.get("more_body", False)
            if is_going_on and not self.producer:
                self.registerProducer(self.flow, True)
            elif self.producer and not is_going_on:
                self.unregisterProducer()
        super().handle_reply(message)

    def basic_error(self, status: int, status_text: bytes, body: str) -> None:
        if self._response_started:
            # An end without the last chunk tells the client that this was not all of it. What Daphne does would
            # leave it waiting, and end the look after all other requests.
            if self.channel:
                self.channel.abort()
            return
        # Daphne's own page is HTML with an inline style.
        headers = [(b"Content-Type", b"application/json")]
        self.handle_reply({"type": "http.response.start", "status": status, "headers": headers})
        more = {"errors": NOT_HTTP} if status == HTTPStatus.BAD_REQUEST else {}
        self.handle_reply({"type": "http.response.body", "body": detail(body, **more)})


class Socket(WebSocketProtocol):  # type: ignore[misc]
    """A websocket. What is sent to it waits for a client that does not read, see `Flow`."""

    maxMessagePayloadSize: int  # noqa: N815 - Autobahn's name.

    def makeConnection(self, transport: Any) -> None:  # noqa: N802 - Twisted's name.
        self.flow = Flow(lambda: self.dropConnection(abort=True))
        # The connection over which it came as HTTP follows its reader no more.
        transport.unregisterProducer()
        transport.registerProducer(self.flow, True)
        super().makeConnection(transport)

    def sendMessage(self, *args: Any, **options: Any) -> None:  # noqa: N802 - Autobahn's name.
        # Autobahn has one limit for both directions. Ours is for what pages send: the counts of many groups are longer.
        most, self.maxMessagePayloadSize = self.maxMessagePayloadSize, 0
        try:
            super().sendMessage(*args, **options)
        finally:
            self.maxMessagePayloadSize = most

    @property
    def takes_messages(self) -> bool:
        return bool(self.state == self.STATE_OPEN)


class Channel(http.HTTPChannel, Connection):  # type: ignore[misc]
    """A connection."""

    MAX_LENGTH = MOST_HEAD_BYTES
    totalHeadersSize = MOST_HEAD_BYTES  # noqa: N815
    requestFactory = Request  # noqa: N815

    def connectionMade(self) -> None:  # noqa: N802 - Twisted's name, as below.
        super().connectionMade()
        self.factory.server.admit(self, self.transport.fileno())

    def dataReceived(self, data: bytes) -> None:  # noqa: N802
        if not self.is_refused:
            self.resetTimeout()
        self.receive(data)

    def parse(self, data: bytes) -> None:
        super().dataReceived(data)

    def allHeadersReceived(self) -> None:  # noqa: N802
        self.head_came()
        super().allHeadersReceived()

    def allContentReceived(self) -> None:  # noqa: N802
        self.message_came()
        super().allContentReceived()

    def connectionLost(self, reason: Any) -> None:  # noqa: N802
        self.lost()
        super().connectionLost(reason)

    def checkPersistence(self, request: Request, version: bytes) -> bool:  # noqa: N802
        if not self.is_ending:
            return bool(super().checkPersistence(request, version))
        request.responseHeaders.setRawHeaders(b"connection", [b"close"])
        return False

    def timeoutConnection(self) -> None:  # noqa: N802
        if self.lane.is_answering:
            self.setTimeout(self.timeOut)
        else:
            super().timeoutConnection()

    def lineLengthExceeded(self, line: bytes) -> None:  # noqa: N802
        self.refuse(long_head())

    def _respondToBadRequestAndDisconnect(self) -> None:  # noqa: N802
        self.refuse(long_head() if self._receivedHeaderSize > self.totalHeadersSize else not_http())

    # ---- Twisted's way for what `Connection` decides

    @property
    def head(self) -> tuple[str, Mapping[str, str], str]:
        request = self.requests[-1]
        headers = {
            name.decode("latin1").lower(): b",".join(values).decode("latin1")
            for name, values in request.requestHeaders.getAllRawHeaders()
        }
        return bytes(self._path).decode("latin1"), headers, request.getClientAddress().host

    @property
    def is_answering(self) -> bool:
        return bool(self._handlingRequest)

    @property
    def is_between_requests(self) -> bool:
        is_begun = self.requests or self._part_bytes or self._buffer or self._busyReceiving or self._dataBuffer
        is_closing = self.is_ending or self.transport.disconnecting
        return bool(self.persistent) and not (is_begun or is_closing or self._waitingForTransport)

    @property
    def is_open(self) -> bool:
        # A websocket takes the transport over.
        return bool(self.transport and self.transport.connected and self.transport.protocol is self)

    @property
    def is_write_paused(self) -> bool:
        return bool(self._waitingForTransport)

    def frame_of(self, answer: Answer) -> tuple[bytes, bytes]:
        return frame_of(answer.status, answer.headers, self.is_ending)

    def say_last(self, answer: bytes) -> None:
        self.transport.write(answer)
        self.lineReceived = lambda _: None
        self.transport.loseWriteConnection()
        self.setTimeout(None)
        for request in self.requests:
            if request.content:
                request.content.close()

    def mark_last(self) -> None:
        for request in self.requests:
            self.persistent = 0
            if not request.startedWriting:
                request.responseHeaders.setRawHeaders(b"connection", [b"close"])

    def stay_open(self) -> None:
        self.resetTimeout()

    def close(self) -> None:
        self.loseConnection()

    def abort(self) -> None:
        self.transport.abortConnection()

    def pause_reading(self) -> None:
        self._networkProducer.pauseProducing()

    def resume_reading(self) -> None:
        if not self._waitingForTransport:
            self._networkProducer.resumeProducing()


@lru_cache(maxsize=64)
def frame_of(status: int, own: tuple[tuple[bytes, bytes], ...], is_last: bool) -> tuple[bytes, bytes]:
    """Return the bytes of an answer before and after its length, as Twisted and daphne write them."""
    headers = Headers({b"Connection": [b"close"]} if is_last else {})
    for name, value in own:
        headers.addRawHeader(name, value)
    lines = [b"%b: %b\r\n" % (name, value) for name, values in headers.getAllRawHeaders() for value in values]
    start = b"".join([b"HTTP/1.1 %d %b\r\n" % (status, http.RESPONSES[status]), *lines, b"Content-Length: "])
    return start, b"\r\nServer: taskstore\r\n\r\n"


class Factory(HTTPFactory):  # type: ignore[misc]
    """Makes the connections, and knows the open ones."""

    protocol = Channel

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self.channels: WeakSet[Channel] = WeakSet()

    def buildProtocol(self, addr: Any) -> Channel:  # noqa: N802
        channel: Channel = super().buildProtocol(addr)
        channel.requestFactory = Request
        channel.use(self.server.lane)
        channel.is_ending = self.server.is_ending
        self.channels.add(channel)
        return channel

    def log(self, request: Request) -> None:
        """No access log: Twisted would write a line for each request to a log that throws it away."""


class Server(Lifecycle, daphne.server.Server):  # type: ignore[misc]
    """Serves an application, see `Lifecycle`."""

    def __init__(self, application: Any, listener: socket.socket, *args: Any, **kwargs: Any) -> None:
        Lifecycle.__init__(self, listener, *args, **kwargs)
        daphne.server.Server.__init__(
            self,
            application,
            endpoints=[f"fd:fileno={listener.fileno()}"],
            server_name="taskstore",
            request_buffer_size=BODY_AT_ONCE,
        )

    def run(self) -> None:
        # Not daphne's own: it leaves no choice of the factory, looks through all packages for plugins,
        # and its end cuts off what is being answered.
        asyncio.set_event_loop(twisted_loop)
        # What goes wrong inside is a line on standard error, as everywhere.
        globalLogBeginner.beginLoggingTo([STDLibLogObserver("twisted")], redirectStandardIO=False)
        self.connections: dict[Any, dict[str, Any]] = {}
        self.http_factory = Factory(self)
        self.ws_factory = WebSocketFactory(self, server=self.server_name)
        self.ws_factory.protocol = Socket
        self.ws_factory.setProtocolOptions(
            autoPingTimeout=self.ping_timeout,
            allowNullOrigin=True,  # Who may come in is for the application.
            openHandshakeTimeout=self.websocket_handshake_timeout,
            maxMessagePayloadSize=MOST_SOCKET_BYTES,
            maxFramePayloadSize=MOST_SOCKET_BYTES,
        )
        reactor.callLater(1, self.application_checker)
        reactor.callLater(2, self.timeout_checker)
        life = twisted_loop.create_task(self.live())
        life.add_done_callback(lambda _: reactor.stop())
        reactor.run(installSignalHandlers=False)
        life.result()

    def end(self) -> None:
        if not self.is_ending:
            sd_notify.tell(sd_notify.STOPPING)
        super().end()

    async def accept(self) -> None:
        self.listener.setblocking(False)
        self._port = reactor.adoptStreamPort(self.listener.fileno(), self.listener.family, self.http_factory)
        # Twisted has a copy; this one would keep the port open to the last.
        self.listener.close()

    def stop_accepting(self) -> None:
        # Those who are through the system's handshake already would be cut off.
        self._port.doRead()
        self._port.stopListening()

    def http_connections(self) -> list[Channel]:
        return [channel for channel in self.http_factory.channels if channel.is_open]

    def is_busy(self) -> bool:
        works = (details.get("application_instance") for details in self.connections.values())
        return bool(self.http_connections()) or any(work and not work.done() for work in works)

    def close_websockets(self) -> None:
        for protocol in list(self.connections):
            if isinstance(protocol, Socket) and protocol.takes_messages:
                # Not sendClose(): that refuses codes which only a server may send.
                protocol.sendCloseFrame(code=SERVICE_RESTART)

    async def handle_reply(self, protocol: Any, message: dict[str, Any]) -> None:
        if isinstance(protocol, Socket) and message["type"] == "websocket.close" and protocol.takes_messages:
            # Daphne forgets the reason.
            protocol.sendClose(code=message.get("code") or 1000, reason=message.get("reason"))
            return
        await super().handle_reply(protocol, message)
        if isinstance(protocol, Request | Socket):
            await protocol.flow.room.wait()
