"""Migrate the database before the server starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connection
from django.db import Error as DatabaseProblem
from django.db.migrations.loader import MigrationLoader

from tasks_app.database import dialect_of

from .base_command import CannotRun, typed

CONNECT_TIMEOUT_S = 5
MIGRATION_LOCK = 0x7A5C_5702  # An arbitrary number for the advisory lock.


@contextmanager
def alone() -> Iterator[None]:
    """Let one server at a time migrate: two on one PostgreSQL would create the same tables.

    Raises CannotRun when the database can't be reached.
    """
    with reached() as database:
        # No statement on SQLite, where the directory's lock excludes a second server.
        if statements := dialect_of(DEFAULT_DB_ALIAS).lock(MIGRATION_LOCK):
            database.set_autocommit(False)
            with database.cursor() as cursor:
                for statement in statements:
                    cursor.execute(*statement)
        yield


def migrate() -> None:
    """Create or change the tables.

    Raises CannotRun when a later release has changed them already, unless the setting allows it.
    """
    loader = MigrationLoader(connection)
    unknown = loader.applied_migrations.keys() - loader.disk_migrations.keys()
    newer = sorted(name for app, name in unknown if app == "tasks_app")
    if newer and not settings.TASKSTORE_NEWER_DATABASE:
        raise CannotRun(
            f"a later release has changed the database {place()} ({', '.join(newer)}): upgrade this server, or set "
            "TASKSTORE_NEWER_DATABASE=1 if that is the very next release"
        )
    call_command("migrate", verbosity=0, interactive=False, skip_checks=True)


def need_store() -> None:
    """Raise CannotRun when the database can't be reached or has no store yet."""
    file = dialect_of(DEFAULT_DB_ALIAS).file
    if file is not None and not file.exists():
        raise _no_store()  # Opening it would create it.
    with reached() as database, database.cursor() as cursor:
        tables = database.introspection.table_names(cursor)
    if "tasks_app_token" not in tables:
        raise _no_store()


def _no_store() -> CannotRun:
    return CannotRun(f"there is no store in {place()} yet: `{typed('up')}` creates one")


@contextmanager
def reached() -> Iterator[Any]:
    """Open a separate connection, without the pool, which would retry and log before it reports an error."""
    probe = dialect_of(DEFAULT_DB_ALIAS).own_connection(CONNECT_TIMEOUT_S)
    try:
        probe.ensure_connection()
    except DatabaseProblem as problem:
        raise CannotRun(f"can't open the database {place()}: {problem}") from None
    try:
        if flaw := dialect_of(DEFAULT_DB_ALIAS).flaw(probe):
            raise CannotRun(f"can't use the database {place()}: {flaw}")
        yield probe
    finally:
        probe.close()


def place() -> str:
    """Return the place of the database for messages, without the password."""
    if file := dialect_of(DEFAULT_DB_ALIAS).file:
        return str(file)
    chosen = settings.DATABASES["default"]
    return f"{chosen['NAME']} on {chosen['HOST'] or 'this machine'}"
