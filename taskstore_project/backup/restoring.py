"""Restore a backup into an empty store, all of it or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from tasks_app.access import audit, sessions
from tasks_app.access.policy import THIS_MACHINE
from tasks_app.access.tokens import of_nodes
from tasks_app.database import ID_JUMP, triggers
from tasks_app.database.table_version import APP, Version, apps_after, known_migrations, version_of
from taskstore_project import startup_migration
from taskstore_project.base_command import CannotRun, actor, grouped
from taskstore_project.data_directory import made_if_done

from .databases import Session, changing, looking
from .file import ROLES, Archive, Manifest, Tell, doubted, migrations, opened, tables_as, with_progress
from .tables import TABLES, Table

# More than any store gives out. After a restore, ids continue beyond all that may have been given out since the backup,
# also by a store that was restored from the same backup before.
IDS_A_SECOND = 2**16

# Queries for the contents that the target of a restore must not have. The first start of a server adds an admin without
# a chosen password, a token, and its audit entry, which don't count. Without LIKE, as % marks parameters.
TO_LOSE = {
    "tasks": "SELECT count(*) FROM tasks_app_task",
    "ended tasks": "SELECT count(*) FROM tasks_app_endedtask",
    "paused groups": "SELECT count(*) FROM tasks_app_pausedgroup",
    "limits": "SELECT count(*) FROM tasks_app_grouplimit",
    "batches": "SELECT count(*) FROM tasks_app_batch",
    "operations": "SELECT count(*) FROM tasks_app_bulkoperation",
    "entries of the audit log": (
        "SELECT count(*) FROM tasks_app_auditentry "
        f"WHERE NOT (action = 'create token' AND substr(actor, 1, {len(audit.NODE)}) = '{audit.NODE}')"
    ),
    "tokens": f"SELECT count(*) FROM tasks_app_token WHERE substr(name, 1, {len(THIS_MACHINE)}) <> '{THIS_MACHINE}'",
    "people": "SELECT count(*) FROM auth_user WHERE id NOT IN (SELECT user_id FROM tasks_app_onetimepassword)",
}


def restore(file: Path, tell: Tell) -> Manifest:
    """Create missing tables, and insert the whole backup in one transaction.

    Ids jump ahead, so that none is given out again. Raises CannotRun, without changing a row, when the file is not a
    complete backup or has other tables, when the store is not empty, or when a server runs in this directory. Then it
    leaves no new directory or file behind.
    """
    with opened(file) as archive, made_if_done(settings.TASKSTORE_DATA):
        if version_of(connection.alias) in (Version.HERE, Version.EARLIER):
            with looking() as session:
                need_empty(session)  # Before its tables change.
        with startup_migration.alone():
            startup_migration.migrate()
        # SQLite can't change tables while it checks references, nor switch that off within a transaction.
        with connection.constraint_checks_disabled(), changing(table.name for table in TABLES) as session:
            need_empty(session)
            with as_written(file, archive.manifest, session) as tables:
                fill(session, archive, tables, tell)
            connection.check_constraints()
            jump(archive.manifest, session)
            revoke_tokens_of_servers()
            sessions.end_all()
            write_down(archive.manifest)
        return archive.manifest


@contextmanager
def as_written(file: Path, manifest: Manifest, session: Session) -> Iterator[list[Table]]:
    """Have the empty tables be those of the version that wrote the backup, and migrate them afterwards.

    Yields these tables. Raises CannotRun if it is no version that this one can migrate.
    """
    here, theirs = migrations(session), manifest.migrations
    executor = MigrationExecutor(connection)
    if theirs[APP] not in known_migrations(executor.loader):
        raise CannotRun(f"a later version wrote the backup ({theirs[APP]}): restore it with that version")
    if theirs["auth"] != here["auth"]:
        raise CannotRun(
            f"the backup has tables of another version of Django ({theirs['auth']}; here {here['auth']}): restore it "
            "with that version, then start this version on it"
        )
    tables = tables_as(manifest, apps_after(theirs[APP], executor.loader))
    executor.migrate([(APP, theirs[APP])])
    yield tables
    forwards = MigrationExecutor(connection)
    with doubted(file):  # A migration may not understand what is in its rows.
        forwards.migrate(forwards.loader.graph.leaf_nodes(APP))
    triggers.put_right(connection.alias)


def need_empty(session: Session) -> None:
    counts = {what: session.number(sql) for what, sql in TO_LOSE.items()}
    if held := ", ".join(f"{what}: {grouped(count)}" for what, count in counts.items() if count):
        raise CannotRun(
            f"the store in {startup_migration.place()} is not empty ({held}): "
            "restore into a new --data directory or database"
        )


def fill(session: Session, archive: Archive, tables: Sequence[Table], tell: Tell) -> None:
    # The first start of a server has added an admin, and an audit entry of its token.
    with triggers.lifted(session.connection):
        for name in (
            *("django_session", "tasks_app_sessiongeneration", ROLES),
            *(table.name for table in reversed(tables)),
        ):
            session.execute(f"DELETE FROM {name}")
    for table in tables:
        rows = with_progress(archive.rows(table.name, table.kinds), table.name, {}, tell)
        session.insert(table, table.for_the_database(rows, session.connection))
    for user, role in archive.rows(ROLES, [int, str]):
        sql = f"INSERT INTO {ROLES} (user_id, group_id) SELECT %s, id FROM auth_group WHERE name = %s"
        session.execute(sql, [user, role])
    session.number_on(tables)


def jump(manifest: Manifest, session: Session) -> None:
    seconds = max(0, session.number(f"SELECT {session.dialect.clock}") - manifest.made_at_ms) // 1_000
    ahead = ID_JUMP + seconds * IDS_A_SECOND
    session.send(session.dialect.go_on_after("ids", manifest.ids + ahead))
    session.send(session.dialect.go_on_after("commits", manifest.commits + ahead))
    newest_batch = session.number("SELECT coalesce(max(id), 0) FROM tasks_app_batch")
    session.send(session.dialect.go_on_after("batches", newest_batch + ahead))
    for statements in session.dialect.change_limits(wait_ms=1_000):  # So that they are read.
        for statement in statements:
            session.send(statement)


def revoke_tokens_of_servers() -> None:
    """Revoke the servers' tokens for programs on their machines, which no server renews here."""
    of_nodes().filter(revoked_at=None).update(revoked_at=timezone.now())


def write_down(manifest: Manifest) -> None:
    moment = datetime.fromtimestamp(manifest.made_at_ms / 1_000, UTC)
    audit.record(actor(), "restore", selection=f"backup of {moment:%Y-%m-%d %H:%M:%S} UTC", done=manifest.tasks)
