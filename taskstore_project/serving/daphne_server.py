"""The server: daphne in this process, and how it ends without cutting an answer off."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

# Compiled checks for long messages over websockets, of which pages send none: to get them ready is a twentieth of a
# start. Autobahn reads this when it is imported.
os.environ.setdefault("AUTOBAHN_USE_NVX", "0")

import daphne.server
from daphne.server import reactor, twisted_loop
from daphne.ws_protocol import WebSocketFactory
from twisted.logger import STDLibLogObserver, globalLogBeginner

from tasks_app.writer.writer import Writer

from . import sd_notify
from .daphne_protocol import Factory, Request, Socket
from .http_limits import GRACE_S, MOST_SOCKET_BYTES, PATIENCE_S, end_on_signals
from .slow_clients import Watch, patience_s

if TYPE_CHECKING:
    from tasks_app.rest_api.lane import Lane

LAST_WORDS_S = 0.3  # For what is cancelled when the patience is at its end.

BODY_AT_ONCE = 2**20  # Bytes that the application gets of a body: eight thousand parts of the largest take too long.

SERVICE_RESTART = 1012  # The websocket's close code: come back in a moment.


class Server(daphne.server.Server):  # type: ignore[misc]
    """Serves an application on a socket that listens already, until SIGTERM or Ctrl-C.

    `has_cut_off` says afterwards whether some answers were not ready when the patience was at its end.
    """

    def __init__(
        self,
        application: Any,
        listener: socket.socket,
        ready_callable: Callable[[], None],
        start_writer: Callable[[], Writer | None],
        *,
        lane: Lane | None = None,  # The application's, if it has one.
    ) -> None:
        super().__init__(
            application,
            endpoints=[f"fd:fileno={listener.fileno()}"],
            ready_callable=ready_callable,
            server_name="taskstore",
            request_buffer_size=BODY_AT_ONCE,
        )
        self.has_cut_off = False
        self.lane = lane
        self._listener = listener
        self._start_writer = start_writer
        self._writer: Writer | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._problem: Exception | None = None  # For which it could not begin.

    def run(self) -> None:
        # Not daphne's own: it leaves no choice of the factory, looks through all packages for plugins,
        # and its end cuts off what is being answered.
        asyncio.set_event_loop(twisted_loop)
        # What goes wrong inside is a line on standard error, as everywhere.
        globalLogBeginner.beginLoggingTo([STDLibLogObserver("twisted")], redirectStandardIO=False)
        self.connections: dict[Any, dict[str, Any]] = {}
        self.http_factory = Factory(self)
        self.ws_factory = self._websockets()
        self._port = self._adopted_port()
        reactor.callLater(1, self.application_checker)
        reactor.callLater(2, self.timeout_checker)
        Watch(twisted_loop, lambda: self.http_factory.channels)
        end_on_signals(twisted_loop, self.end, can_hurry=True)
        twisted_loop.call_soon(self._begin)
        reactor.run(installSignalHandlers=False)
        if self._problem:
            raise self._problem

    def end(self) -> None:
        """Accept no more, finish what is being answered, and let `run` return. Asked a second time: at once."""
        if self._stopping is None:
            sd_notify.tell(sd_notify.STOPPING)
            self._stopping = asyncio.ensure_future(self._end())
        else:
            self._stopping.cancel()

    def _begin(self) -> None:
        try:
            self._writer = self._start_writer()  # Not before the loop runs: the writer belongs to it.
        except Exception as problem:
            self._problem = problem
            reactor.stop()
        else:
            self.ready_callable()

    async def handle_reply(self, protocol: Any, message: dict[str, Any]) -> None:
        if isinstance(protocol, Socket) and message["type"] == "websocket.close" and protocol.takes_messages:
            # Daphne forgets the reason.
            protocol.sendClose(code=message.get("code") or 1000, reason=message.get("reason"))
            return
        await super().handle_reply(protocol, message)
        if isinstance(protocol, Request | Socket):
            try:
                await protocol.flow.room(patience_s())
            except TimeoutError:
                protocol.cut_off()

    def _websockets(self) -> WebSocketFactory:
        factory = WebSocketFactory(self, server=self.server_name)
        factory.protocol = Socket
        factory.setProtocolOptions(
            autoPingTimeout=self.ping_timeout,
            allowNullOrigin=True,  # Who may come in is for the application.
            openHandshakeTimeout=self.websocket_handshake_timeout,
            maxMessagePayloadSize=MOST_SOCKET_BYTES,
            maxFramePayloadSize=MOST_SOCKET_BYTES,
        )
        return factory

    def _adopted_port(self) -> Any:
        self._listener.setblocking(False)
        port = reactor.adoptStreamPort(self._listener.fileno(), self._listener.family, self.http_factory)
        # Twisted has a copy; this one would keep the port open to the last.
        self._listener.close()
        return port

    async def _end(self) -> None:
        try:
            self._stop_accepting()
            if self._writer:
                self._writer.end_waiting()
            await self._see_answers_out()
        finally:
            self.has_cut_off = self._is_busy()
            # When something is cut off the writer would wait for the same thing as that.
            if self._writer and not self.has_cut_off:
                await self._writer.stop()
            await self._cancel_what_is_left()
            reactor.stop()

    def _stop_accepting(self) -> None:
        self.http_factory.end_after_answers()
        # Those who are through the system's handshake already would be cut off.
        self._port.doRead()
        self._port.stopListening()

    async def _see_answers_out(self) -> None:
        started_s = twisted_loop.time()
        while self._is_busy() and twisted_loop.time() < started_s + PATIENCE_S:
            self._close_websockets()
            if twisted_loop.time() > started_s + GRACE_S:
                self.http_factory.close_idle()
            await asyncio.sleep(0.02)

    def _is_busy(self) -> bool:
        # Connections too: an answer is out when its last byte is.
        return bool(self.http_factory.channels) or any(self._unanswered())

    def _unanswered(self) -> Iterator[bool]:
        yield from (not work.done() for work in self._applications())
        if self._writer:
            yield self._writer.has_busy_companions

    def _applications(self) -> Iterator[asyncio.Future[Any]]:
        for details in self.connections.values():
            if "application_instance" in details:
                yield details["application_instance"]

    def _close_websockets(self) -> None:
        for protocol in list(self.connections):
            if isinstance(protocol, Socket) and protocol.takes_messages:
                # Not sendClose(): that refuses codes which only a server may send.
                protocol.sendCloseFrame(code=SERVICE_RESTART)

    async def _cancel_what_is_left(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=LAST_WORDS_S)
