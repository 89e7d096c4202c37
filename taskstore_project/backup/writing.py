"""Write a backup of all tables at one moment, while the store is served."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
from django.db.migrations.recorder import MigrationRecorder

from taskstore_project.base_command import grouped

from .databases import Session, looking
from .file import FORMAT, Manifest, drafted
from .tables import TABLES, Row

ROLES = "auth_user_groups"  # The roles of users, by name: the ids of roles differ between databases.
APPLICATIONS = ("auth", "tasks_app")
TELL_EVERY = 100_000  # Rows.

Tell = Callable[[str], None]
encode = msgspec.json.Encoder().encode


def write(file: Path, tell: Tell) -> Manifest:
    """Write the store to the file, replacing an existing one. Calls `tell` with the progress now and then.

    Raises CannotRun when the file can't be written; an existing file stays then.
    """
    with drafted(file) as draft, looking() as session:
        # The time first: a restore derives from it how many ids may have been given out since.
        made_at_ms = session.number(f"SELECT {session.dialect.clock}")
        counted: dict[str, int] = {}
        for table in TABLES:
            rows = table.for_the_file(session.rows(table))
            draft.put(table.name, map(encode, with_progress(rows, table.name, counted, tell)))
        draft.put(ROLES, map(encode, with_progress(roles(session), ROLES, counted, tell)))
        manifest = Manifest(
            format=FORMAT,
            made_at_ms=made_at_ms,
            database=session.dialect.name,
            migrations=migrations(session),
            ids=session.number(session.dialect.newest_id),
            commits=session.number(session.dialect.newest_commit),
            rows=counted,
        )
        draft.end(manifest)
    return manifest


def with_progress(rows: Iterable[Row], name: str, counted: dict[str, int], tell: Tell) -> Iterator[Row]:
    """Yield the rows, and store their number in `counted`."""
    counted[name] = 0
    for count, row in enumerate(rows, start=1):
        yield row
        counted[name] = count
        if count % TELL_EVERY == 0:
            tell(f"{name}: {grouped(count)} rows")


def roles(session: Session) -> list[Row]:
    return session.execute(
        f"SELECT user_id, name FROM {ROLES} JOIN auth_group ON auth_group.id = group_id ORDER BY user_id, name"
    )


def migrations(session: Session) -> dict[str, str]:
    """Return the last migration of each application with tables in a backup."""
    applied = MigrationRecorder(session.connection).applied_migrations()
    return {app: max(name for of, name in applied if of == app) for app in APPLICATIONS}
