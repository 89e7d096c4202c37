"""A gate: check that servers of the previous release keep working after each migration.

Servers are upgraded one after the other. The first new one changes the tables while the others still serve.
A migration that does more than add says in its `old_servers` why they keep working, for example because they do
not use the column any more. A separate tool, because linters of models don't see migrations in SQL.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator

from django.db import migrations
from django.db.migrations.operations.base import Operation

FIRST_RELEASE = "0001_initial"  # No release had older tables.

HARMLESS = (
    migrations.CreateModel,
    migrations.AddIndex,
    migrations.RemoveIndex,
    migrations.AlterModelOptions,
    migrations.AlterModelManagers,
    migrations.AlterModelTableComment,
)


def problems(migration: migrations.Migration) -> Iterator[str]:
    """Yield the problems of a migration for servers of the previous release."""
    if not getattr(migration, "old_servers", ""):
        for operation in migration.operations:
            if why := _trouble(operation):
                yield f"{migration.name}: {operation.describe()}: {why}; or say in `old_servers` why they can go on"


def _trouble(operation: Operation) -> str:
    match operation:
        case migrations.AddField(field=field):
            is_filled = field.null or field.has_db_default() or field.many_to_many
            return "" if is_filled else "old servers add rows without it: let it be null or have a db_default"
        case migrations.AddConstraint():
            return "old servers may write what it refuses"
        case migrations.RunPython() | migrations.RunSQL():
            return "nobody can see what old servers find afterwards"
    return "" if isinstance(operation, HARMLESS) else "old servers still use what it changes"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        # The settings write a key to the data directory.
        os.environ |= {"TASKSTORE_DATA": folder, "DJANGO_SETTINGS_MODULE": "taskstore_project.settings"}
        import django
        from django.db.migrations.loader import MigrationLoader

        django.setup()
        ours = sorted(
            (name, migration)
            for (app, name), migration in MigrationLoader(None).disk_migrations.items()
            if app == "tasks_app" and name > FIRST_RELEASE
        )
    found = [problem for _, migration in ours for problem in problems(migration)]
    print("\n".join(found) or f"{len(ours)} migrations since {FIRST_RELEASE}: servers of the release before can go on")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
