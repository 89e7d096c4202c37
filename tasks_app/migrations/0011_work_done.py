"""How many tasks each client was done with, by the minute."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def clean_up_by_number(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """As in 0006: the rows of the minute that is under way change twice a second."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(
            """
            ALTER TABLE tasks_app_workdone SET (
                autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
            )
            """
        )


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0010_history_days"),
    ]

    operations = [
        migrations.AddField(
            model_name="countdelta",
            name="done",
            field=models.TextField(default=""),
            preserve_default=False,
        ),
        migrations.CreateModel(
            name="WorkDone",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("minute", models.BigIntegerField()),
                ("client", models.BigIntegerField()),
                ("tasks", models.BigIntegerField()),
            ],
        ),
        migrations.AddConstraint(
            model_name="workdone",
            constraint=models.UniqueConstraint(fields=("minute", "client"), name="work_of_client"),
        ),
        migrations.RunPython(clean_up_by_number, migrations.RunPython.noop),
    ]
