"""Threads for work on many things, which would keep an event loop from everybody else.

Of our own: whoever looks up tokens or reads lists in the loop's usual threads does not wait behind this. Such work is
to consist of many short steps in Python, between which the interpreter turns to others every few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections

from .helper_process import helper

P = ParamSpec("P")
T = TypeVar("T")

_working = ThreadPoolExecutor(2, "beside-the-loop")
_writing = ThreadPoolExecutor(1, "writer")
_asking = ThreadPoolExecutor(1, "asking-the-helper")  # The helper does one thing at a time.


async def beside_the_loop(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Compute something in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_working, partial(work, *args, **kwargs))


async def in_a_database_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do work on the database in a thread other than the one that pages share, as it may take long."""

    def done() -> T:
        try:
            return work(*args, **kwargs)
        finally:
            # Django closes connections at the end of a request, and this thread serves none.
            connections.close_all()

    return await sync_to_async(done, thread_sensitive=False)()


async def by_the_writer(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Compute something in a thread that waits for nobody else's work."""
    return await asyncio.get_running_loop().run_in_executor(_writing, partial(work, *args, **kwargs))


async def by_the_helper(work: Callable[..., Any], *args: Any) -> list[Any]:
    """Do the work in the other process. See `Helper.run`."""
    return await asyncio.get_running_loop().run_in_executor(_asking, partial(helper.run, work, *args))
