"""Django's `migrate`, which leaves nothing half done behind: no empty database, and no migration that can't go on."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from django.conf import settings
from django.core.management.commands import migrate
from django.db import DEFAULT_DB_ALIAS, transaction
from django.db.migrations import Migration
from django.db.migrations.executor import MigrationExecutor

from tasks_app.database import dialect_of
from taskstore_project.base_command import CannotRun, fail
from taskstore_project.data_directory import made_if_done


class Executor(MigrationExecutor):
    """Django records many a migration only after its commit: killed between them, it would make the tables again."""

    def apply_migration(self, state: Any, migration: Migration, *how: bool, **named: bool) -> Any:
        with ExitStack() as stack:
            if migration.atomic:
                # SQLite can't switch the checks off within a transaction.
                stack.enter_context(self.connection.constraint_checks_disabled())
                stack.enter_context(transaction.atomic(self.connection.alias))
            return super().apply_migration(state, migration, *how, **named)


migrate.MigrationExecutor = Executor  # type: ignore[attr-defined]


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
