"""Cancel tasks of the event loop for certain."""

from __future__ import annotations

import asyncio

AGAIN_S = 0.1


async def ended(*tasks: asyncio.Task[None]) -> None:
    """Cancel the tasks, and return when all of them have ended.

    Once is not enough before Python 3.12: a cancellation that comes together with what `asyncio.wait_for`
    waits for is lost, and psycopg waits for each answer with it.
    """
    left = {*tasks}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_S)
