"""Keep what became of the last due times of schedules. Servers of the revision before do without."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("tasks_app", "0002_batch_plans"),)
    operations = (
        migrations.CreateModel(
            name="DueTime",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("schedule", models.BigIntegerField()),
                ("due_ms", models.BigIntegerField()),
                ("outcome", models.CharField(max_length=10)),
                ("why", models.TextField()),
                ("origin", models.BigIntegerField()),
            ],
            options={
                "default_permissions": (),
                "constraints": [models.UniqueConstraint(fields=["schedule", "due_ms"], name="due_time_of_schedule")],
            },
        ),
    )
