"""uvicorn, which `serve` runs in each worker process: what it needs beyond `connection` and `server`."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from .connection import MOST_HEAD_BYTES, MOST_SOCKET_BYTES, Connection, Reader, long_head, not_http
from .server import Lifecycle

if TYPE_CHECKING:
    from tasks_app.rest_api.hot_path import Answer
    from tasks_app.rest_api.lane import Lane


class FollowsReader(asyncio.Protocol):
    """Uvicorn waits for a client that does not read; one that never does is cut off here."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._reader = Reader(lambda: reset(self.transport))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reader.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reader.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._reader.resume()  # Its descriptor may be another connection's soon.


class Socket(FollowsReader, WebSocketsSansIOProtocol):
    """A websocket."""


class Protocol(FollowsReader, HttpToolsProtocol, Connection):
    """A connection."""

    def __init__(
        self,
        *args: Any,
        lane: Lane | None = None,
        admit: Callable[[Connection, int], None] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._admit = admit
        self.use(lane)
        self._is_in_request = False  # For the parser: from its first byte to its last one.
        self._body_bytes = 0
        self._answered_s = 0.0  # When the lane last sent an answer.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._admit:
            self._admit(self, transport.get_extra_info("socket").fileno())

    def data_received(self, data: bytes) -> None:
        self.receive(data)
        if not self._is_in_body and self._part_bytes > MOST_HEAD_BYTES:
            self.refuse(long_head())

    def parse(self, data: bytes) -> None:
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_request, self._body_bytes = True, 0

    def on_headers_complete(self) -> None:
        self.head_came()
        # Not counted header by header as they come: that would be four calls more with each request.
        if (
            len(self.url) + sum([len(name) + len(value) + len(b": \r\n") for name, value in self.headers])
            > MOST_HEAD_BYTES
        ):
            self.refuse(long_head())
        lengths = [int(value) for name, value in self.headers if name == b"content-length" and value.isdigit()]
        if self.takes_body(max(lengths, default=0)):
            super().on_headers_complete()
            if self.is_ending:
                self.mark_last()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self.body_came(self._body_bytes):
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_request = False
        self.message_came()
        if not self.is_refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self.refuse(not_http())

    def on_response_complete(self) -> None:
        self.answered()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost()

    def timeout_keep_alive_handler(self) -> None:
        # A timer for each answer of the lane would cost as much as the rest of sending it: one looks at the clock.
        self.timeout_keep_alive_task = None
        left_s = self._answered_s + self.timeout_keep_alive - self.loop.time()
        if self.lane.is_answering or self.lane.begun_bytes:
            return  # The next answer sets it again.
        if left_s > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left_s, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    # ---- Uvicorn's way for what `Connection` decides

    @property
    def head(self) -> tuple[str, Mapping[str, str], str]:
        headers = {name.decode("latin1"): value.decode("latin1") for name, value in self.headers}
        return self.url.decode("latin1"), headers, self.client[0] if self.client else ""

    @property
    def is_paused(self) -> bool:  # type: ignore[override]
        return self.flow.read_paused

    @property
    def is_answering(self) -> bool:
        return bool(self.cycle and not self.cycle.response_complete)

    @property
    def is_between_requests(self) -> bool:
        is_begun = self._is_in_request or self._part_bytes or self.is_answering or self.pipeline
        return not (is_begun or self.is_ending or self.flow.write_paused or self.transport.is_closing())

    @property
    def is_open(self) -> bool:
        return not self.transport.is_closing()

    @property
    def is_write_paused(self) -> bool:
        return self.flow.write_paused

    def frame_of(self, answer: Answer) -> tuple[bytes, bytes]:
        start = start_of(answer.status, (*self.server_state.default_headers, *answer.headers))
        return start, b"\r\nconnection: close\r\n\r\n" if self.is_ending else b"\r\n\r\n"

    def say_last(self, answer: bytes) -> None:
        if self.pipeline or (self.is_answering and self.cycle.response_started):
            self.abort()  # Whatever is said now would be taken for a part of another answer.
            return
        if self.is_answering:
            # The application learns that there is nobody to answer.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(answer)
        self.transport.write_eof()
        self.flow.resume_reading()

    def mark_last(self) -> None:
        if self.is_answering:
            self.cycle.keep_alive = False

    def stay_open(self) -> None:
        self._answered_s = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def close(self) -> None:
        self.transport.close()

    def abort(self) -> None:
        self.transport.abort()

    def pause_reading(self) -> None:
        self.flow.pause_reading()

    def resume_reading(self) -> None:
        self.flow.resume_reading()


@lru_cache(maxsize=64)
def start_of(status: int, headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """Return the bytes of an answer up to its length. Most answers of a second have the same."""
    lines = [b"%b: %b\r\n" % (name.lower(), value) for name, value in headers]
    return b"".join([STATUS_LINE[status], *lines, b"content-length: "])


def reset(transport: asyncio.Transport) -> None:
    """Cut the connection off at once."""
    # Else the system would go on offering what it has taken over already.
    with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as copy:
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class Server(Lifecycle, uvicorn.Server):
    """Serves an application, see `Lifecycle`."""

    def __init__(self, application: Any, listener: socket.socket, *args: Any, **kwargs: Any) -> None:
        Lifecycle.__init__(self, listener, *args, **kwargs)
        config = uvicorn.Config(
            application,
            loop="uvloop",
            http=partial(Protocol, lane=self.lane, admit=self.admit),  # type: ignore[arg-type]
            ws=Socket,
            ws_max_size=MOST_SOCKET_BYTES,
            lifespan="off",  # The application has none; the writer starts and stops here.
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # Who is asked to trust a proxy says so in the settings.
        )
        uvicorn.Server.__init__(self, config)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        # Not uvicorn's own: that raises the signal again at the end, which looks as if it had killed the process,
        # and its end takes no look at the writer.
        await self.live()

    async def accept(self) -> None:
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup([self.listener])
        self._clock = asyncio.ensure_future(self.main_loop())  # It keeps the time that answers have in `date`.

    def stop_accepting(self) -> None:
        for server in self.servers:
            server.close()
        self.listener.close()

    def http_connections(self) -> list[Protocol]:
        return [connection for connection in self.server_state.connections if isinstance(connection, Protocol)]

    def is_busy(self) -> bool:
        return bool(self.server_state.connections or self.server_state.tasks)

    def close_websockets(self) -> None:
        for connection in list(self.server_state.connections):
            if isinstance(connection, Socket) and not connection.transport.is_closing():
                connection.shutdown()

    async def cancel_what_is_left(self) -> None:
        # What is cancelled now would be logged with a traceback each.
        logging.getLogger("uvicorn.error").disabled = self.has_cut_off
        await super().cancel_what_is_left()
