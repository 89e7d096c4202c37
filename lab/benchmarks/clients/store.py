"""What this store can do beyond claiming and deleting, by whichever way in: claims that wait."""

from __future__ import annotations

import asyncio
import os
import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from lab.testing.processes import memory_mb

from .client import Client, run

ADDER = 0  # The client that adds what the others wait for.
CHUNK = 1_000  # Tasks in a commit that adds many.
WAIT_MS = 60_000
PARKED_PER_SECOND = 1_000  # Fewer than any server takes in.


class StoreClient(Client):
    """A way into the store."""

    @abstractmethod
    async def claim(self, owner: int, wait_ms: int = 0) -> Sequence[int]: ...

    @abstractmethod
    async def put(self, tasks: int) -> None:
        """Add tasks in one commit, as ADDER."""

    def add(self, tasks: int) -> None:
        run(self._add(tasks))

    async def _add(self, tasks: int) -> None:
        await self.open([ADDER])
        await self._put_all(tasks)
        await self.close()

    async def _put_all(self, tasks: int) -> None:
        for start in range(0, tasks, CHUNK):
            await self.put(min(CHUNK, tasks - start))

    def waiters(self, number: int) -> dict[str, float]:
        """What many claims that wait cost, and how long it takes to wake all of them."""
        return run(self._waiters(number))

    async def _waiters(self, number: int) -> dict[str, float]:
        servers = self.where["servers"]
        server = servers[0]["pid"] if servers else os.getpid()
        await self.open([ADDER])
        before_mb = memory_mb(server)
        await self.open(range(1, number + 1))
        waiting = [asyncio.create_task(self._claim_and_look_at_clock(owner)) for owner in range(1, number + 1)]
        await asyncio.sleep(2 + number / PARKED_PER_SECOND)
        waiting_mb = memory_mb(server)
        sent_s = time.monotonic()
        await self._put_all(number)
        answers = await asyncio.gather(*waiting)
        await self.close()
        return {
            "kb_each": (waiting_mb - before_mb) * 1024 / number,
            "all_woken_s": max(answered_s for _, answered_s in answers) - sent_s,
            "unanswered": sum(1 for ids, _ in answers if not ids),
            "twice": sum(len(ids) for ids, _ in answers) - len({task_id for ids, _ in answers for task_id in ids}),
        }

    async def _claim_and_look_at_clock(self, owner: int) -> tuple[Sequence[Any], float]:
        ids = await self.claim(owner, WAIT_MS)
        return ids, time.monotonic()
