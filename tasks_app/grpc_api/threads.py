"""Run database work of gRPC calls in threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections

P = ParamSpec("P")
T = TypeVar("T")


async def beside_the_loop(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do the work in a thread other than the one that pages share, as it may take long."""

    def done() -> T:
        try:
            return work(*args, **kwargs)
        finally:
            # Django closes connections at the end of a request, and this thread serves none.
            connections.close_all()

    return await sync_to_async(done, thread_sensitive=False)()
