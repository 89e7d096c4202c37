"""A connection of either server: how much its client may send and how slowly, what the lane takes, how it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from django.apps import apps
from django.conf import settings

from tasks_app.access.request_limits import LEAST_BYTES, REASON, RETRY_AFTER_S, Charge, sender_of

from ..sessions import is_signed_in

if TYPE_CHECKING:  # Servers of other applications do without: it needs the models.
    from tasks_app.rest_api.hot_path import Answer
    from tasks_app.rest_api.lane import Lane, Request

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.05  # Between looks whether a client has read something.
LINGER_S = 10  # How long a refused body is read and thrown away.

LEAST_RATE = 4_096  # Bytes a second, of a body that takes longer than the patience.
LOOKS = 4  # In the time of the patience.

LONGEST_HEAD = 1_024  # With its end. Longer ones are not known to the lane.
MOST_HELD = 16 * 2**10  # Bytes of what follows a request that is not answered yet: beyond that nothing is read.

log = logging.getLogger(__name__)

Part = tuple[int, int]  # The number of a head or a body on its connection, and how many bytes of it have come.

MOST_HEAD_BYTES = 32 * 1024  # Request line and headers; a claim of a thousand ids fits.
NOT_HTTP = {"request": ["must be valid HTTP/1.1"]}  # What is wrong, as the API tells it.
MOST_SOCKET_BYTES = 64 * 1024  # Pages send a word or two over their socket.

FORM_BYTES = 2**20  # A form of someone who is not signed in, and all fields beside the data of a task.
ENCODED = 6  # A form sends the end of a line as %0D%0A; any other byte takes three at most.
PAGES = frozenset({"", "console", "admin", "docs"})  # First parts of the paths where Django reads forms.
UPLOAD = "/console/import"


class Connection(ABC):
    """Behaviour of both servers. A server's own class reports what it parses, and says how it writes and closes."""

    is_refused = False
    is_ending = False  # It closes with its next answer.
    is_paused = False  # Nothing is read, because the application has not taken what came.

    _parts = 0  # Heads and bodies that have ended.
    _part_bytes = 0  # Of what has come since then.
    _is_in_body = False

    def use(self, lane: Lane | None) -> None:
        """Call it before the first byte."""
        self.lane = LaneConnection(self, lane)
        # Of the requests that are not answered yet; None while a body is too short to be checked.
        self._bodies: deque[Body | None] = deque()

    def receive(self, data: bytes) -> None:
        """Take what the client has sent."""
        if self.is_refused or not (data := self.lane.take(data)):
            return
        parts = self._parts
        self.parse(data)
        if parts == self._parts and not self._is_in_body:
            self._part_bytes += len(data)

    # ---- What the server's parser reports

    def head_came(self) -> None:
        self._end_part(is_in_body=True)
        self._bodies.append(None)

    def takes_body(self, size: int) -> bool:
        """Whether the body may have so many bytes, and the client as many at work. The request is refused otherwise."""
        # Of a request that is answered already nothing is kept.
        if size > unchecked_bytes() and self._bodies:
            body = self._bodies[-1] = self._bodies[-1] or Body(*self.head)
            if answer := body.refusal(size):
                self.refuse(answer)
        return not self.is_refused

    def body_came(self, size: int) -> bool:
        """So much of the body has come, before it is kept. Returns whether it may be."""
        self._part_bytes = size
        return self.takes_body(size)

    def message_came(self) -> None:
        self._end_part(is_in_body=False)

    def answered(self) -> None:
        """The application has answered the first of the requests that were left to it."""
        if self._bodies and (body := self._bodies.popleft()):
            body.end()
        self.lane.learn()

    def lost(self) -> None:
        """The client has gone, or nothing more is taken from it."""
        while self._bodies:
            if body := self._bodies.popleft():
                body.end()
        self.lane.lost()

    def _end_part(self, *, is_in_body: bool) -> None:
        self._parts += 1
        self._part_bytes, self._is_in_body = 0, is_in_body

    # ---- Slow clients, refusals and the end

    @property
    def due(self) -> Part | None:
        """What the client has to go on sending; None while it is not its turn."""
        part_bytes = self._part_bytes + self.lane.begun_bytes
        is_begun = self._is_in_body or part_bytes or not self._parts
        is_ours = self.is_paused or self.lane.is_answering or (self.is_answering and not self._is_in_body)
        return (self._parts, part_bytes) if is_begun and not (is_ours or self.is_refused) else None

    def refuse_slow(self) -> None:
        if self.is_unused:
            self.abort()  # A browser would take it for the answer to what it asks later.
        else:
            self.refuse(refusal_of(HTTPStatus.REQUEST_TIMEOUT, "The request was sent too slowly."))

    def refuse(self, answer: bytes) -> None:
        """Answer by ourselves, take no other request, and close when the client has read it.

        What the client still sends is thrown away for a while: closing at once would
        reset the connection, and the answer would be lost with it.
        """
        if not self.is_refused:
            self.is_refused = True
            self.lost()
            self.say_last(answer)
            asyncio.get_running_loop().call_later(LINGER_S, self.abort)

    def end_after_answer(self) -> None:
        """Close once the request at hand is answered; without one, with the next answer."""
        self.is_ending = True
        if begun := self.lane.release():
            self.receive(begun)
        self.mark_last()

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way, not even the first bytes of one."""
        return self.is_between_requests and not (self.lane.is_answering or self.lane.begun_bytes or self.is_refused)

    @property
    def is_unused(self) -> bool:
        """Whether no byte has come yet."""
        return not (self._parts or self._part_bytes or self.lane.begun_bytes)

    def close_if_idle(self) -> None:
        """Close it unless a request is answered, or its body is received. A head that has begun does not count."""
        if self.is_refused or not (self._is_in_body or self.is_answering or self.lane.is_answering):
            self.close()

    def send(self, answer: Answer) -> None:
        """Send an answer of the lane in one piece."""
        self._parts += 2
        start, end = self.frame_of(answer)
        assert isinstance(answer.body, bytes)  # noqa: S101
        self.write(b"%b%d%b%b" % (start, len(answer.body), end, answer.body))
        if self.is_ending:
            self.close()
        else:
            self.stay_open()

    async def send_in_pieces(self, answer: Answer) -> None:
        """Send an answer of the lane as its pieces come."""
        assert not isinstance(answer.body, bytes)  # noqa: S101
        self._parts += 2
        start, end = self.frame_of(answer)
        # In the place of the length, which comes last.
        self.write(start.rpartition(b"\r\n")[0] + b"\r\nTransfer-Encoding: chunked" + end)
        try:
            async with aclosing(answer.body) as pieces:
                async for piece in pieces:
                    if not await self._has_taken_what_was_written():
                        return
                    self.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        except Exception:
            log.warning("a response in pieces was broken off", exc_info=True)
            self.abort()
            return
        self.write(b"0\r\n\r\n")
        if self.is_ending:
            self.close()
        else:
            self.stay_open()

    async def _has_taken_what_was_written(self) -> bool:
        """Wait until the client has read enough. False: it has gone, or reads nothing."""
        until_s, pause_s = asyncio.get_running_loop().time() + patience_s(), SHORTEST_PAUSE_S
        while self.is_open and self.is_write_paused:
            if asyncio.get_running_loop().time() > until_s:
                self.abort()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return self.is_open

    # ---- What each server has its own way for

    @property
    @abstractmethod
    def head(self) -> tuple[str, Mapping[str, str], str]:
        """Target, headers by their names in small letters, and address of the client of the request that comes in."""

    @property
    @abstractmethod
    def is_answering(self) -> bool:
        """Whether the application has a request to answer."""

    @property
    @abstractmethod
    def is_between_requests(self) -> bool:
        """Whether the next byte begins a request, none is under way, and its answer could be sent at once."""

    @property
    @abstractmethod
    def is_open(self) -> bool: ...

    @property
    @abstractmethod
    def is_write_paused(self) -> bool:
        """Whether the client has to read first."""

    @abstractmethod
    def parse(self, data: bytes) -> None:
        """Take bytes that the lane leaves to the server."""

    @abstractmethod
    def frame_of(self, answer: Answer) -> tuple[bytes, bytes]:
        """Return the bytes of an answer before and after its length, as the server writes them."""

    @abstractmethod
    def say_last(self, answer: bytes) -> None:
        """Write an answer in place of the application's, and nothing after it."""

    @abstractmethod
    def mark_last(self) -> None:
        """Say in the answer to the request at hand that the connection closes."""

    @abstractmethod
    def stay_open(self) -> None:
        """Begin to wait for the next request."""

    @abstractmethod
    def write(self, data: bytes) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Close it when everything is written."""

    @abstractmethod
    def abort(self) -> None:
        """Close it at once."""

    @abstractmethod
    def pause_reading(self) -> None: ...

    @abstractmethod
    def resume_reading(self) -> None: ...


class Watch:
    """Looks for clients that hardly send what they have begun: each holds a connection and memory as long as it likes.

    It looks now and then, as clocks of their own would cost each request more than all connections cost a look.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, connections: Callable[[], Iterable[Connection]]) -> None:
        self._loop, self._connections = loop, connections
        self._began_s: dict[tuple[Connection, int], float] = {}
        self._look_later()

    def _look_later(self) -> None:
        self._loop.call_later(patience_s() / LOOKS, self._look)

    def _look(self) -> None:
        now_s, before = self._loop.time(), self._began_s
        self._began_s = {}
        for connection in self._connections():
            if (part := connection.due) is None:
                continue
            number, size = part
            began_s = before.get((connection, number), now_s)
            if now_s - began_s >= patience_s() + size / LEAST_RATE:
                connection.refuse_slow()
            else:
                self._began_s[connection, number] = began_s
        self._look_later()


class Reader:
    """Cuts off a client that reads nothing of what it was sent."""

    def __init__(self, cut_off: Callable[[], None]) -> None:
        self._cut_off = cut_off
        self._timer: asyncio.TimerHandle | None = None

    def pause(self) -> None:
        """No more can be written until it reads. Twisted says so again with each further write."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(patience_s(), self._cut_off)

    def resume(self) -> None:
        """It has read some, or has gone."""
        if self._timer:
            self._timer.cancel()
            self._timer = None


def patience_s() -> float:
    """How long a client may take for the head of a request, and for reading nothing of its answer."""
    seconds: float = settings.TASKSTORE_SLOW_CLIENT_SECONDS
    return seconds


class LaneConnection:
    """Decides which bytes of a connection the lane takes. The others go the long way, in their order."""

    __slots__ = ("_begun", "_held", "_http", "_is_asked", "_lane", "_request", "_unknown", "_when_gone")

    def __init__(self, http: Connection, lane: Lane | None) -> None:
        self._http, self._lane = http, lane
        self._unknown = b""  # The head of the request that has gone the long way.
        self._request: Request | None = None
        self._begun = b""  # Of a request whose head is known, until its body is complete.
        self._is_asked = False
        self._held = b""  # What came before the answer was sent.
        self._when_gone: Callable[[], None] | None = None  # What to do if nobody can be answered any more.

    @property
    def is_answering(self) -> bool:
        """Whether an answer is due. Bytes that come now are kept until it is sent."""
        return self._is_asked or bool(self._held)

    @property
    def begun_bytes(self) -> int:
        """Of a request that the lane has to wait for."""
        return len(self._begun)

    @property
    def has_gone(self) -> bool:
        return not self._http.is_open

    def take(self, data: bytes) -> bytes:
        """Take the bytes, if they are for the lane. Returns those that have to go the long way: all or none."""
        if self._lane is None:
            return data
        if self.is_answering:
            self._held += data
            if len(self._held) > MOST_HELD:
                self._http.pause_reading()
            return b""
        data = self.release() + data
        if not self._http.is_between_requests:
            return data
        self._unknown = b""
        end = data.find(b"\r\n\r\n", 0, LONGEST_HEAD) if data.startswith(b"POST /") else -1
        if end < 0:
            return data
        request = self._lane.find(data[:end])
        if request is None:
            self._unknown = data[:end]
            return data
        body_at = end + 4
        if len(data) < body_at + request.length:
            self._begun = data
            return b""
        self._is_asked = True  # The answer may come at once.
        # What follows another request would be read at once on the long way, where it may be refused.
        if len(data) > body_at + request.length or not self._lane.ask(request, data[body_at:], self):
            self._is_asked = False
            return data
        return b""

    def learn(self) -> None:
        """The long way has answered the first of the requests that were left to it."""
        if self._unknown and self._lane is not None:
            self._lane.learn(self._unknown)
            self._unknown = b""

    def when_gone(self, do: Callable[[], None]) -> None:
        self._when_gone = do

    def lost(self) -> None:
        if self._when_gone:
            self._when_gone()

    def answer(self, answer: Answer) -> None:
        if self._http.is_open:
            self._http.send(answer)
        self._end_answer()

    async def answer_in_pieces(self, answer: Answer) -> None:
        if self._http.is_open:
            await self._http.send_in_pieces(answer)
        self._end_answer()

    def _end_answer(self) -> None:
        self._is_asked, self._when_gone = False, None
        if self._held:
            asyncio.get_running_loop().call_soon(self._go_on)

    def release(self) -> bytes:
        """Return the beginning of a request, which has to go the long way if no more is waited for."""
        begun, self._begun = self._begun, b""
        return begun

    def _go_on(self) -> None:
        held, self._held = self._held, b""
        if self._http.is_open:
            self._http.receive(held)
            # Also when the lane has taken what was held: then nothing is held, and no other answer would come here.
            self._http.resume_reading()


class Body:
    """The body of one request while it comes in: how large it may be, and what its sender has at work with it.

    Only for bodies of more than `unchecked_bytes()`; `headers` by their names in small letters.
    """

    def __init__(self, target: str, headers: Mapping[str, str], peer: str) -> None:
        self._target, self._headers = target, headers
        self._most_bytes = most_bytes(target, headers.get("cookie", ""))
        self._charge = Charge(sender_of(headers.get("authorization", ""), peer, headers.get("x-forwarded-for", "")))

    def refusal(self, size: int) -> bytes | None:
        """Return the answer that ends the request if it may not have `size` bytes; else None."""
        if size <= self._most_bytes:
            if self._charge.raise_to(size):
                return None
            return refusal_of(HTTPStatus.TOO_MANY_REQUESTS, REASON, f"Retry-After: {RETRY_AFTER_S}\r\n")
        if not apps.ready:  # The server of another application, which has no pages of ours.
            reason = f"The request must be at most {self._most_bytes} bytes."
            return refusal_of(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
        # It needs the models, and servers know this module before them.
        from ..error_pages import too_large

        # A page for browsers, JSON for everyone else.
        response = too_large(_path_of(self._target), self._headers, self._most_bytes)
        lines = "".join(f"{name}: {value}\r\n" for name, value in response.items())
        return closing_answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, lines, response.content)

    def end(self) -> None:
        """The request is answered, or its client has gone."""
        self._charge.end()


def unchecked_bytes() -> int:
    """Return how many bytes the body of any request may have without a look at who sends it."""
    return min(LEAST_BYTES, int(settings.TASKSTORE_MAX_REQUEST_BYTES))


def most_bytes(target: str, cookies: str) -> int:
    """Return how many bytes the body of a request for this target may have.

    The API takes up to TASKSTORE_MAX_REQUEST_BYTES, and so does the import of someone who is signed in. Any other
    form of theirs may hold the largest data of a task, encoded. A form of anyone else is small.
    """
    most = int(settings.TASKSTORE_MAX_REQUEST_BYTES)
    path = _path_of(target)
    if path.strip("/").partition("/")[0] not in PAGES:
        return most
    if not is_signed_in(cookies):
        return min(FORM_BYTES, most)
    if path == UPLOAD:
        return most
    return min(FORM_BYTES + ENCODED * int(settings.TASKSTORE_MAX_DATA_BYTES), most)


def _path_of(target: str) -> str:
    """Return the path that the application sees: decoded, and without the host, if the target names one."""
    if not target.startswith("/"):
        try:
            target = urlsplit(target).path
        except ValueError:  # It is no address, and gets the smallest limit.
            return ""
    return unquote(re.split("[?#]", target, maxsplit=1)[0])


def detail(reason: str, **more: object) -> bytes:
    """The body of an answer that never reached the application."""
    return json.dumps({"detail": reason, **more}).encode()


def refusal_of(status: HTTPStatus, reason: str, headers: str = "", **more: object) -> bytes:
    """Return an answer in JSON to a request that never reached the application. The connection closes with it."""
    return closing_answer(status, f"Content-Type: application/json\r\n{headers}", detail(reason, **more))


def not_http() -> bytes:
    """Return the answer to bytes that are not HTTP."""
    return refusal_of(HTTPStatus.BAD_REQUEST, "The request must be valid HTTP/1.1.", errors=NOT_HTTP)


def long_head() -> bytes:
    """Return the answer to a request line and headers of more than MOST_HEAD_BYTES."""
    reason = f"Request line and headers must be at most {MOST_HEAD_BYTES} bytes together."
    return refusal_of(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, reason)


def crowded() -> bytes:
    """Return the answer to a connection for which there is no room."""
    reason = "All connections are in use: try again later."
    return refusal_of(HTTPStatus.SERVICE_UNAVAILABLE, reason, f"Retry-After: {RETRY_AFTER_S}\r\n")


def closing_answer(status: HTTPStatus, headers: str, body: bytes) -> bytes:
    """Return the bytes of a whole answer after which the connection closes."""
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\n{headers}"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
