"""Django's `migrate`, without leaving an empty database behind after a failure."""

from __future__ import annotations

from django.conf import settings
from django.core.management.commands import migrate
from django.db import DEFAULT_DB_ALIAS

from tasks_app.database import dialect_of
from taskstore_project.base_command import CannotRun, fail
from taskstore_project.data_directory import made_if_done


class Command(migrate.Command):
    def run_from_argv(self, argv: list[str]) -> None:
        file = dialect_of(DEFAULT_DB_ALIAS).file
        if file is None or file.exists():
            super().run_from_argv(argv)
            return
        try:
            with made_if_done(settings.TASKSTORE_DATA):
                super().run_from_argv(argv)
        except CannotRun as problem:
            fail(problem)
