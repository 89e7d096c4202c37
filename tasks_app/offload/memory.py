"""Memory that a large request has taken, and that nobody else gets until it is given back."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from contextlib import suppress

LATER_S = 1.0
# Of glibc's mallopt(3).
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
AT_ONCE_BYTES = 2**20


def give_back_at_once() -> None:
    """Have the C library return large pieces of memory to the system as soon as they are free.

    By itself it learns from the first large request to keep up to 64 MiB for further ones, in the memory of each
    thread, where no later call can reach it.
    """
    with suppress(AttributeError, OSError):  # Other C libraries than glibc have no such call.
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, AT_ONCE_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, AT_ONCE_BYTES)


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
    with suppress(RuntimeError):  # A server that is ending has closed its threads, and gives all its memory back.
        loop.run_in_executor(None, give_back)
