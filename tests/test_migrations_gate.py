"""The gate that keeps servers of the release before at work while newer ones are started."""

import pytest
from django.db import migrations, models

from lab.testing.migrations import problems

pytestmark = pytest.mark.once

NUMBER = models.BigIntegerField()
SAFE = [
    migrations.CreateModel("Box", [("id", models.BigAutoField(primary_key=True))]),
    migrations.AddField("Task", "weight", models.BigIntegerField(null=True)),
    migrations.AddField("Task", "weight", models.BigIntegerField(db_default=0)),
    migrations.AddIndex("Task", models.Index(fields=["owner"], name="by_owner")),
]
UNSAFE = [
    (migrations.AddField("Task", "weight", NUMBER), "let it be null or have a db_default"),
    (migrations.AddField("Task", "weight", models.BigIntegerField(default=0)), "let it be null or have a db_default"),
    (migrations.RemoveField("Task", "owner"), "still use"),
    (migrations.RenameField("Task", "owner", "holder"), "still use"),
    (migrations.AlterField("Task", "owner", NUMBER), "still use"),
    (migrations.DeleteModel("Task"), "still use"),
    (migrations.AddConstraint("Task", models.UniqueConstraint(fields=["owner"], name="one")), "refuses"),
    (migrations.RunSQL("DROP TABLE tasks_app_task"), "nobody can see"),
]


def migration(operation, **attributes):
    kind = type("Migration", (migrations.Migration,), {"operations": [operation], **attributes})
    return kind("0999_later", "tasks_app")


@pytest.mark.parametrize("operation", SAFE, ids=lambda operation: operation.describe())
def test_what_only_adds_passes(operation):
    assert list(problems(migration(operation))) == []


@pytest.mark.parametrize(("operation", "why"), UNSAFE, ids=lambda value: getattr(value, "name", None))
def test_what_old_servers_would_stumble_over_is_named(operation, why):
    [problem] = problems(migration(operation))
    assert problem.startswith("0999_later: ")
    assert why in problem


def test_who_writes_the_migration_can_say_why_they_do_not():
    dropped = migration(migrations.RemoveField("Task", "owner"), old_servers="0.3 does not read it any more")
    assert list(problems(dropped)) == []
