"""What every contender's client can do: claim and delete tasks, many at the same time on one event loop."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Coroutine, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

from lab.testing.processes import cpu_by_process, memory_mb

from ..figures import percentile
from ..pace import Load, Verb

T = TypeVar("T")

ADDER = 0  # The client that adds what the others claim.
CHUNK = 1_000  # Tasks in a commit that adds many.


class Client(ABC):
    """`where`: the addresses of the database and of the server, and the server's token."""

    def __init__(self, load: Load, where: Mapping[str, str]) -> None:
        self.load, self.where = load, where
        self._has_run_dry = False  # There was nothing left to claim.
        self._tasks = self._taken = 0  # Finished while it counts, and in all.
        self._last_s = 0.0  # When the last task was finished.
        self._claims_ms: list[float] = []

    async def prepare(self) -> None:  # noqa: B027 - most places have made it.
        """Make what has to be there before any task is added."""

    async def add(self, tasks: int) -> None:
        """Add tasks that can be claimed at once; how fast does not matter."""
        await self.open([ADDER])
        for start in range(0, tasks, CHUNK):
            await self.put(min(CHUNK, tasks - start))
        await self.close()

    @abstractmethod
    async def put(self, tasks: int) -> None:
        """Add tasks in one commit, as ADDER."""

    @abstractmethod
    async def open(self, owners: Sequence[int]) -> None:
        """Connect, for each of these owners."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def claim(self, owner: int) -> Sequence[Any]:
        """Claim as many tasks as the load says; nothing when there are none."""

    @abstractmethod
    async def finish(self, owner: int, tasks: Sequence[Any]) -> None:
        """Delete them."""

    async def work(
        self, lead_s: float, seconds: float, watched: Mapping[str, int], strangers: Collection[int]
    ) -> dict[str, Any]:
        """Work for so long before it counts and then for so long, or until nothing is left to claim.

        `watched`: processes whose processor time is measured too, by name; `strangers`: those of their children that
        are left out.
        """
        owners = range(1, self.load.clients + 1)
        await self.open(owners)
        gc.freeze()  # What is there already is no garbage to look for.
        self._began_s = time.monotonic()
        self._from_s = self._began_s + lead_s
        self._until_s = self._from_s + seconds
        at_work = [self._keep_busy(owner) for owner in owners]
        cores, *_ = await asyncio.gather(self._cores({"client": os.getpid(), **watched}, strangers), *at_work)
        await self.close()
        # One that has run dry is judged by the time that it worked.
        worked_s = max((self._last_s if self._has_run_dry else self._until_s) - self._from_s, 0.001)
        return {
            "taken": self._taken,
            "has_run_dry": self._has_run_dry,
            "per_second": self._tasks / worked_s,
            "mean_ms": sum(self._claims_ms) / max(len(self._claims_ms), 1),
            "p50_ms": percentile(self._claims_ms, 50),
            "p99_ms": percentile(self._claims_ms, 99),
            "cores": cores,
            "memory_mb": memory_mb(watched.get("server", os.getpid())),
        }

    async def _cores(self, watched: Mapping[str, int], strangers: Collection[int]) -> dict[str, float]:
        """Return how many cores each used while it counted."""

        async def used_at(moment_s: float) -> dict[str, float]:
            await asyncio.sleep(moment_s - time.monotonic())
            return await asyncio.to_thread(lambda: {name: used_s(pid, strangers) for name, pid in watched.items()})

        before_s, after_s = await used_at(self._from_s), await used_at(self._until_s)
        return {name: (after_s[name] - before_s[name]) / (self._until_s - self._from_s) for name in watched}

    async def _keep_busy(self, owner: int) -> None:
        for turn in count():
            asked_s = await self._turn(owner, turn)
            if self._has_run_dry or time.monotonic() >= self._until_s:
                return
            ids = await self.claim(owner)
            claimed_s = time.monotonic()
            if not ids:
                self._has_run_dry = True
                return
            if self.load.verb is not Verb.CLAIM:
                await self.finish(owner, ids)
            self._last_s = time.monotonic()
            self._taken += len(ids)
            if self._from_s <= self._last_s < self._until_s:
                self._tasks += len(ids)
                self._claims_ms.append((claimed_s - asked_s) * 1000)

    async def _turn(self, owner: int, turn: int) -> float:
        """Wait until this owner may start its next cycle. Return the moment from which its claim is timed."""
        if not self.load.rate:
            return time.monotonic()
        # The owners take turns. One that is late because its last cycle took long has waited since its turn.
        due_s = self._began_s + (turn * self.load.clients + owner - 1) / self.load.rate
        if (ahead_s := due_s - time.monotonic()) <= 0:
            return due_s
        await asyncio.sleep(ahead_s)
        return time.monotonic()  # The event loop's timers are late by up to a millisecond.


def used_s(pid: int, strangers: Collection[int]) -> float:
    """Return the processor time of a process with its children."""
    # The time of a child that has ended is in its parent's figure now.
    return sum(seconds for each, seconds in cpu_by_process(pid).items() if each not in strangers)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the fastest event loop there is, so that the load generator does not measure itself."""
    try:
        from uvloop import new_event_loop
    except ModuleNotFoundError:
        new_event_loop = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)
