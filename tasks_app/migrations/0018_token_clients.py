"""Tokens that may act for some clients only."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0017_commands_scope"),
    ]

    operations = [
        migrations.AddField(
            model_name="token",
            name="clients",
            field=models.JSONField(blank=True, default=list),
        ),
    ]
