"""Tokens that may submit shell commands and run them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0016_labels"),
    ]

    operations = [
        migrations.AlterField(
            model_name="token",
            name="scope",
            field=models.CharField(
                choices=[("read", "Read"), ("work", "Work"), ("operate", "Operate"), ("commands", "Commands")],
                max_length=10,
            ),
        ),
    ]
