"""What both servers keep to: daphne's in `server`, and uvicorn's in `serving`, whose processes do without daphne."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Callable
from http import HTTPStatus

from django.conf import settings

from tasks_app.writer.readiness import readiness

GRACE_S = 1.0  # Connections in use learn with their next answer that the server goes; then idle ones are closed.
PATIENCE_S = 7.5  # For the answers that are being made: the process has to be gone within ten seconds.
LINGER_S = 10  # How long a refused body is read and thrown away.

MOST_HEAD_BYTES = 32 * 1024  # Request line and headers; a claim of a thousand ids fits.
NOT_HTTP = {"request": ["must be valid HTTP/1.1"]}  # What is wrong, as the API tells it.
MOST_SOCKET_BYTES = 64 * 1024  # Pages send a word or two over their socket.


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
            self._begin_wait()
        elif self._can_hurry:
            self._end_now()

    def _begin_wait(self) -> None:
        if settings.TASKSTORE_DRAIN_SECONDS:
            self._timer = self._loop.call_later(settings.TASKSTORE_DRAIN_SECONDS, self._end)
        else:
            self._end_now()

    def _end_now(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._end()


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


def closing_answer(status: HTTPStatus, headers: str, body: bytes) -> bytes:
    """Return the bytes of a whole answer after which the connection closes."""
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\n{headers}"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
