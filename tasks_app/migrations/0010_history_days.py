"""On PostgreSQL the trail gets a table for each day, so that what is old is dropped and not deleted row by row.

The tables of days are made after each migrate and by housekeeping (history_days.py). What is there already
stays in the default one, and goes from it when it is old.
"""

from collections.abc import Sequence

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

FORWARDS = [
    # It refuses updates; all tables of the trail get one together after the migration.
    "DROP TRIGGER IF EXISTS tasks_app_endedtask_immutable ON tasks_app_endedtask",
    "ALTER TABLE tasks_app_endedtask DROP CONSTRAINT tasks_app_endedtask_pkey",
    "ALTER TABLE tasks_app_endedtask RENAME TO tasks_app_endedtask_default",
    "ALTER INDEX endedtask_chain RENAME TO tasks_app_endedtask_default_chain",
    # What is old, or of days that are to get a table. Of commits only those pay for it that find no table of their day.
    "CREATE INDEX tasks_app_endedtask_default_end ON tasks_app_endedtask_default (ended_at_ms)",
    "CREATE TABLE tasks_app_endedtask (LIKE tasks_app_endedtask_default) PARTITION BY RANGE (ended_at_ms)",
    # PostgreSQL wants the time in it. That an id ends once is sure without: its task is deleted in the same statement.
    "ALTER TABLE tasks_app_endedtask ADD PRIMARY KEY (id, ended_at_ms)",
    "CREATE INDEX endedtask_chain ON tasks_app_endedtask (origin, id)",
    "ALTER TABLE tasks_app_endedtask ATTACH PARTITION tasks_app_endedtask_default DEFAULT",
]

BACKWARDS = [
    "CREATE TABLE tasks_app_endedtask_whole (LIKE tasks_app_endedtask)",
    "INSERT INTO tasks_app_endedtask_whole SELECT * FROM tasks_app_endedtask",
    "DROP TABLE tasks_app_endedtask",
    "ALTER TABLE tasks_app_endedtask_whole RENAME TO tasks_app_endedtask",
    "ALTER TABLE tasks_app_endedtask ADD PRIMARY KEY (id)",
    "CREATE INDEX endedtask_chain ON tasks_app_endedtask (origin, id)",
]


def forwards(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    execute(schema_editor, FORWARDS)


def backwards(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    execute(schema_editor, BACKWARDS)


def execute(schema_editor: BaseDatabaseSchemaEditor, statements: Sequence[str]) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for statement in statements:
            schema_editor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0009_running_times")]
    operations = [migrations.RunPython(forwards, backwards)]
