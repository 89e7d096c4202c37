"""The side of the fast lane that is part of a connection, the same for daphne's and uvicorn's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # Servers of other applications do without: it needs the models.
    from tasks_app.rest_api.hot_path import Answer
    from tasks_app.rest_api.lane import Lane, Request

LONGEST_HEAD = 1_024  # With its end. Longer ones are not known to the lane.
MOST_HELD = 16 * 2**10  # Bytes of what follows a request that is not answered yet: beyond that nothing is read.


class HttpConnection(Protocol):
    """A connection as its server has it."""

    @property
    def is_between_requests(self) -> bool:
        """Whether the next byte begins a request, none is under way, and its answer could be sent at once."""

    @property
    def is_open(self) -> bool: ...

    def receive(self, data: bytes) -> None:
        """As if the client had sent it just now."""

    def send(self, answer: Answer) -> None:
        """Send an answer in one piece."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class LaneConnection:
    """Decides which bytes of a connection the lane takes. The others go the long way, in their order."""

    __slots__ = ("_begun", "_held", "_http", "_is_asked", "_lane", "_request", "_unknown")

    def __init__(self, http: HttpConnection, lane: Lane | None) -> None:
        self._http, self._lane = http, lane
        self._unknown = b""  # The head of the request that has gone the long way.
        self._request: Request | None = None
        self._begun = b""  # Of a request whose head is known, until its body is complete.
        self._is_asked = False
        self._held = b""  # What came before the answer was sent.

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

    def answer(self, answer: Answer) -> None:
        self._is_asked = False
        if self._http.is_open:
            self._http.send(answer)
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
