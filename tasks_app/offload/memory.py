"""Memory that a large request has taken, and that nobody else gets until it is given back."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from contextlib import suppress

LATER_S = 1.0


def give_back() -> None:
    """Return free memory to the system.

    The body of a refused request is often part of a reference cycle, with the exception and its traceback, and would
    stay until a full collection. What was there when the server started is frozen, so this takes milliseconds. Then the
    C library is told to return what is free; it keeps tens of megabytes otherwise.
    """
    gc.collect()
    with suppress(AttributeError, OSError):  # Other C libraries than glibc have no such call.
        ctypes.CDLL(None).malloc_trim(0)


_loops: set[asyncio.AbstractEventLoop] = set()  # That will do it soon.


def give_back_soon() -> None:
    """The same a moment later and in a thread, once for all requests until then. Without an event loop: nothing."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    if loop not in _loops:
        _loops.add(loop)
        loop.call_later(LATER_S, _give_back_in_a_thread, loop)


def _give_back_in_a_thread(loop: asyncio.AbstractEventLoop) -> None:
    _loops.discard(loop)
    loop.run_in_executor(None, give_back)
