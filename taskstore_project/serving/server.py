"""How a server begins and ends, whichever it is: daphne in one process (`up`), or uvicorn in several (`serve`)."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from django.conf import settings

from tasks_app.writer.peers import readiness
from tasks_app.writer.writer import Writer

from .connection import Connection, Watch, crowded

if TYPE_CHECKING:
    from tasks_app.rest_api.lane import Lane

GRACE_S = 1.0  # Connections in use learn with their next answer that the server goes; then idle ones are closed.
PATIENCE_S = 7.5  # For the answers that are being made: the process has to be gone within ten seconds.
LOOK_EVERY_S = 0.02
KEPT_FILES = 150
LAST_WORDS_S = 0.3  # For what is cancelled when the patience is at its end.


class Lifecycle(ABC):
    """Serves on a socket that listens already, with the writer beside it, until SIGTERM or Ctrl-C.

    `has_cut_off` says afterwards whether some answers were not ready when the patience was at its end.
    """

    has_cut_off = False
    _must_hurry = False
    _writer: Writer | None = None

    def __init__(
        self,
        listener: socket.socket,
        ready_callable: Callable[[], None],
        start_writer: Callable[[], Writer | None],
        *,
        lane: Lane | None = None,  # The application's, if it has one.
        can_hurry: bool = True,  # Whether a second signal means "at once".
    ) -> None:
        self.lane = lane
        self.listener = listener
        self._say_ready = ready_callable
        self._start_writer = start_writer
        self._can_hurry = can_hurry
        self._must_end = asyncio.Event()

    @property
    def is_ending(self) -> bool:
        return self._must_end.is_set()

    def end(self) -> None:
        """Accept no more, finish what is being answered, and let `run` return. Asked a second time: at once."""
        self._must_hurry = self.is_ending
        self._must_end.set()

    async def live(self) -> None:
        """From the first connection to the last."""
        loop = asyncio.get_running_loop()
        end_on_signals(loop, self.end, can_hurry=self._can_hurry)
        self._writer = self._start_writer()
        await self.accept()
        Watch(loop, self.http_connections)
        self._say_ready()
        await self._must_end.wait()
        self.stop_accepting()
        for connection in self.http_connections():
            connection.end_after_answer()
        if self._writer:
            self._writer.end_waiting()
        began_s = loop.time()
        while self._is_busy() and not self._must_hurry and loop.time() < began_s + PATIENCE_S:
            self.close_websockets()
            if loop.time() > began_s + GRACE_S:
                for connection in self.http_connections():
                    connection.close_if_idle()
            await asyncio.sleep(LOOK_EVERY_S)
        self.has_cut_off = self._is_busy()
        # When something is cut off the writer would wait for the same thing as that.
        if self._writer and not self.has_cut_off:
            try:
                async with asyncio.timeout_at(max(began_s + PATIENCE_S, loop.time() + LAST_WORDS_S)):
                    await self._writer.stop()
            except TimeoutError:  # It has changes to finish that nobody waits for, and somebody holds the database.
                self.has_cut_off = True
        await self.cancel_what_is_left()

    def _is_busy(self) -> bool:
        return self.is_busy() or bool(self._writer and self._writer.has_busy_companions)

    async def cancel_what_is_left(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=LAST_WORDS_S)

    def admit(self, connection: Connection, descriptor: int) -> None:
        """Keep some of the files that this process may open for the database and whatever a request needs.

        An idle connection is closed for a new one, rather one that was never used. Without any, the new one is refused.
        The system gives out the lowest free number, so that of the new connection tells how many files are open.
        """
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        kept = max(most // 4, min(KEPT_FILES, most // 2))
        if descriptor < most - kept:
            return
        idle = [each for each in self.http_connections() if each.is_idle and each is not connection]
        if idle:
            next((each for each in idle if each.is_unused), idle[0]).close()
        elif descriptor < most - kept // 2:
            connection.refuse(crowded())
        else:
            connection.abort()  # A refused one would stay for a while, until its client has read why.

    # ---- What each server has its own way for

    @abstractmethod
    async def accept(self) -> None:
        """Accept connections from now on."""

    @abstractmethod
    def stop_accepting(self) -> None: ...

    @abstractmethod
    def http_connections(self) -> Sequence[Connection]:
        """Return the open ones, without websockets."""

    @abstractmethod
    def is_busy(self) -> bool:
        """Whether a connection is open or the application is at work. An answer is out when its last byte is."""

    @abstractmethod
    def close_websockets(self) -> None:
        """Tell them to come back in a moment."""


def end_on_signals(loop: asyncio.AbstractEventLoop, end: Callable[[], None], *, can_hurry: bool) -> None:
    """Call it some time after SIGTERM or Ctrl-C; not beside the main thread, where Python tells nobody of signals.

    `can_hurry`: whether a second signal means "at once".
    """
    if threading.current_thread() is threading.main_thread():
        drain = Drain(loop, end, can_hurry=can_hurry)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, drain.begin)


class Drain:
    """Between the word to end and the end itself: the server is not ready any more, and serves nevertheless.

    So a proxy that asks `/readyz` sends the next requests elsewhere before this server refuses one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, end: Callable[[], None], *, can_hurry: bool) -> None:
        self._loop = loop
        self._end = end
        self._can_hurry = can_hurry
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Asked a second time: without the wait."""
        if not readiness.is_withdrawn:
            readiness.withdraw()
            if settings.TASKSTORE_DRAIN_SECONDS:
                self._timer = self._loop.call_later(settings.TASKSTORE_DRAIN_SECONDS, self._end)
                return
        elif not self._can_hurry:
            return
        if self._timer:
            self._timer.cancel()
        self._end()
