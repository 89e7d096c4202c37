"""SIGTERM and SIGINT: the first stops a worker, the second ends its process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopping_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """`stop` has to be what a signal handler may call. Only the main thread hears signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def hear(number: int, _frame: object) -> None:
        heard.append(number)
        if len(heard) > 1:
            os._exit(128 + number)
        stop()

    before = [signal.signal(number, hear) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)
