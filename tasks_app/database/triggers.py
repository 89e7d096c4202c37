"""What the database itself watches over, put right after every migrate.

Rows of the store are never changed, and those of the audit log go only when they are older than TASKSTORE_AUDIT_DAYS:
the triggers know the number of the last migrate, which each start of a server does.

Not in a migration: on SQLite Django changes a table by building a new one, and the
triggers of the old one are gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ..conf import retention
from . import dialect_of, history_partitions

# Rows of these tables are inserted and deleted, never changed.
UNCHANGEABLE = ("tasks_app_task", "tasks_app_payload", "tasks_app_endedtask", "tasks_app_auditentry")
# Nor are those of this one deleted, as long as they are young.
KEPT = "tasks_app_auditentry"
# On PostgreSQL: each of its tables gets a trigger for rows, where one for statements would stay with the name of all.
OF_MANY_TABLES = ("tasks_app_endedtask",)


def put_right(using: str, **_: Any) -> None:
    """Make the triggers that refuse UPDATE, and DELETE of the audit log; the first tables of the trail.

    And never let an id be given out again.
    """
    connection = connections[using]
    needed = {*UNCHANGEABLE, *(() if connection.vendor == "postgresql" else ("tasks_app_counters",))}
    # Other applications may have been migrated first, and a second database may have none of our tables.
    if not needed <= set(connection.introspection.table_names()):
        return
    with connection.cursor() as cursor:
        # One by one: a lock on all of these tables at once would stop the commits of other servers for longer.
        for statement in POSTGRESQL if connection.vendor == "postgresql" else SQLITE:
            cursor.execute(statement)
        # In one step: at no moment is there no trigger.
        with transaction.atomic(using=using):
            for statement in keeping(connection.vendor, retention.audit_days()):
                cursor.execute(statement)
    if connection.vendor == "postgresql":
        dialect = dialect_of(using)
        with transaction.atomic(using=using):
            dialect.drive(history_partitions.make_ahead(dialect))


@contextmanager
def lifted(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Let entries of the audit log go however young they are, in the caller's transaction.

    For a restore alone, into a store of which the audit log holds nothing but the start of its server.
    """
    on_table = f" ON {KEPT}" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TRIGGER {KEPT}_kept{on_table}")
        yield
        for statement in keeping(connection.vendor, retention.audit_days()):
            cursor.execute(statement)


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


def keeping(vendor: str, days: int) -> list[str]:
    """Return the statements for triggers that refuse to delete entries of the audit log newer than this many days."""
    refusal = f"entries of the audit log are kept for {days} days"
    return _keeping_on_postgresql(refusal, days) if vendor == "postgresql" else _keeping_on_sqlite(refusal, days)


def _keeping_on_postgresql(refusal: str, days: int) -> list[str]:
    is_young = f"at + interval '{days} days' > clock_timestamp()"
    return [
        # A TRUNCATE of nothing may be: `flush` empties all tables.
        f"""
        CREATE OR REPLACE FUNCTION tasks_app_keep_audit() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF TG_OP = 'DELETE' OR EXISTS (SELECT FROM {KEPT} WHERE {is_young}) THEN
                RAISE EXCEPTION '{refusal}' USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN NULL;
        END
        $$
        """,
        f"""
        CREATE OR REPLACE TRIGGER {KEPT}_kept
        BEFORE DELETE ON {KEPT}
        FOR EACH ROW WHEN (OLD.{is_young}) EXECUTE FUNCTION tasks_app_keep_audit()
        """,
        f"""
        CREATE OR REPLACE TRIGGER {KEPT}_kept_whole
        BEFORE TRUNCATE ON {KEPT} EXECUTE FUNCTION tasks_app_keep_audit()
        """,
    ]


def _keeping_on_sqlite(refusal: str, days: int) -> list[str]:
    refused = f"BEGIN SELECT RAISE(ABORT, '{refusal}'); END"
    return [
        # Made anew, for another number of days: there is no OR REPLACE for triggers. Nor is there TRUNCATE.
        f"DROP TRIGGER IF EXISTS {KEPT}_kept",
        f"CREATE TRIGGER {KEPT}_kept BEFORE DELETE ON {KEPT} "
        f"WHEN julianday('now') - julianday(OLD.at) < {days} {refused}",
        # INSERT OR REPLACE deletes without a word to the trigger above.
        f"DROP TRIGGER IF EXISTS {KEPT}_unreplaced",
        f"CREATE TRIGGER {KEPT}_unreplaced BEFORE INSERT ON {KEPT} "
        f"WHEN EXISTS (SELECT 1 FROM {KEPT} WHERE id = NEW.id) {refused}",
    ]
