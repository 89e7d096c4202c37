"""The server of a worker process: uvicorn, with the writer beside it and a polite end."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn

from tasks_app.writer.writer import Writer

from .http_limits import MOST_SOCKET_BYTES, PATIENCE_S, end_on_signals
from .slow_clients import Watch
from .uvicorn_protocol import Protocol, Socket

if TYPE_CHECKING:
    from tasks_app.rest_api.lane import Lane

LOOK_EVERY_S = 0.05


class Server(uvicorn.Server):
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
        can_hurry: bool = True,  # Whether a second signal means "at once".
    ) -> None:
        config = uvicorn.Config(
            application,
            loop="uvloop",
            http=partial(Protocol, lane=lane),  # type: ignore[arg-type]
            ws=Socket,
            ws_max_size=MOST_SOCKET_BYTES,
            lifespan="off",  # The application has none; the writer starts and stops here.
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # Who is asked to trust a proxy says so in the settings.
        )
        super().__init__(config)
        self.has_cut_off = False
        self._can_hurry = can_hurry
        self._listener = listener
        self._ready_callable = ready_callable
        self._start_writer = start_writer
        self._writer: Writer | None = None

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        super().run([self._listener])

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        # Not uvicorn's own: that raises the signal again at the end, which looks as if it had killed the process.
        end_on_signals(asyncio.get_running_loop(), self.end, can_hurry=self._can_hurry)
        await self._serve(sockets)

    def end(self) -> None:
        """Accept no more, finish what is being answered, and let `run` return. Asked a second time: at once."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._writer = self._start_writer()
        await super().startup(sockets)
        Watch(asyncio.get_running_loop(), self._http_connections)
        self._ready_callable()

    def _http_connections(self) -> list[Protocol]:
        return [connection for connection in self.server_state.connections if isinstance(connection, Protocol)]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._writer:
            self._writer.end_waiting()
        await super().shutdown(sockets)
        # When something is cut off the writer would wait for the same thing as that.
        if self._writer and not self.has_cut_off:
            await self._writer.stop()

    async def _wait_tasks_to_complete(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await super()._wait_tasks_to_complete()
                await self._see_companions_out()
        self.has_cut_off = bool(self.server_state.connections or self.server_state.tasks) or self._has_busy_companions
        # What is cancelled now would be logged with a traceback each.
        logging.getLogger("uvicorn.error").disabled = self.has_cut_off

    async def _see_companions_out(self) -> None:
        while self._has_busy_companions and not self.force_exit:  # noqa: ASYNC110 - a flag of uvicorn's.
            await asyncio.sleep(LOOK_EVERY_S)

    @property
    def _has_busy_companions(self) -> bool:
        return bool(self._writer and self._writer.has_busy_companions)
