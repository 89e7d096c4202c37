"""The two statements that a cycle comes to, for those who put nothing between them and the database."""

from __future__ import annotations

from tasks_app.core.operations import TaskRecord

from ..load import DATA, GROUP, LEASE_MS

COLUMNS = ", ".join(f'"{name}"' for name in TaskRecord._fields)

# The same table as the store's, without its trigger.
TABLE = (
    "CREATE TABLE raw_task (LIKE tasks_app_task INCLUDING ALL)",
    """
    DO $$ BEGIN
        EXECUTE (SELECT format('ALTER TABLE raw_task SET (%s)', array_to_string(reloptions, ', '))
                 FROM pg_class WHERE oid = 'tasks_app_task'::regclass);
    END $$
    """,
    "CREATE SEQUENCE raw_ids",
)


def claim(*, owner: str, limit: str) -> str:
    """Take the longest available tasks, in one statement that is one transaction. `owner`, `limit`: placeholders."""
    successor = {
        "id": "nextval('raw_ids')",
        "available_at_ms": f"now_ms + {LEASE_MS}",
        "owner": f"{owner}::bigint",
        "claims": "claims + 1",
        "leased_since_ms": "now_ms",
        "made_at_ms": "now_ms",
    }
    values = ", ".join(successor.get(name, f'"{name}"') for name in TaskRecord._fields)
    # Not a join after LIMIT: the planner would read the whole table.
    return f"""
        WITH clock AS MATERIALIZED (
            SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms
        ), gone AS (
            DELETE FROM raw_task
            WHERE id = ANY(ARRAY(
                SELECT id FROM raw_task
                WHERE "group" = '{GROUP}' AND available_at_ms <= (SELECT now_ms FROM clock)
                ORDER BY available_at_ms, id
                LIMIT {limit}
                FOR UPDATE SKIP LOCKED
            ))
            RETURNING *
        )
        INSERT INTO raw_task ({COLUMNS}) SELECT {values} FROM gone, clock RETURNING id
    """


def delete(*, ids: str) -> str:
    """`ids`: a placeholder for an array."""
    return f"DELETE FROM raw_task WHERE id = ANY({ids}::bigint[])"


def add(*, tasks: str) -> str:
    """`tasks`: a placeholder for their number."""
    values = {
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
    }
    return f"""
        INSERT INTO raw_task ({COLUMNS})
        SELECT {", ".join(values.get(name, "0") for name in TaskRecord._fields)}
        FROM (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms) AS clock,
            generate_series(1, {tasks}::int)
    """
