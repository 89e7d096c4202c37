"""What has to wait for the database by itself, beside the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections

P = ParamSpec("P")
T = TypeVar("T")


async def beside_the_loop(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do the work in a thread. Not in the one that pages share: it may take long."""

    def done() -> T:
        try:
            return work(*args, **kwargs)
        finally:
            # No request ends in this thread, which is when Django would let go of the connection.
            connections.close_all()

    return await sync_to_async(done, thread_sensitive=False)()
