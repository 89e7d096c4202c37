"""What tests leave in the database goes, but for what the migrations put there."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib.auth.models import User
from django.db import connection, transaction

from tasks_app.database.triggers import put_right
from tasks_app.models import AuditEntry

FILLED = (
    "tasks_app_task",
    "tasks_app_payload",
    "tasks_app_keptpayload",
    "tasks_app_uniquekey",
    "tasks_app_endedtask",
    "tasks_app_token",
    "tasks_app_bulkoperation",
    "tasks_app_bulkitem",
    "tasks_app_keptanswer",
    "tasks_app_pausedgroup",
    "tasks_app_countdelta",
    "tasks_app_grouptotal",
    "tasks_app_rate",
    "tasks_app_workdone",
    "tasks_app_level",
    "tasks_app_client",
    "tasks_app_progressreport",
    "tasks_app_endedsession",
)


def empty() -> None:
    with connection.cursor() as cursor:
        deletions = [f"DELETE FROM {table}" for table in FILLED]  # noqa: S608 - the names are ours
        # SQLite takes one statement at a time. PostgreSQL takes them all in one round trip and one transaction.
        for statement in ["; ".join(deletions)] if connection.vendor == "postgresql" else deletions:
            cursor.execute(statement)
    if User.objects.exists():
        User.objects.all().delete()
    if AuditEntry.objects.exists():
        with without_the_guard_of_the_audit():
            AuditEntry.objects.all().delete()


@contextmanager
def without_the_guard_of_the_audit() -> Iterator[None]:
    """Only who may change the tables themselves can do this."""
    table = " ON tasks_app_auditentry" if connection.vendor == "postgresql" else ""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TRIGGER tasks_app_auditentry_kept{table}")
        yield
        put_right("default")
