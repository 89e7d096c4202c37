"""What both servers keep to: daphne's in `server`, and uvicorn's in `serving`, whose processes do without daphne."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Callable

GRACE_S = 1.0  # Connections in use learn with their next answer that the server goes; then idle ones are closed.
PATIENCE_S = 7.5  # For the answers that are being made: the process has to be gone within ten seconds.
LINGER_S = 10  # How long a refused body is read and thrown away.

MOST_HEAD_BYTES = 32 * 1024  # Request line and headers; a claim of a thousand ids fits.
MOST_SOCKET_BYTES = 64 * 1024  # Pages send a word or two over their socket.


def end_on_signals(loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> None:
    """Call it at SIGTERM and Ctrl-C; not beside the main thread, where Python tells nobody of signals."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)


def detail(reason: str) -> bytes:
    """The body of an answer that never reached the application."""
    return json.dumps({"detail": reason}).encode()
