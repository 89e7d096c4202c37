"""What the database itself watches over, put right after every migrate.

Not in a migration: on SQLite Django changes a table by building a new one, and the
triggers of the old one are gone.
"""

from __future__ import annotations

from typing import Any

from django.db import connections, transaction

from . import history_days
from .database import dialect_of

# Rows of these tables are inserted and deleted, never changed.
UNCHANGEABLE = ("tasks_app_task", "tasks_app_payload", "tasks_app_endedtask", "tasks_app_auditentry")
# On PostgreSQL: each of its tables gets a trigger for rows, where one for statements would stay with the name of all.
OF_MANY_TABLES = ("tasks_app_endedtask",)


def put_right(using: str, **_: Any) -> None:
    """Make the triggers that refuse UPDATE, the first tables of the trail, and never let an id be given out again."""
    connection = connections[using]
    needed = {*UNCHANGEABLE, *(() if connection.vendor == "postgresql" else ("tasks_app_counters",))}
    # Migrations may have stopped before our last one, and a second database may have none of our tables.
    if not needed <= set(connection.introspection.table_names()):
        return
    with connection.cursor() as cursor:
        for statement in POSTGRESQL if connection.vendor == "postgresql" else SQLITE:
            cursor.execute(statement)
    if connection.vendor == "postgresql":
        dialect = dialect_of(using)
        with transaction.atomic(using=using):
            dialect.drive(history_days.make_ahead(dialect))


POSTGRESQL = [
    """
    CREATE OR REPLACE FUNCTION tasks_app_refuse_update() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'rows of % are immutable: delete the row and insert a successor', TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation';
    END
    $$
    """,
    *(
        f"""
        CREATE OR REPLACE TRIGGER {table}_immutable
        BEFORE UPDATE ON {table}
        {"FOR EACH ROW" if table in OF_MANY_TABLES else ""} EXECUTE FUNCTION tasks_app_refuse_update()
        """
        for table in UNCHANGEABLE
    ),
]

SQLITE = [
    *(
        f"""
        CREATE TRIGGER IF NOT EXISTS {table}_immutable
        BEFORE UPDATE ON {table}
        BEGIN
            SELECT RAISE(ABORT, 'rows of {table} are immutable: delete the row and insert a successor');
        END
        """
        for table in UNCHANGEABLE
    ),
    """
    UPDATE tasks_app_counters
    SET value = max(
        value,
        (SELECT coalesce(max(id), 0) FROM tasks_app_task),
        (SELECT coalesce(max(id), 0) FROM tasks_app_endedtask)
    )
    WHERE name = 'ids'
    """,
]
