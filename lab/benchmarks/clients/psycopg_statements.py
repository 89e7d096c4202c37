"""The bare database from Python: every operation its own transaction, a connection for each client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from . import raw_sql
from .client import AsyncClient
from .raw_table import RawClient

CLAIM = raw_sql.claim(owner="%s", limit="%s").encode()
DELETE = raw_sql.delete(ids="%s").encode()

Connection = psycopg.AsyncConnection[tuple[Any, ...]]


class PsycopgClient(RawClient, AsyncClient):
    connections: dict[int, Connection]

    async def open(self, owners: Sequence[int]) -> None:
        self.connections = {owner: await self._connection() for owner in owners}

    async def close(self) -> None:
        for connection in self.connections.values():
            await connection.close()

    async def claim(self, owner: int) -> Sequence[int]:
        # Prepared and binary: the fastest that psycopg has.
        cursor = self.connections[owner].cursor(binary=True)
        await cursor.execute(CLAIM, [self.load.batch, owner], prepare=True)
        return [task_id for (task_id,) in await cursor.fetchall()]

    async def finish(self, owner: int, tasks: Sequence[int]) -> None:
        await self.connections[owner].cursor(binary=True).execute(DELETE, [list(tasks)], prepare=True)

    async def _connection(self) -> Connection:
        return await psycopg.AsyncConnection.connect(self.where["url"], autocommit=True)
