"""This store, by its writer in the process of its callers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import count

import django

from ..pace import DATA, GROUP, LEASE_MS
from .client import ADDER, Client

django.setup()

from tasks_app.core.operations import Claim, Commit, ResendKey  # noqa: E402 - Django has to be ready.
from tasks_app.writer.writer import Writer, running  # noqa: E402
from taskstore.types.tasks import NewTask  # noqa: E402 - Django has to be ready.

TASK = NewTask(group=GROUP, data=DATA)

NUMBERS = count()  # Of keys, in all of this process.


class WriterClient(Client):
    writer: Writer

    async def open(self, owners: Sequence[int]) -> None:
        self.writer = running("default") or Writer.start()

    async def close(self) -> None:
        await self.writer.stop()

    async def claim(self, owner: int) -> Sequence[int]:
        claim = Claim(groups=(GROUP,), owner=owner, duration_ms=LEASE_MS, limit=self.load.batch, key=self._key())
        return [task.id for task in await self.writer.submit(claim)]

    async def finish(self, owner: int, tasks: Sequence[int]) -> None:
        await self.writer.submit(Commit(owner=owner, deletes=tuple(tasks), key=self._key()))

    async def put(self, tasks: int) -> None:
        await self.writer.submit(Commit(owner=ADDER, adds=(TASK,) * tasks))

    def _key(self) -> ResendKey | None:
        if not self.load.with_keys:
            return None
        return ResendKey(f"bench/{os.getpid()}-{next(NUMBERS)}", digest="0" * 64)
