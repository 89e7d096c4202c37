"""HTTP as uvicorn speaks it, with the limits and the polite end that `up` has too."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from . import slow_clients
from .body_limits import Body, unchecked_bytes
from .http_limits import GRACE_S, LINGER_S, MOST_HEAD_BYTES, long_head, not_http
from .lane_connection import LaneConnection

if TYPE_CHECKING:
    from tasks_app.rest_api.hot_path import Answer
    from tasks_app.rest_api.lane import Lane


class Protocol(HttpToolsProtocol):
    """A connection. What is too large is refused before it is kept anywhere."""

    def __init__(self, *args: Any, lane: Lane | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lane = LaneConnection(self, lane)
        self._is_in_request = False  # For the parser: from its first byte to its last one.
        self._answered_s = 0.0  # When the lane last sent an answer.
        self._is_refused = False
        self._is_ending = False
        self._is_in_head = True
        self._ends = 0  # Of heads and of bodies, so far.
        self._begun_bytes = 0  # Of a head that is not complete yet.
        self._body_bytes = 0  # Of the request at hand.
        self._cut_off: asyncio.TimerHandle | None = None
        self._body: Body | None = None  # Of the request that comes in, once it is long enough to be checked.
        self._earlier: list[Body] = []  # Of requests that are not answered yet.

    def data_received(self, data: bytes) -> None:
        if self._is_refused or not (data := self._lane.take(data)):
            return
        ends = self._ends
        super().data_received(data)
        if not self._is_refused and self._is_in_head and ends == self._ends:
            self._begun_bytes += len(data)
            self._refuse_long_head(self._begun_bytes)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_request = self._is_in_head = True
        self._body_bytes = 0
        if self._body:
            self._earlier.append(self._body)
            self._body = None

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._ends += 1
        self._begun_bytes = 0
        self._refuse_long_head(self._head_bytes())
        self._check_body(self._announced())
        if not self._is_refused:
            super().on_headers_complete()
            if self._is_ending and self.cycle:
                self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        self._check_body(self._body_bytes)
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_request = False
        self._is_in_head = True
        self._ends += 1
        if not self._is_refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if not self._is_refused:
            self._refuse(not_http())

    def pause_writing(self) -> None:
        super().pause_writing()
        # A client that reads nothing of its answer is cut off.
        self._cut_off = self.loop.call_later(slow_clients.patience_s(), self._reset)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._spare()

    def on_response_complete(self) -> None:
        if self._earlier:
            self._earlier.pop(0).end()
        elif self._body:
            self._body.end()
        self._lane.learn()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._end_bodies()
        self._spare()  # Its descriptor may be another connection's soon.

    @property
    def due(self) -> slow_clients.Part | None:
        if self._is_refused or self.flow.read_paused or (self._is_in_head and self._is_answering):
            return None
        if self._is_in_head:
            begun_bytes = self._begun_bytes + self._lane.begun_bytes
            return (self._ends, begun_bytes) if begun_bytes or not self._ends else None
        return self._ends, self._body_bytes

    def refuse_slow(self) -> None:
        if self._ends or self._begun_bytes or self._lane.begun_bytes:
            self._refuse(slow_clients.refusal())
        else:
            self.transport.abort()  # A browser would take it for the answer to what it asks later.

    def shutdown(self) -> None:
        """The connection closes with its next answer, or after a while without a request."""
        self._is_ending = True
        if begun := self._lane.release():
            self.data_received(begun)
        if self._is_in_cycle:
            self.cycle.keep_alive = False
        else:  # Also while the lane has bytes to pass on: they may be only the beginning of a request.
            self.loop.call_later(GRACE_S, self._close_if_idle)

    @property
    def _is_in_cycle(self) -> bool:
        """Whether the application has a request to answer."""
        return bool(self.cycle and not self.cycle.response_complete)

    @property
    def _is_answering(self) -> bool:
        return self._lane.is_answering or self._is_in_cycle

    # ---- For the lane

    @property
    def is_open(self) -> bool:
        return not self.transport.is_closing()

    @property
    def is_between_requests(self) -> bool:
        is_begun = self._is_in_request or self._begun_bytes or self._is_in_cycle or self.pipeline
        return not (is_begun or self._is_ending or self.flow.write_paused or self.transport.is_closing())

    def receive(self, data: bytes) -> None:
        self.data_received(data)

    def pause_reading(self) -> None:
        self.flow.pause_reading()

    def resume_reading(self) -> None:
        self.flow.resume_reading()

    def send(self, answer: Answer) -> None:
        self._ends += 2
        self.server_state.total_requests += 1
        start = start_of(answer.status, (*self.server_state.default_headers, *answer.headers))
        end = b"\r\nconnection: close\r\n\r\n" if self._is_ending else b"\r\n\r\n"
        self.transport.write(b"%b%d%b%b" % (start, len(answer.body), end, answer.body))
        if self._is_ending:
            self.transport.close()
            return
        self._answered_s = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._close_when_idle_for(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        # A timer for each answer of the lane would cost as much as the rest of sending it: one looks at the clock.
        self.timeout_keep_alive_task = None
        left_s = self._answered_s + self.timeout_keep_alive - self.loop.time()
        if self._lane.is_answering or self._lane.begun_bytes:
            return  # The next answer sets it again.
        if left_s > 0:
            self._close_when_idle_for(left_s)
        else:
            super().timeout_keep_alive_handler()

    def _close_when_idle_for(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _spare(self) -> None:
        if self._cut_off:
            self._cut_off.cancel()

    def _reset(self) -> None:
        reset(self.transport)

    def _close_if_idle(self) -> None:
        if not self._is_answering:
            self.transport.close()

    def _head_bytes(self) -> int:
        # Not counted header by header as they come: that would be four calls more with each request.
        return len(self.url) + sum([len(name) + len(value) + len(b": \r\n") for name, value in self.headers])

    def _announced(self) -> int:
        lengths = [int(value) for name, value in self.headers if name == b"content-length" and value.isdigit()]
        return max(lengths, default=0)

    def _refuse_long_head(self, size: int) -> None:
        if size > MOST_HEAD_BYTES:
            self._refuse(long_head())

    def _check_body(self, size: int) -> None:
        if self._is_refused or size <= unchecked_bytes():
            return
        if self._body is None:
            headers = {name.decode("latin1"): value.decode("latin1") for name, value in self.headers}
            self._body = Body(self.url.decode("latin1"), headers, self.client[0] if self.client else "")
        if answer := self._body.refusal(size):
            self._refuse(answer)

    def _end_bodies(self) -> None:
        for body in (*self._earlier, self._body):
            if body:
                body.end()

    def _refuse(self, answer: bytes) -> None:
        """Answer by ourselves, take no other request, and close when the client has read it.

        What the client still sends is thrown away for a while: closing at once would
        reset the connection, and the answer would be lost with it.
        """
        self._is_refused = True
        self._end_bodies()
        is_begun = self._is_in_cycle and self.cycle.response_started
        if is_begun or self.pipeline:
            self.transport.abort()  # Whatever is said now would be taken for a part of another answer.
            return
        if self._is_in_cycle:
            # The application learns that there is nobody to answer.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(answer)
        self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(LINGER_S, self.transport.abort)


@lru_cache(maxsize=64)
def start_of(status: int, headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """Return the bytes of an answer up to its length. Most answers of a second have the same."""
    lines = [b"%b: %b\r\n" % (name.lower(), value) for name, value in headers]
    return b"".join([STATUS_LINE[status], *lines, b"content-length: "])


class Socket(WebSocketsSansIOProtocol):
    """A websocket. What is sent to it waits for a client that does not read; one that never does is cut off."""

    _cut_off: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._cut_off = self.loop.call_later(slow_clients.patience_s(), reset, self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._spare()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._spare()

    def _spare(self) -> None:
        if self._cut_off:
            self._cut_off.cancel()


def reset(transport: asyncio.Transport) -> None:
    """Cut the connection off at once."""
    # Else the system would go on offering what it has taken over already.
    with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as copy:
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
