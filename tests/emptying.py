"""What tests leave in the database goes, but for what the migrations put there."""

from django.contrib.auth.models import User
from django.db import connection

FILLED = (
    "tasks_app_task",
    "tasks_app_payload",
    "tasks_app_endedtask",
    "tasks_app_token",
    "tasks_app_auditentry",
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
)


def empty() -> None:
    with connection.cursor() as cursor:
        for table in FILLED:
            cursor.execute(f"DELETE FROM {table}")  # noqa: S608 - the names are ours
    if User.objects.exists():
        User.objects.all().delete()
