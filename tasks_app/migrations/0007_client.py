from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tasks_app", "0006_totals"),
    ]

    operations = [
        migrations.CreateModel(
            name="Client",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=255)),
                ("host", models.CharField(max_length=255)),
                ("pid", models.BigIntegerField(null=True)),
                ("groups", models.JSONField()),
                ("version", models.CharField(max_length=255)),
                ("info", models.TextField()),
                ("seen_at_ms", models.BigIntegerField()),
            ],
            options={
                "indexes": [models.Index(fields=["seen_at_ms"], name="client_seen")],
            },
        ),
    ]
