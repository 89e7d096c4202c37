"""Tasks are found by their labels through an index."""

from django.db import migrations

import tasks_app.labels


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0015_audit_filters"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="task",
            index=tasks_app.labels.LabelIndex(fields=["id", "labels"], name="task_labels"),
        ),
    ]
