"""Beside the writer of each server process: goes on with operations that no other process is at."""

from __future__ import annotations

import asyncio
import logging
import threading

from django.db import Error, connections

from ..errors import TaskStoreError
from ..models import BulkOperation, Task
from .running import run

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5


class Runner:
    """At work from its making until it is stopped, on the loop that runs now."""

    is_busy = False  # Nobody waits: what it leaves another process goes on with.

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._work = asyncio.ensure_future(asyncio.to_thread(look_for_work, self._stop))

    def end(self) -> None:
        """What is not done is for another process, or for the next server."""
        self._stop.set()

    async def ended(self) -> None:
        await self._work


def look_for_work(stop: threading.Event) -> None:
    """Run what is to be run, until `stop`. In a thread of its own."""
    try:
        while not stop.wait(LOOK_EVERY_S):
            go_on(stop)
    finally:
        # No request ends in this thread, which is when Django would let go of the connection.
        connections.close_all()


def go_on(stop: threading.Event) -> None:
    try:
        for operation_id in waiting_operations():
            run(operation_id, stop=stop, is_considerate=True)
    except (Error, TaskStoreError) as error:
        log.warning("bulk operations wait for the database: %s", error)
        connections.close_all()  # The next time opens new ones.


def waiting_operations() -> list[int]:
    """Those that have not ended and that nobody is at, the oldest first."""
    running = BulkOperation.objects.filter(state=BulkOperation.State.RUNNING, held_until_ms__lt=Task.objects.now_ms())
    return list(running.order_by("pk").values_list("pk", flat=True))
