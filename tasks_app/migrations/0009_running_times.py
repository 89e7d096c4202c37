"""Since when a task is leased, in place of whether it is; and for how long tasks were, when their holders were done."""

from django.db import migrations, models


class AlterToTime(migrations.AlterField):
    """From true to a time, from false to 0. Of a lease that runs already the last renewal is taken for its begin."""

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        if schema_editor.connection.vendor == "postgresql":
            self._convert(schema_editor, "bigint", "CASE WHEN leased_since_ms THEN made_at_ms ELSE 0 END")
        else:
            # This builds the table anew, without the trigger that would refuse the UPDATE.
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            schema_editor.execute(f"UPDATE {self._table} SET leased_since_ms = made_at_ms WHERE leased_since_ms")  # noqa: S608 - our own names

    def database_backwards(self, app_label, schema_editor, from_state, to_state):
        if schema_editor.connection.vendor == "postgresql":
            self._convert(schema_editor, "boolean", "leased_since_ms > 0")
        else:
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            schema_editor.execute(f"UPDATE {self._table} SET leased_since_ms = leased_since_ms > 0")  # noqa: S608 - our own names

    def _convert(self, schema_editor, kind, value):
        # Not an UPDATE: the trigger refuses it, and it would write every row twice.
        schema_editor.execute(f"ALTER TABLE {self._table} ALTER COLUMN leased_since_ms TYPE {kind} USING ({value})")

    @property
    def _table(self):
        return f"tasks_app_{self.model_name_lower}"


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0008_payload"),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name="task",
            name="task_listing",
        ),
        migrations.RenameField(
            model_name="task",
            old_name="leased",
            new_name="leased_since_ms",
        ),
        migrations.RenameField(
            model_name="endedtask",
            old_name="leased",
            new_name="leased_since_ms",
        ),
        AlterToTime(
            model_name="task",
            name="leased_since_ms",
            field=models.BigIntegerField(),
        ),
        AlterToTime(
            model_name="endedtask",
            name="leased_since_ms",
            field=models.BigIntegerField(),
        ),
        migrations.AddIndex(
            model_name="task",
            index=models.Index(fields=["group", "available_at_ms", "id", "leased_since_ms"], name="task_listing"),
        ),
        migrations.AddField(
            model_name="countdelta",
            name="runs",
            field=models.TextField(default=""),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="rate",
            name="runs",
            field=models.TextField(default=""),
            preserve_default=False,
        ),
    ]
