"""Django's `migrate`, which leaves nothing half done behind: no empty database, and no migration that can't go on."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from django.conf import settings
from django.core.management.commands import migrate
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.migrations import Migration
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from tasks_app.database import dialect_of
from taskstore_project.base_command import CannotRun, fail
from taskstore_project.data_directory import made_if_done
from taskstore_project.startup_migration import OWN


class Executor(MigrationExecutor):
    """Django records many a migration only after its commit: killed between them, it would make the tables again."""

    def apply_migration(self, state: Any, migration: Migration, *how: bool, **named: bool) -> Any:
        with ExitStack() as stack:
            if migration.atomic:
                # SQLite can't switch the checks off within a transaction.
                stack.enter_context(self.connection.constraint_checks_disabled())
                stack.enter_context(transaction.atomic(self.connection.alias))
            return super().apply_migration(state, migration, *how, **named)

    def detect_soft_applied(self, state: Any, migration: Migration) -> Any:
        # Not only a first one: what has made one of its tables has made all of them.
        migration.initial = True  # type: ignore[misc]
        is_applied, after = super().detect_soft_applied(state, migration)
        return is_applied, after if is_applied else state


migrate.MigrationExecutor = Executor  # type: ignore[attr-defined]


class Command(migrate.Command):
    def handle(self, *words: Any, **options: Any) -> None:
        chosen = connections[options["database"]]
        with ExitStack() as stack:
            if is_new := not chosen.introspection.table_names():
                # All tables or none: before the first server has started, nobody can need some of them.
                stack.enter_context(chosen.constraint_checks_disabled())
                stack.enter_context(transaction.atomic(chosen.alias))
            # A migration whose tables exist was cut short by an earlier version before it was recorded.
            super().handle(*words, **options | {"fake_initial": True})
            if is_new:
                MigrationRecorder(chosen).record_applied(*OWN)

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
