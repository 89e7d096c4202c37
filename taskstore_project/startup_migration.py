"""Brings the database up to date before anything is served."""

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
MIGRATION_LOCK = 0x7A5C_5702  # Any number that nobody else takes a lock by.


@contextmanager
def alone() -> Iterator[None]:
    """Only one server at a time gets ready: two on one PostgreSQL would make the same tables.

    Raises CannotRun when the database can't be reached.
    """
    with reached() as database:
        # No statement on SQLite: there the folder's lock keeps a second server out.
        if statements := dialect_of(DEFAULT_DB_ALIAS).lock(MIGRATION_LOCK):
            database.set_autocommit(False)
            with database.cursor() as cursor:
                for statement in statements:
                    cursor.execute(*statement)
        yield


def migrate() -> None:
    """Make or change the tables.

    Raises CannotRun when a later release has changed them already, unless the setting says that this is wanted.
    """
    if (newer := _unknown_here()) and not settings.TASKSTORE_NEWER_DATABASE:
        raise CannotRun(
            f"a later release has changed the database {place()} ({', '.join(newer)}): upgrade this server, or set "
            "TASKSTORE_NEWER_DATABASE=1 if that is the very next release"
        )
    call_command("migrate", verbosity=0, interactive=False, skip_checks=True)


def _unknown_here() -> list[str]:
    """The names of the store's migrations that were done, and that this release does not have."""
    loader = MigrationLoader(connection)
    unknown = loader.applied_migrations.keys() - loader.disk_migrations.keys()
    return sorted(name for app, name in unknown if app == "tasks_app")


def need_store() -> None:
    """Raises CannotRun when the database can't be reached or holds no store yet."""
    file = dialect_of(DEFAULT_DB_ALIAS).file
    if file is not None and not file.exists():
        raise _no_store()  # To open it would make it.
    with reached() as database, database.cursor() as cursor:
        tables = database.introspection.table_names(cursor)
    if "tasks_app_token" not in tables:
        raise _no_store()


def _no_store() -> CannotRun:
    return CannotRun(f"there is no store in {place()} yet: `{typed('up')}` creates one")


@contextmanager
def reached() -> Iterator[Any]:
    """A connection of its own, without the pool: that would try again, and log, before it says what is wrong."""
    probe = dialect_of(DEFAULT_DB_ALIAS).own_connection(CONNECT_TIMEOUT_S)
    try:
        probe.ensure_connection()
    except DatabaseProblem as problem:
        raise CannotRun(f"can't open the database {place()}: {problem}") from None
    try:
        yield probe
    finally:
        probe.close()


def place() -> str:
    """Where the database is, for messages: never with the password."""
    if file := dialect_of(DEFAULT_DB_ALIAS).file:
        return str(file)
    chosen = settings.DATABASES["default"]
    return f"{chosen['NAME']} on {chosen['HOST'] or 'this machine'}"
