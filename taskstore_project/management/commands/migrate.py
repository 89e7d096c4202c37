"""Django's `migrate`, which leaves nothing half done behind: no empty database, and no migration that can't go on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from django.conf import settings
from django.core.management.commands import migrate
from django.db import DEFAULT_DB_ALIAS, OperationalError, connections, transaction
from django.db.migrations import Migration
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from tasks_app.database import dialect_of
from tasks_app.database.outage import is_contention
from tasks_app.database.table_version import Version, version_of
from taskstore_project.base_command import CannotRun, fail
from taskstore_project.data_directory import made_if_done
from taskstore_project.startup_migration import OWN, keep_copy, place

log = logging.getLogger(__name__)

LOCK_WAIT_MS = 1_000  # While it waits for the lock of a table, everybody else waits for it.
PAUSES_S = (*[0.2] * 5, *[1.0] * 60)


class Executor(MigrationExecutor):
    """Makes a migration as a whole, beside servers that go on.

    Django records many a migration only after its commit: killed between them, it would make the tables again.
    """

    def apply_migration(self, state: Any, migration: Migration, *how: bool, **named: bool) -> Any:
        return self._at_once(super().apply_migration, state, migration, *how, **named)

    def unapply_migration(self, state: Any, migration: Migration, *how: bool, **named: bool) -> Any:
        return self._at_once(super().unapply_migration, state, migration, *how, **named)

    def _at_once(self, make: Callable[..., Any], state: Any, migration: Migration, *how: bool, **named: bool) -> Any:
        """Make it in a transaction. One that others keep waiting gives way to them, and is made again."""
        if not migration.atomic:
            return make(state, migration, *how, **named)
        for pause_s in PAUSES_S:
            try:
                # SQLite can't switch the checks off within a transaction.
                with self.connection.constraint_checks_disabled(), transaction.atomic(self.connection.alias):
                    if dialect_of(self.connection.alias).serves_many:
                        with self.connection.cursor() as cursor:
                            cursor.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}")
                    return make(state.clone(), migration, *how, **named)
            except OperationalError as error:
                if not is_contention(error):
                    raise
            if pause_s == PAUSES_S[-1]:
                log.warning("%s waits for other transactions, which hold locks on its tables", migration)
            time.sleep(pause_s)
        raise CannotRun(
            f"{migration} was not made, as other transactions hold locks on its tables: end them, and migrate again"
        )

    def detect_soft_applied(self, state: Any, migration: Migration) -> Any:
        # Not only a first one: what has made one of its tables has made all of them.
        migration.initial = True  # type: ignore[misc]
        is_applied, after = super().detect_soft_applied(state, migration)
        return is_applied, after if is_applied else state


migrate.MigrationExecutor = Executor  # type: ignore[attr-defined]


class Command(migrate.Command):
    def handle(self, *words: Any, **options: Any) -> None:
        chosen = connections[options["database"]]
        if not (options["plan"] or options["check_unapplied"]) and version_of(chosen.alias) is Version.EARLIER:
            log.warning("the tables of %s change to those of this version", place())
            if file := dialect_of(chosen.alias).file:
                keep_copy(file, chosen)
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
        only_looks = not {"--plan", "--check"}.isdisjoint(argv)
        try:
            if file is None or (only_looks and file.exists()):
                super().run_from_argv(argv)
                return
            with made_if_done(settings.TASKSTORE_DATA):
                super().run_from_argv(argv)
        except CannotRun as problem:
            fail(problem)
