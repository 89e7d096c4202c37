"""What the database itself watches over, put right after every migrate.

Rows of the store are never changed, and those of the audit log go only when they are older than TASKSTORE_AUDIT_DAYS:
the triggers know the number of the last migrate, which each start of a server does.

Not in a migration: on SQLite Django changes a table by building a new one, and the
triggers of the old one are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from django.apps import apps
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import AddIndex, RunPython

from taskstore.types.tasks import Standing

from ..conf import retention
from . import MINUTE_MS, dialect_of, history_partitions

# Rows of these tables are inserted and deleted, never changed.
UNCHANGEABLE = ("tasks_app_task", "tasks_app_payload", "tasks_app_endedtask", "tasks_app_auditentry")
# Nor are those of this one deleted, as long as they are young.
KEPT = "tasks_app_auditentry"
# One of these is made by the migrations alone, and not by Django from the models.
OF_THE_MIGRATIONS = {"tasks_app_log_intact", "tasks_app_counters"}


def put_right(using: str, **_: Any) -> None:
    """Make the triggers that refuse UPDATE, and DELETE of the audit log; the first tables of the trail.

    And never let an id be given out again. Without migrations, as in many a test, make what they would have made.
    """
    connection = connections[using]
    tables = set(connection.introspection.table_names())
    is_postgresql = connection.vendor == "postgresql"
    # Other applications may have been migrated first, and a second database may have none of our tables.
    if not tables.issuperset(UNCHANGEABLE):
        if is_postgresql:  # They may have gone, with their triggers.
            with connection.cursor() as cursor:
                cursor.execute("DROP FUNCTION IF EXISTS tasks_app_refuse_update, tasks_app_keep_audit")
        return
    if not tables & OF_THE_MIGRATIONS:
        make_around(connection)
    with connection.cursor() as cursor:
        # One by one: a lock on all of these tables at once would stop the commits of other servers for longer.
        for statement in POSTGRESQL if is_postgresql else ():
            cursor.execute(statement)
        # In one step: at no moment is there no trigger.
        with transaction.atomic(using=using):
            for statement in keeping(connection.vendor, retention.audit_days()):
                cursor.execute(statement)
            for statement in () if is_postgresql else _on_sqlite(connection, cursor):
                cursor.execute(statement)
    dialect = dialect_of(using)
    with transaction.atomic(using=using):
        dialect.rows(dialect.limits_changed)  # It may have been `flush`, which has emptied the table of limits.
        if is_postgresql:
            dialect.drive(history_partitions.make_ahead(dialect))


@contextmanager
def lifted(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Let entries of the audit log go however young they are, in the caller's transaction.

    For a restore, into a store of which the audit log holds nothing but the start of its server, and for `flush`.
    """
    if KEPT not in connection.introspection.table_names():
        yield
        return
    is_postgresql = connection.vendor == "postgresql"
    with connection.cursor() as cursor:
        for name in ("kept", "kept_whole") if is_postgresql else ("kept",):
            cursor.execute(f"DROP TRIGGER IF EXISTS {KEPT}_{name}{f' ON {KEPT}' if is_postgresql else ''}")
        yield
        for statement in keeping(connection.vendor, retention.audit_days()):
            cursor.execute(statement)


def count_on(instance: Any, using: str, *, raw: bool = False, created: bool = False, **_: Any) -> None:
    """Count a task that `loaddata` has brought in, and never give out its id, or the number of a commit, again.

    Connected to Django's signal of a saved row: `raw` are those of fixtures.
    """
    if raw and created:
        if hasattr(instance, "standing"):
            apps.get_model("tasks_app", "CountDelta")._base_manager.using(using).create(**counts_of(instance))
        dialect = dialect_of(using)
        commit = getattr(instance, "ended_by_commit", instance.made_by_commit)
        for name, number in (("ids", instance.id), ("commits", commit)):
            dialect.rows(*dialect.go_on_after(name, number))


def counts_of(task: Any) -> dict[str, Any]:
    """Return the row that adds this task to the counts of its group."""
    leased = int(task.leased_since_ms > 0)
    standings = {each.name.lower(): int(task.standing == each and not leased) for each in Standing if each}
    numbers = {"tasks": 1, "leases": leased, "errors": int(task.error != ""), **standings}
    others = {"minute": task.made_at_ms // MINUTE_MS, "entered": 0, "left": 0, "failures": 0, "claimed": 0}
    return {"group": task.group, **numbers, **others, "waits": "", "runs": "", "done": ""}


REFUSED = "rows of {} are immutable: delete the row and insert a successor"

POSTGRESQL = [
    f"""
    CREATE OR REPLACE FUNCTION tasks_app_refuse_update() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION '{REFUSED.format("%")}', TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation';
    END
    $$
    """,
    # For rows: `loaddata` asks for an update of none, before it inserts.
    *(
        f"""
        CREATE OR REPLACE TRIGGER {table}_immutable
        BEFORE UPDATE ON {table}
        FOR EACH ROW EXECUTE FUNCTION tasks_app_refuse_update()
        """
        for table in UNCHANGEABLE
    ),
]


def _on_sqlite(connection: BaseDatabaseWrapper, cursor: Any) -> Iterator[str]:
    for table in UNCHANGEABLE:
        refused = f"RAISE(ABORT, '{REFUSED.format(table)}')"
        yield f"CREATE TRIGGER IF NOT EXISTS {table}_immutable BEFORE UPDATE ON {table} BEGIN SELECT {refused}; END"
        # INSERT OR REPLACE fires no trigger of what it deletes. But its way of settling conflicts is also that of the
        # statements in a trigger: it alone replaces the counter, and is refused. Where it is up to SQLite to choose
        # the id, a trigger sees -1.
        found = connection.introspection.get_constraints(cursor, table).values()
        unique = [each["columns"] for each in found if (each["unique"] or each["primary_key"]) and all(each["columns"])]
        same = (" AND ".join(f'"{name}" = NEW."{name}" AND NEW."{name}" <> -1' for name in names) for names in unique)
        yield f"DROP TRIGGER IF EXISTS {table}_unreplaced"
        yield f"""
            CREATE TRIGGER {table}_unreplaced BEFORE INSERT ON {table}
            WHEN EXISTS (SELECT 1 FROM {table} WHERE {" OR ".join(same)})
            BEGIN
                INSERT OR IGNORE INTO tasks_app_counters VALUES ('replaced', -1);
                SELECT {refused} FROM tasks_app_counters WHERE name = 'replaced' AND value < 0;
            END
        """
    yield "INSERT OR IGNORE INTO tasks_app_counters VALUES ('replaced', 0)"
    yield """
        UPDATE tasks_app_counters
        SET value = max(
            value,
            (SELECT coalesce(max(id), 0) FROM tasks_app_task),
            (SELECT coalesce(max(id), 0) FROM tasks_app_endedtask)
        )
        WHERE name = 'ids'
    """


def keeping(vendor: str, days: int) -> list[str]:
    """Return the statements for triggers that refuse to delete entries of the audit log newer than this many days."""
    refusal = f"entries of the audit log are kept for {days} days"
    return _keeping_on_postgresql(refusal, days) if vendor == "postgresql" else _keeping_on_sqlite(refusal, days)


def _keeping_on_postgresql(refusal: str, days: int) -> list[str]:
    is_young = f"at + interval '{days} days' > clock_timestamp()"
    return [
        # A TRUNCATE of nothing may be: `flush` empties all tables.
        f"""
        CREATE OR REPLACE FUNCTION tasks_app_keep_audit() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF TG_OP = 'DELETE' OR EXISTS (SELECT FROM {KEPT} WHERE {is_young}) THEN
                RAISE EXCEPTION '{refusal}' USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            RETURN NULL;
        END
        $$
        """,
        f"""
        CREATE OR REPLACE TRIGGER {KEPT}_kept
        BEFORE DELETE ON {KEPT}
        FOR EACH ROW WHEN (OLD.{is_young}) EXECUTE FUNCTION tasks_app_keep_audit()
        """,
        f"""
        CREATE OR REPLACE TRIGGER {KEPT}_kept_whole
        BEFORE TRUNCATE ON {KEPT} EXECUTE FUNCTION tasks_app_keep_audit()
        """,
    ]


def _keeping_on_sqlite(refusal: str, days: int) -> list[str]:
    refused = f"BEGIN SELECT RAISE(ABORT, '{refusal}'); END"
    return [
        # Made anew, for another number of days: there is no OR REPLACE for triggers. Nor is there TRUNCATE.
        f"DROP TRIGGER IF EXISTS {KEPT}_kept",
        f"CREATE TRIGGER {KEPT}_kept BEFORE DELETE ON {KEPT} "
        f"WHEN julianday('now') - julianday(OLD.at) < {days} {refused}",
    ]


# ---- What the migrations make beyond Django's tables: sequences, counters, partitions


class OwnSQL(RunPython):
    """A step of a migration: SQL statements for one kind of database only."""

    reduces_to_sql = True  # `sqlmigrate` shows them.

    def __init__(self, vendor: str, forwards: Iterable[str], backwards: Iterable[str] = ()) -> None:
        self.vendor = vendor
        super().__init__(self._running(forwards), self._running(backwards))

    def _running(self, statements: Iterable[str]) -> Callable[[Any, Any], None]:
        def run(apps: Any, schema_editor: Any) -> None:
            if schema_editor.connection.vendor == self.vendor:
                for statement in statements:
                    schema_editor.execute(statement)

        return run


def make_around(connection: BaseDatabaseWrapper) -> None:
    """Make it around tables that Django has made of the models alone, without the migrations."""
    folder = import_module("tasks_app.migrations")
    names = sorted(module.name for module in iter_modules(folder.__path__))
    modules = [import_module(f"{folder.__name__}.{name}") for name in names]
    steps = [step for module in modules for step in module.Migration.operations]
    installed: Any = apps
    indexes = [step for step in steps if isinstance(step, AddIndex)]
    with connection.schema_editor() as editor:
        # They belong on what the SQL puts in the place of such a table.
        for step in indexes:
            editor.remove_index(installed.get_model("tasks_app", step.model_name), step.index)
        for step in steps:
            if step in indexes:
                editor.add_index(installed.get_model("tasks_app", step.model_name), step.index)
            elif isinstance(step, OwnSQL):
                step.code(installed, editor)
