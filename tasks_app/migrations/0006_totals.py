"""The totals of the tasks that are there already, and how their tables are kept small."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

FILL = """
    INSERT INTO tasks_app_grouptotal ("group", tasks, leases, failed)
    SELECT "group", count(*), count(CASE WHEN leased THEN 1 END), count(CASE WHEN error <> '' THEN 1 END)
    FROM tasks_app_task
    GROUP BY "group"
"""

# Rows that live for half a second, and rows that change twice a second: clean up by their number.
POSTGRESQL = [
    f"""
    ALTER TABLE {table} SET (
        autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
    )
    """
    for table in ("tasks_app_countdelta", "tasks_app_grouptotal", "tasks_app_rate")
]


def forwards(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    # Deltas that came between the two migrations are in these totals.
    schema_editor.execute("DELETE FROM tasks_app_countdelta")
    schema_editor.execute("DELETE FROM tasks_app_grouptotal")
    schema_editor.execute(FILL)
    if schema_editor.connection.vendor == "postgresql":
        for statement in POSTGRESQL:
            schema_editor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("tasks_app", "0005_counts")]
    # Backwards the tables are dropped by the migration before.
    operations = [migrations.RunPython(forwards, migrations.RunPython.noop)]
