"""Ids and numbers of commits that are never used twice."""

from collections.abc import Sequence

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

POSTGRESQL = [
    "CREATE SEQUENCE tasks_app_ids",
    "CREATE SEQUENCE tasks_app_commits",
    # Emptied by PostgreSQL after a crash, a failover or a restore; see database/postgresql.py.
    "CREATE UNLOGGED TABLE tasks_app_log_intact (is_intact boolean NOT NULL)",
    "INSERT INTO tasks_app_log_intact VALUES (true)",
    # Dead rows at the head of a group are what kills queues: clean up by their number, not by their share.
    """
    ALTER TABLE tasks_app_task SET (
        autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
    )
    """,
]

SQLITE = [
    "CREATE TABLE tasks_app_counters (name text PRIMARY KEY, value integer NOT NULL)",
    "INSERT INTO tasks_app_counters VALUES ('ids', 0), ('commits', 0)",
]

POSTGRESQL_BACK = [
    "DROP TABLE tasks_app_log_intact",
    "DROP SEQUENCE tasks_app_commits",
    "DROP SEQUENCE tasks_app_ids",
]

SQLITE_BACK = ["DROP TABLE tasks_app_counters"]


def forwards(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    execute(schema_editor, POSTGRESQL, SQLITE)


def backwards(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    execute(schema_editor, POSTGRESQL_BACK, SQLITE_BACK)


def execute(schema_editor: BaseDatabaseSchemaEditor, postgresql: Sequence[str], sqlite: Sequence[str]) -> None:
    for statement in postgresql if schema_editor.connection.vendor == "postgresql" else sqlite:
        schema_editor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0001_store")]
    operations = [migrations.RunPython(forwards, backwards)]
