"""Which version of the tables a database has.

Migrations say which one it should be. Until the first of them was frozen, revisions changed it without another name.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from django.apps import apps
from django.db import connections
from django.db.migrations.loader import MigrationLoader

APP = "tasks_app"
FIRST_TABLE = "tasks_app_task"
UNRELEASED = (
    "was made by an unreleased revision with other tables: export its tasks with that revision and import them into a "
    "new store, as docs/upgrading.md tells"
)

Tables = Mapping[str, set[str]]  # The columns by the name of the table.


class Version(Enum):
    NONE = "no tables"
    EARLIER = "tables of an earlier version"
    HERE = "the tables of this version"
    LATER = "tables of a later version"
    UNRELEASED = "tables that no version has"


def version_of(using: str) -> Version:
    """Return which version the tables of this database are of."""
    connection = connections[using]
    loader = MigrationLoader(connection)
    known = known_migrations(loader)
    applied = {name for app, name in loader.applied_migrations if app == APP}
    with connection.cursor() as cursor:
        there = connection.introspection.table_names(cursor)
        if FIRST_TABLE not in there:
            return Version.NONE
        if not known:  # Django makes the tables of the models alone, as in many a test.
            return Version.HERE
        if applied - set(known):
            return Version.LATER
        last = max(applied, default=known[0], key=known.index)  # A first migration that was cut short is not noted.
        right = tables_of(apps_after(last, loader))
        found = {
            name: {column.name for column in connection.introspection.get_table_description(cursor, name)}
            for name in there
            if name in right.keys() | tables_of(apps).keys()  # Another application's may begin as ours do.
        }
    if found != right:
        return Version.UNRELEASED
    return Version.HERE if known[-1] in applied else Version.EARLIER


def why_unusable(using: str, place: str, migrate: str) -> str:
    """Return why the database can't be used as it is; empty if it can. `migrate`: the command that changes it."""
    match version_of(using):
        case Version.NONE:
            return f"{place} lacks tables until `{migrate}` has run"
        case Version.EARLIER:
            return f"{place} has tables of an earlier version until `{migrate}` has run"
        case Version.UNRELEASED:
            return f"{place} {UNRELEASED}"
    return ""


def known_migrations(loader: MigrationLoader) -> list[str]:
    """Return the names of this version's migrations, the first one first."""
    return sorted(name for app, name in loader.disk_migrations if app == APP)


def apps_after(migration: str, loader: MigrationLoader) -> Any:
    """Return the apps with their models as they are after this migration."""
    is_last = migration == known_migrations(loader)[-1]
    return apps if is_last else loader.project_state((APP, migration)).apps


def tables_of(known: Any) -> Tables:
    """Return the tables of the models of these apps."""
    models = known.get_app_config(APP).get_models()
    return {model._meta.db_table: {field.column for field in model._meta.concrete_fields} for model in models}
