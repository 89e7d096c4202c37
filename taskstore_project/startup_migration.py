"""Migrate the database before the server starts."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connection
from django.db import Error as DatabaseProblem
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from tasks_app.access.people import Person
from tasks_app.database import dialect_of
from tasks_app.database.table_version import UNRELEASED, Version, version_of, why_unusable

from .base_command import CannotRun, typed

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5
OWN = ("taskstore_project", "made_the_database")  # Noted among the migrations of a database that was empty before.
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


def migrate(*, adds_tables: bool = False) -> bool:
    """Create or change the tables. Returns whether the database is the store's alone, and not also a project's.

    Raises CannotRun when a later release has changed them already, unless the setting allows it; and when tables are
    missing in the database of a project, unless `adds_tables`.
    """
    loader = MigrationLoader(connection)
    applied = {app for app, _ in loader.applied_migrations}
    others = sorted(applied - loader.migrated_apps - {OWN[0]})
    if others or (applied and "axes" not in applied):
        _look_at_project(loader, others, adds_tables=adds_tables)
    unknown = loader.applied_migrations.keys() - loader.disk_migrations.keys()
    newer = sorted(name for app, name in unknown if app == "tasks_app")
    if newer and not settings.TASKSTORE_NEWER_DATABASE:
        raise CannotRun(
            f"a later release has changed the database {place()} ({', '.join(newer)}): upgrade this server, or set "
            "TASKSTORE_NEWER_DATABASE=1 if that is the very next release"
        )
    if version_of(DEFAULT_DB_ALIAS) is Version.UNRELEASED:
        raise CannotRun(f"the store in {place()} {UNRELEASED}")
    call_command("migrate", verbosity=0, interactive=False, skip_checks=True)
    return OWN in MigrationRecorder(connection).applied_migrations()


def keep_copy(file: Path, database: Any) -> None:
    """Keep a copy of a SQLite database beside it, as it is before its tables change. Raises CannotRun."""
    copy, draft = file.with_name(f"{file.name}.before-upgrade"), file.with_name(f"{file.name}.copying")
    draft.unlink(missing_ok=True)
    try:
        with database.cursor() as cursor:
            cursor.execute("VACUUM INTO %s", [str(draft)])
        draft.chmod(0o600)
        draft.replace(copy)
    except (DatabaseProblem, OSError) as problem:
        draft.unlink(missing_ok=True)
        raise CannotRun(f"can't keep a copy of the database in {copy} before its tables change: {problem}") from None
    log.warning("a copy of the database before that is %s", copy)


def _look_at_project(loader: MigrationLoader, others: Sequence[str], *, adds_tables: bool) -> None:
    apps = f", with the apps {', '.join(others)}" if others else ""
    whose = f"the database {place()} belongs to a Django project{apps}"
    in_it = "show the console in the project itself, as docs/django.md tells"
    if Person._meta.db_table not in connection.introspection.table_names():
        raise CannotRun(f"{whose}, whose model of users this server does not know: {in_it}")
    missing = sorted({app for app, name in loader.graph.nodes if (app, name) not in loader.applied_migrations})
    if missing and not adds_tables:
        raise CannotRun(
            f"{whose}; this server would add tables or columns of {', '.join(missing)}: start it with --add-tables "
            f"to allow that, or {in_it}"
        )


def need_store() -> None:
    """Raise CannotRun when the database can't be reached or has no store yet."""
    file = dialect_of(DEFAULT_DB_ALIAS).file
    if file is not None and not file.exists():
        raise _no_store()  # Opening it would create it.
    with reached() as database, database.cursor() as cursor:
        tables = database.introspection.table_names(cursor)
    if "tasks_app_token" not in tables:
        raise _no_store()
    if why := why_unusable(DEFAULT_DB_ALIAS, f"the store in {place()}", typed("migrate")):
        raise CannotRun(why)


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
