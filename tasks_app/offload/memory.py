"""Memory that a large request has taken, and that nobody else gets until it is given back."""

from __future__ import annotations

import asyncio
import ctypes
from contextlib import suppress

LATER_S = 1.0


def give_back() -> None:
    """Let the C library return to the system what is free; it keeps tens of megabytes otherwise."""
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
