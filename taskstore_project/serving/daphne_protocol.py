"""HTTP as daphne speaks it, with limits of ours, JSON for what never reaches the application, and a polite end."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from http import HTTPStatus
from io import BytesIO
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from daphne.http_protocol import HTTPFactory, WebRequest
from daphne.ws_protocol import WebSocketProtocol
from twisted.web import http
from twisted.web.http_headers import Headers

from . import slow_clients
from .body_limits import Body, unchecked_bytes
from .http_limits import LINGER_S, MOST_HEAD_BYTES, NOT_HTTP, detail, long_head, not_http
from .lane_connection import LaneConnection

if TYPE_CHECKING:
    from tasks_app.rest_api.hot_path import Answer

# Twisted has no words for statuses as young as 422 and 429, and would call them unknown.
for status in HTTPStatus:
    http.RESPONSES.setdefault(status.value, status.phrase.encode())


class Flow:
    """Whether the client reads what it was sent: Twisted says so to a `producer`, whose methods these are.

    Without it a list of a gigabyte for a slow reader would lie in memory as a whole.
    """

    def __init__(self) -> None:
        self._has_room = asyncio.Event()
        self._has_room.set()

    def pauseProducing(self) -> None:  # noqa: N802 - Twisted's name, as below.
        self._has_room.clear()

    def resumeProducing(self) -> None:  # noqa: N802
        self._has_room.set()

    def stopProducing(self) -> None:  # noqa: N802
        self._has_room.set()  # The client has gone: nobody has to wait for it.

    async def room(self, patience_s: float) -> None:
        """Wait until there is room for more. Raises TimeoutError when the client reads nothing for so long."""
        if not self._has_room.is_set():
            async with asyncio.timeout(patience_s):
                await self._has_room.wait()


class Request(WebRequest):  # type: ignore[misc]
    """A request whose body is refused before it is kept anywhere, when it is too large."""

    content: Any  # A file; None before the head is complete.

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.flow = Flow()
        self._body: Body | None = None  # Once it is long enough to be checked.
        # Django parses forms; here a large one would hold up everybody else, and to look whether it is one costs
        # as much as a claim.
        self._parsePOSTFormSubmission = False  # Twisted's name.

    def isSecure(self) -> bool:  # noqa: N802
        return False  # TLS ends at a proxy. Twisted looks for it in a slow way, with each request.

    def gotLength(self, length: int | None) -> None:  # noqa: N802
        if self._may_have(length or 0):
            super().gotLength(length)

    def handleContentChunk(self, data: bytes) -> None:  # noqa: N802
        if self.channel.is_refused:
            return
        if self._may_have(self.content.tell() + len(data)):
            super().handleContentChunk(data)

    def requestReceived(self, *args: Any) -> None:  # noqa: N802
        if not self.channel.is_refused:
            super().requestReceived(*args)

    def finish(self) -> None:
        if self._body:
            self._body.end()
        self.channel.lane.learn()
        super().finish()

    def connectionLost(self, reason: Any) -> None:  # noqa: N802
        if self._body:
            self._body.end()
        super().connectionLost(reason)

    def _may_have(self, size: int) -> bool:
        """Whether the body may have so many bytes, and the client as many at work. The request is refused otherwise."""
        if size <= unchecked_bytes():
            return True
        if self._body is None:
            headers = {
                name.decode("latin1").lower(): b",".join(values).decode("latin1")
                for name, values in self.requestHeaders.getAllRawHeaders()
            }
            self._body = Body(self.channel.target, headers, self.getClientAddress().host)
        if (answer := self._body.refusal(size)) is None:
            return True
        self._body.end()
        if self.content:
            self.content.close()
        self.content = BytesIO()
        # Else the client would be told to go on.
        self.requestHeaders.removeHeader(b"expect")
        self.channel.refuse(answer)
        return False

    def handle_reply(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body" and not self.finished and self.channel:
            self._follow_the_reader(is_going_on=message.get("more_body", False))
        super().handle_reply(message)

    def _follow_the_reader(self, *, is_going_on: bool) -> None:
        if is_going_on and not self.producer:
            self.registerProducer(self.flow, True)
        elif self.producer and not is_going_on:
            self.unregisterProducer()

    def cut_off(self) -> None:
        if self.channel:
            self.channel.transport.abortConnection()

    def basic_error(self, status: int, status_text: bytes, body: str) -> None:
        if self._response_started:
            # An end without the last chunk tells the client that this was not all of it. What Daphne does would
            # leave it waiting, and end the look after all other requests.
            if self.channel:
                self.channel.transport.abortConnection()
            return
        # Daphne's own page is HTML with an inline style.
        headers = [(b"Content-Type", b"application/json")]
        self.handle_reply({"type": "http.response.start", "status": status, "headers": headers})
        more = {"errors": NOT_HTTP} if status == HTTPStatus.BAD_REQUEST else {}
        self.handle_reply({"type": "http.response.body", "body": detail(body, **more)})


class Socket(WebSocketProtocol):  # type: ignore[misc]
    """A websocket. What is sent to it waits for a client that does not read, see `Flow`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.flow = Flow()

    def makeConnection(self, transport: Any) -> None:  # noqa: N802 - Twisted's name.
        # The connection over which it came as HTTP follows its reader no more.
        transport.unregisterProducer()
        transport.registerProducer(self.flow, True)
        super().makeConnection(transport)

    @property
    def takes_messages(self) -> bool:
        return bool(self.state == self.STATE_OPEN)

    def cut_off(self) -> None:
        self.dropConnection(abort=True)


class Channel(http.HTTPChannel):  # type: ignore[misc]
    """A connection."""

    MAX_LENGTH = MOST_HEAD_BYTES
    totalHeadersSize = MOST_HEAD_BYTES  # noqa: N815
    is_refused = False
    lane: LaneConnection
    _ends = 0  # Of heads and of bodies, so far.
    _part_bytes = 0  # Of what has come since the last one.
    _is_in_body = False

    def dataReceived(self, data: bytes) -> None:  # noqa: N802 - Twisted's name, as below.
        if self.is_refused:
            return
        if not (data := self.lane.take(data)):
            self.resetTimeout()
            return
        ends = self._ends
        super().dataReceived(data)
        if ends == self._ends:
            self._part_bytes += len(data)

    def allHeadersReceived(self) -> None:  # noqa: N802
        self._end_part(is_in_body=True)
        super().allHeadersReceived()

    def allContentReceived(self) -> None:  # noqa: N802
        self._end_part(is_in_body=False)
        super().allContentReceived()

    def _end_part(self, *, is_in_body: bool) -> None:
        self._ends += 1
        self._part_bytes, self._is_in_body = 0, is_in_body

    @property
    def due(self) -> slow_clients.Part | None:
        part_bytes = self._part_bytes + self.lane.begun_bytes
        is_begun = self._is_in_body or part_bytes or not self._ends
        is_ours = self.is_refused or self._handlingRequest or self.lane.is_answering
        return (self._ends, part_bytes) if is_begun and not is_ours else None

    def refuse_slow(self) -> None:
        if self._ends or self._part_bytes or self.lane.begun_bytes:
            self.refuse(slow_clients.refusal())
        else:
            self.transport.abortConnection()  # A browser would take it for the answer to what it asks later.

    @property
    def target(self) -> str:
        """What the request at hand asks for, as it was sent."""
        return bytes(self._path).decode("latin1")

    @property
    def is_idle(self) -> bool:
        """Whether no request is being received or answered."""
        return self.is_refused or not (self.requests or self.lane.is_answering)

    @property
    def is_open(self) -> bool:
        # A websocket takes the transport over.
        return bool(self.transport and self.transport.connected and self.transport.protocol is self)

    def end_after_answer(self) -> None:
        """Close once the request at hand is answered; without one, with the next answer (`checkPersistence`)."""
        if begun := self.lane.release():
            self.dataReceived(begun)
        for request in self.requests:
            self.persistent = 0
            if not request.startedWriting:
                request.responseHeaders.setRawHeaders(b"connection", [b"close"])

    def refuse(self, answer: bytes) -> None:
        """Answer by ourselves, take no other request, and close when the client has read it.

        What the client still sends is thrown away for a while: closing at once would
        reset the connection, and the answer would be lost with it.
        """
        self.is_refused = True
        self.transport.write(answer)
        self.lineReceived = lambda _: None
        self.transport.loseWriteConnection()
        self.setTimeout(LINGER_S)

    def checkPersistence(self, request: Request, version: bytes) -> bool:  # noqa: N802
        if not self.factory.is_ending:
            return bool(super().checkPersistence(request, version))
        request.responseHeaders.setRawHeaders(b"connection", [b"close"])
        return False

    # ---- For the lane

    @property
    def has_room(self) -> bool:
        """Whether the client takes what it is sent."""
        return not self._waitingForTransport

    @property
    def is_between_requests(self) -> bool:
        is_begun = self.requests or self._part_bytes or self._buffer or self._busyReceiving or self._dataBuffer
        return self.has_room and bool(self.persistent) and not (is_begun or self.factory.is_ending)

    def receive(self, data: bytes) -> None:
        self.dataReceived(data)

    def pause_reading(self) -> None:
        self._networkProducer.pauseProducing()

    def resume_reading(self) -> None:
        if self.has_room:
            self._networkProducer.resumeProducing()

    def send(self, answer: Answer) -> None:
        self._ends += 2
        start, end = frame_of(answer.status, answer.headers, self.factory.is_ending)
        self.transport.write(b"%b%d%b%b" % (start, len(answer.body), end, answer.body))
        self.resetTimeout()
        if self.factory.is_ending:
            self.loseConnection()

    def timeoutConnection(self) -> None:  # noqa: N802
        if self.lane.is_answering:
            self.setTimeout(self.timeOut)
        else:
            super().timeoutConnection()

    def lineLengthExceeded(self, line: bytes) -> None:  # noqa: N802
        self.refuse(long_head())

    def _respondToBadRequestAndDisconnect(self) -> None:  # noqa: N802
        self.refuse(long_head() if self._receivedHeaderSize > self.totalHeadersSize else not_http())


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
    is_ending = False

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self._channels: WeakSet[Channel] = WeakSet()

    def buildProtocol(self, addr: Any) -> Channel:  # noqa: N802
        channel: Channel = super().buildProtocol(addr)
        channel.requestFactory = Request
        channel.lane = LaneConnection(channel, self.server.lane)
        self._channels.add(channel)
        return channel

    def log(self, request: Request) -> None:
        """No access log: Twisted would write a line for each request to a log that throws it away."""

    @property
    def channels(self) -> list[Channel]:
        return [channel for channel in self._channels if channel.is_open]

    def end_after_answers(self) -> None:
        """From now on every connection closes with its next answer."""
        self.is_ending = True
        for channel in self.channels:
            channel.end_after_answer()

    def close_idle(self) -> None:
        for channel in self.channels:
            if channel.is_idle:
                channel.loseConnection()
