"""The audit is listed by time, and by who did what to which group. Its names of groups are in order by code point."""

from django.db import migrations, models

import tasks_app.models


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0014_saved_search"),
    ]

    operations = [
        migrations.RemoveIndex(model_name="auditentry", name="audit_newest"),
        migrations.AlterField(
            model_name="auditentry",
            name="group",
            field=tasks_app.models.NameField(max_length=255),
        ),
        migrations.AddIndex(
            model_name="auditentry",
            index=models.Index(fields=["-at", "-id"], name="audit_newest"),
        ),
        migrations.AddIndex(
            model_name="auditentry",
            index=models.Index(fields=["actor", "-at", "-id"], name="audit_actor"),
        ),
        migrations.AddIndex(
            model_name="auditentry",
            index=models.Index(fields=["action", "-at", "-id"], name="audit_action"),
        ),
        migrations.AddIndex(
            model_name="auditentry",
            index=models.Index(fields=["group", "-at", "-id"], name="audit_group"),
        ),
    ]
