"""What tests leave in the database goes, but for what the migrations put there."""

from django.contrib.auth.models import User
from django.db import connection, transaction

from tasks_app.database import dialect_of
from tasks_app.database.limit_changes import announce_change
from tasks_app.database.triggers import lifted
from tasks_app.models import AuditEntry, GroupLimit

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
    "tasks_app_cancelledtask",
    "tasks_app_pausedgroup",
    "tasks_app_grouplimit",
    "tasks_app_limitchange",
    "tasks_app_limitedtask",
    "tasks_app_limitedvalue",
    "tasks_app_recentclaim",
    "tasks_app_duetime",
    "tasks_app_batch",
    "tasks_app_batchcount",
    "tasks_app_batchgroup",
    "tasks_app_batchplan",
    "tasks_app_rightsholder",
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
    were_limited = GroupLimit.objects.exists()
    with connection.cursor() as cursor:
        deletions = [f"DELETE FROM {table}" for table in FILLED]  # noqa: S608 - the names are ours
        # SQLite takes one statement at a time. PostgreSQL takes them all in one round trip and one transaction.
        for statement in ["; ".join(deletions)] if connection.vendor == "postgresql" else deletions:
            cursor.execute(statement)
    if were_limited:  # Now that they are gone: whoever reads them again finds none.
        with transaction.atomic():
            announce_change(dialect_of(), lambda: None)
    if User.objects.exists():
        User.objects.all().delete()
    if AuditEntry.objects.exists():
        with transaction.atomic(), lifted(connection):
            AuditEntry.objects.all().delete()
