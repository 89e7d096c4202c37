"""The bare database from Python: every statement its own transaction, a connection for each client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from tasks_app.core.operations import TaskRecord

from ..pace import DATA, GROUP, LEASE_MS
from .client import ADDER, Client

COLUMNS = ", ".join(f'"{name}"' for name in TaskRecord._fields)
NOW_MS = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms"

# The same table as the store's, without its trigger.
TABLE = (
    b"CREATE TABLE raw_task (LIKE tasks_app_task INCLUDING ALL)",
    b"""
    DO $$ BEGIN
        EXECUTE (SELECT format('ALTER TABLE raw_task SET (%s)', array_to_string(reloptions, ', '))
                 FROM pg_class WHERE oid = 'tasks_app_task'::regclass);
    END $$
    """,
    b"CREATE SEQUENCE raw_ids",
)


def values(named: dict[str, str], other: str) -> str:
    """Expressions in the order of the columns. `other`: one for those that are not named, with {} for the column."""
    return ", ".join(named.get(name, other.format(f'"{name}"')) for name in TaskRecord._fields)


ADDED = values(
    {
        "id": "nextval('raw_ids')",
        "group": f"'{GROUP}'",
        "available_at_ms": "now_ms",
        "data": f"'{DATA.decode()}'::bytea",
        "labels": "'{}'",
        "created_at_ms": "now_ms",
        "made_at_ms": "now_ms",
        "origin": "currval('raw_ids')",
        "data_type": "''",
        "error": "''",
    },
    "0",
)
SUCCESSOR = values(
    {
        "id": "nextval('raw_ids')",
        "available_at_ms": f"now_ms + {LEASE_MS}",
        "owner": "%s::bigint",
        "claims": "claims + 1",
        "leased_since_ms": "now_ms",
        "made_at_ms": "now_ms",
    },
    "{}",
)
ADD = f"INSERT INTO raw_task ({COLUMNS}) SELECT {ADDED} FROM ({NOW_MS}) AS clock, generate_series(1, %s::int)".encode()
# Not a join after LIMIT: the planner would read the whole table.
CLAIM = f"""
    WITH clock AS MATERIALIZED ({NOW_MS}), gone AS (
        DELETE FROM raw_task
        WHERE id = ANY(ARRAY(
            SELECT id FROM raw_task
            WHERE "group" = '{GROUP}' AND available_at_ms <= (SELECT now_ms FROM clock)
            ORDER BY available_at_ms, id
            LIMIT %s
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING *
    )
    INSERT INTO raw_task ({COLUMNS}) SELECT {SUCCESSOR} FROM gone, clock RETURNING id
""".encode()
DELETE = b"DELETE FROM raw_task WHERE id = ANY(%s::bigint[])"

Connection = psycopg.AsyncConnection[tuple[Any, ...]]


class PsycopgClient(Client):
    connections: dict[int, Connection]

    async def prepare(self) -> None:
        connection = await self._connection()
        for statement in TABLE:
            await connection.execute(statement)

    async def put(self, tasks: int) -> None:
        await self.connections[ADDER].execute(ADD, [tasks])

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
        return await psycopg.AsyncConnection.connect(self.where["database"], autocommit=True)
