"""What every contender's client can do: claim and delete tasks, many at the same time on one event loop."""

from __future__ import annotations

import asyncio
import gc
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from typing import Any, TypeVar

from ..pace import Load, Verb
from .notes import Notes, Window

T = TypeVar("T")

ADDER = 0  # The client that adds what the others claim.
CHUNK = 1_000  # Tasks in a commit that adds many.


class Client(ABC):
    def __init__(self, load: Load, where: dict[str, Any]) -> None:
        self.load = load
        self.where = where  # What the place says of itself: addresses, tokens, ...

    @abstractmethod
    def prepare(self) -> None:
        """Make what has to be there before any task is added."""

    def add(self, tasks: int) -> None:
        """Add tasks that can be claimed at once; how fast does not matter."""
        run(self._add(tasks))

    async def _add(self, tasks: int) -> None:
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

    async def work(self, lead_s: float, seconds: float, begun: Callable[[Window], None]) -> dict[str, Any]:
        """Work for so long before it counts and then for so long, or until nothing is left to claim."""
        owners = range(1, self.load.clients + 1)
        await self.open(owners)
        gc.freeze()  # What is there already is no garbage to look for.
        begins_s = time.monotonic() + lead_s
        notes = Notes(Window(begins_s=begins_s, ends_s=begins_s + seconds))
        begun(notes.window)
        await asyncio.gather(*(self._keep_busy(owner, notes) for owner in owners))
        found = notes.summary()
        await self.close()
        return found

    async def _keep_busy(self, owner: int, notes: Notes) -> None:
        for turn in count():
            asked_s = await self._turn(owner, turn, notes)
            if not notes.is_open:
                return
            ids = await self.claim(owner)
            claimed_s = time.monotonic()
            if not ids:
                notes.has_run_dry = True
                return
            if self.load.verb is not Verb.CLAIM:
                await self.finish(owner, ids)
            notes.done(asked_s, claimed_s, len(ids))

    async def _turn(self, owner: int, turn: int, notes: Notes) -> float:
        """Wait until this owner may start its next cycle. Return the moment from which its claim is timed."""
        if not self.load.rate:
            return time.monotonic()
        # The owners take turns. One that is late because its last cycle took long has waited since its turn.
        due_s = notes.started_s + (turn * self.load.clients + owner - 1) / self.load.rate
        if (ahead_s := due_s - time.monotonic()) <= 0:
            return due_s
        await asyncio.sleep(ahead_s)
        return time.monotonic()  # The event loop's timers are late by up to a millisecond.


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the fastest event loop there is, so that the load generator does not measure itself."""
    try:
        from uvloop import new_event_loop
    except ModuleNotFoundError:
        new_event_loop = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)
