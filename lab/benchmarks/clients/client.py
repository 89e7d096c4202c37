"""What every contender's client can do, and the two ways to keep many of them busy."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from typing import Any, TypeVar

from ..pace import Load, Verb
from .sample import Notes, Sample, Window

T = TypeVar("T")
# Called when the worker is connected: waits for the others, and tells when to work.
WaitForStart = Callable[[], Window]


class Party(ABC):
    """Who takes part. Each method is called in a process of its own, which has nothing open yet."""

    def __init__(self, load: Load, where: dict[str, Any]) -> None:
        self.load = load
        self.where = where  # What the place says of itself: addresses, tokens, ...

    @abstractmethod
    def prepare(self) -> None:
        """Make what has to be there before any task is added."""


class Client(Party):
    """One that claims and deletes tasks itself."""

    @property
    def processes(self) -> int:
        """How many of them share the clients of the load."""
        return 1

    @abstractmethod
    def add(self, tasks: int) -> None:
        """Add tasks that can be claimed at once; how fast does not matter."""

    @abstractmethod
    def work(self, number: int, wait_for_start: WaitForStart) -> Sample:
        """Do the share of process `number` until the window ends, or nothing is left to claim."""


class AsyncClient(Client):
    """Many clients on one event loop."""

    def work(self, number: int, wait_for_start: WaitForStart) -> Sample:
        return run(self._work(self.owners(number), wait_for_start))

    def owners(self, number: int) -> Sequence[int]:
        return range(1 + number, self.load.clients + 1, self.processes)

    async def _work(self, owners: Sequence[int], wait_for_start: WaitForStart) -> Sample:
        await self.open(owners)
        notes = Notes(wait_for_start())
        await asyncio.gather(*(self._keep_busy(owner, notes) for owner in owners))
        sample = notes.end()
        await self.close()
        return sample

    async def _keep_busy(self, owner: int, notes: Notes) -> None:
        for turn in count():
            asked_s = await self._turn(owner, turn, notes)
            if not notes.is_open:
                return
            ids = await self.claim(owner)
            claimed_s = time.monotonic()
            if not ids:
                notes.sample.has_run_dry = True
                return
            if self.load.verb is not Verb.CLAIM:
                await self.finish(owner, ids)
            notes.done(asked_s, claimed_s, len(ids))

    async def _turn(self, owner: int, turn: int, notes: Notes) -> float:
        """Wait until this client may start its next cycle. Return the moment from which its claim is timed."""
        if not self.load.rate:
            return time.monotonic()
        # The clients take turns. One that is late because its last cycle took long has waited since its turn.
        due_s = notes.started_s + (turn * self.load.clients + owner - 1) / self.load.rate
        if (ahead_s := due_s - time.monotonic()) <= 0:
            return due_s
        await asyncio.sleep(ahead_s)
        return time.monotonic()  # The event loop's timers are late by up to a millisecond.

    @abstractmethod
    async def open(self, owners: Sequence[int]) -> None:
        """Connect, for each of these clients."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def claim(self, owner: int) -> Sequence[Any]:
        """Claim as many tasks as the load says; nothing when there are none."""

    @abstractmethod
    async def finish(self, owner: int, tasks: Sequence[Any]) -> None:
        """Delete them."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the fastest event loop there is, so that the load generator does not measure itself."""
    try:
        from uvloop import new_event_loop
    except ModuleNotFoundError:
        new_event_loop = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)
