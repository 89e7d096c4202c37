"""One reader of the counts for all viewers of this process, at work only while there are viewers.

The truth is in the database, so that many processes need no message broker between them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from channels.layers import get_channel_layer
from django.db import connections

from ..counts import group_counts
from ..models import Task
from . import messages
from .messages import Snapshot

log = logging.getLogger(__name__)

VIEWERS = "live-viewers"  # The channel layer's group; each viewer gets `live_counts`.
TICK_S = 0.25
HEARTBEAT_S = 1.0
RETRY_S = 1.0
# At most two thirds of the time are spent reading: where that takes long it is done less often.
REST_PER_READING = 0.5


def read_snapshot() -> Snapshot:
    """The counts of all groups. Raises django.db.Error when the database can't be read."""
    read_at_s = time.monotonic()
    try:
        return Snapshot(at_ms=Task.objects.now_ms(), read_at_s=read_at_s, groups=group_counts())
    finally:
        # No request ends in this thread, which is when Django would let go of a broken connection.
        connections.close_all()


class Broadcaster:
    """Reads the counts every tick and sends what has changed to the viewers.

    When the database can't be read the viewers keep what they have, see it grow old, and
    get new counts by themselves when it is back.
    """

    def __init__(self, read: Callable[[], Snapshot] = read_snapshot) -> None:
        self._read = read
        self._viewers: set[str] = set()
        self._work: list[asyncio.Task[None]] = []
        self._snapshot: Snapshot | None = None
        self._is_failing = False
        self._seq = 0

    def join(self, viewer: str) -> None:
        """Count a viewer in; the first one starts the work."""
        self._viewers.add(viewer)
        if not self._work:
            self._work = [asyncio.create_task(self._follow()), asyncio.create_task(self._beat())]

    def leave(self, viewer: str) -> None:
        """Count a viewer out; with the last one the work ends. Leaving twice does no harm."""
        self._viewers.discard(viewer)
        if self._viewers:
            return
        for task in self._work:
            task.cancel()
        self._work = []
        self._snapshot = None

    def full(self) -> list[str]:
        """The messages with all counts; none before the first reading: then they come by themselves."""
        return messages.full(self._seq, self._snapshot) if self._snapshot else []

    async def _follow(self) -> None:
        # A thread of its own: pages that wait for the database must not hold up the numbers.
        thread = ThreadPoolExecutor(1, thread_name_prefix="live")
        try:
            while True:
                rest_s = await self._tick(thread)
                await asyncio.sleep(rest_s)
        finally:
            thread.shutdown(wait=False)

    async def _tick(self, thread: ThreadPoolExecutor) -> float:
        """Read and send; returns the seconds to rest before the next reading."""
        started_s = time.monotonic()
        try:
            snapshot = await asyncio.get_running_loop().run_in_executor(thread, self._read)
        except Exception:  # Whatever it is: with the loop's end the numbers would stand still for good.
            if not self._is_failing:
                log.warning("the live counts can't be read; trying again every second", exc_info=True)
            self._is_failing = True
            return RETRY_S
        self._is_failing = False
        took_s = time.monotonic() - started_s
        await self._publish(snapshot)
        return max(TICK_S - took_s, took_s * REST_PER_READING)

    async def _publish(self, snapshot: Snapshot) -> None:
        before, self._snapshot = self._snapshot, snapshot
        if before is None:
            self._seq += 1
            await self._send(messages.full(self._seq, snapshot))
        elif changed := messages.difference(before.groups, snapshot.groups):
            self._seq += 1
            await self._send(messages.delta(self._seq, snapshot, changed))

    async def _beat(self) -> None:
        """Say regularly that the server is there, and how old the counts are."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await self._send(messages.heartbeat(self._seq, self._snapshot))

    async def _send(self, texts: list[str]) -> None:
        # Together, so that nothing comes between messages that belong together.
        await get_channel_layer().group_send(VIEWERS, {"type": "live.counts", "texts": texts})


broadcaster = Broadcaster()
