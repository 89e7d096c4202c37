"""How much there was at the end of each minute."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0011_work_done"),
    ]

    operations = [
        migrations.CreateModel(
            name="Level",
            fields=[
                ("minute", models.BigIntegerField(primary_key=True, serialize=False)),
                ("ready", models.BigIntegerField()),
                ("claimed", models.BigIntegerField()),
                ("expired", models.BigIntegerField()),
                ("scheduled", models.BigIntegerField()),
                ("failed", models.BigIntegerField()),
                ("workers", models.BigIntegerField()),
            ],
        ),
    ]
