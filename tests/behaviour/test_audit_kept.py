"""The audit log is only ever added to; the database itself sees to it. What is older than its days goes."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from tasks_app.access import audit
from tasks_app.core.actors import Actor
from tasks_app.database import triggers
from tasks_app.models import AuditEntry

from .databases import only_postgresql, only_sqlite
from .test_housekeeping import keep_house

COLUMNS = 'id, at, actor, action, "group", selection, reason, done, skipped, details, duration_ms'
REPLACED = f"INSERT OR REPLACE INTO tasks_app_auditentry ({COLUMNS}) SELECT {COLUMNS} FROM tasks_app_auditentry"  # noqa: S608 - our own names


@pytest.fixture
def entry(transactional_db) -> AuditEntry:
    return entry_of(days_ago=0)


def entry_of(days_ago: float) -> AuditEntry:
    """An entry that was written so long ago."""
    at = timezone.now() - timedelta(days=days_ago)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timezone, "now", lambda: at)
        return audit.record(Actor("ann"), "purge", group="mail", selection="all tasks", done=3)


def execute(sql: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM tasks_app_auditentry",
        "UPDATE tasks_app_auditentry SET actor = 'bob'",
        pytest.param("TRUNCATE tasks_app_auditentry", marks=only_postgresql),
        pytest.param("TRUNCATE tasks_app_auditentry CASCADE", marks=only_postgresql),
        pytest.param(REPLACED, marks=only_sqlite),
    ],
)
def test_the_database_refuses_to_change_or_delete_it(entry, sql):
    before = list(AuditEntry.objects.values())
    with pytest.raises(DatabaseError, match=r"kept for 400 days|immutable"):
        execute(sql)
    assert list(AuditEntry.objects.values()) == before


@pytest.fixture
def guard_of_before(transactional_db) -> Iterator[None]:
    """The triggers are again as they were, once the settings are."""
    yield
    triggers.put_right("default")


def test_the_days_are_those_of_the_setting_at_the_last_start(guard_of_before, settings):
    entry_of(days_ago=20)
    settings.TASKSTORE_AUDIT_DAYS = 10
    with pytest.raises(DatabaseError, match="kept for 400 days"):
        keep_house()
    triggers.put_right("default")
    keep_house()
    assert not AuditEntry.objects.exists()
    settings.TASKSTORE_AUDIT_DAYS = 10_000_000
    triggers.put_right("default")
    entry = entry_of(days_ago=3_000)
    keep_house()
    with pytest.raises(DatabaseError, match="kept for 10000000 days"), transaction.atomic():
        entry.delete()
