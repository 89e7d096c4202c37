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

from .helper_process import helper

P = ParamSpec("P")
T = TypeVar("T")

_working = ThreadPoolExecutor(2, "beside-the-loop")
_writing = ThreadPoolExecutor(1, "writer")
_asking = ThreadPoolExecutor(1, "asking-the-helper")  # The helper does one thing at a time.


async def beside_the_loop(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do the work in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_working, partial(work, *args, **kwargs))


async def by_the_writer(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same, in a thread that waits for nobody else's work."""
    return await asyncio.get_running_loop().run_in_executor(_writing, partial(work, *args, **kwargs))


async def by_the_helper(work: Callable[..., Any], *args: Any) -> list[Any]:
    """Do the work in the other process. See `Helper.run`."""
    return await asyncio.get_running_loop().run_in_executor(_asking, partial(helper.run, work, *args))
