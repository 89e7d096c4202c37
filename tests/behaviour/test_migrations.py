"""The tables come and go by migrations, in any order and as far as one likes."""

import os
import subprocess
import sys

import pytest
from django.core.management import call_command
from django.db import connection

from tasks_app.models import Task
from tasks_app.operations import NewTask
from taskstore_project.testing import PROJECT

from .people import ANN


@pytest.fixture
def migrated_in_the_end(transactional_db):
    yield
    call_command("migrate", verbosity=0)


@pytest.mark.parametrize("target", ["zero", "0001"])
def test_migrations_can_be_taken_back_and_done_again(migrated_in_the_end, target):
    call_command("migrate", "tasks_app", target, verbosity=0)
    call_command("migrate", "auth", verbosity=0)
    call_command("migrate", verbosity=0)
    [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")])
    with pytest.raises(Exception, match="immutable"), connection.cursor() as cursor:
        cursor.execute("UPDATE tasks_app_task SET owner = 1 WHERE id = %s", [task.id])


@pytest.mark.once
def test_the_first_migration_may_be_of_any_application(tmp_path):
    def migrate(*application):
        command = [sys.executable, "manage.py", "migrate", "--verbosity=0", *application]
        environment = {**os.environ, "TASKSTORE_DATA": str(tmp_path), "DATABASE_URL": ""}
        subprocess.run(command, cwd=PROJECT, env=environment, check=True, timeout=120)

    migrate("tasks_app")
    migrate()
