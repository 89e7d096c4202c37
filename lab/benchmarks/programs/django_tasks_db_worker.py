"""django-tasks-db: its command `db_worker`, which runs one task after the other. The benchmark starts several."""

from urllib.parse import parse_qs, urlsplit

import django
import task
from django.conf import settings

address = urlsplit(task.ADDRESS)
settings.configure(
    INSTALLED_APPS=["django_tasks_db"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": address.path.strip("/"),
            "USER": address.username,
            "HOST": parse_qs(address.query)["host"][0],
        }
    },
    TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": [task.QUEUE]}},
    USE_TZ=True,
)
django.setup()

from django.core.management import call_command  # noqa: E402 - Django has to be ready.
from django.tasks import task as as_task  # noqa: E402
from django_tasks_db.models import DBTaskResult, get_date_max  # noqa: E402


@as_task(queue_name=task.QUEUE)
def nothing(payload):
    task.run(payload)


if task.DO == "prepare":
    call_command("migrate", verbosity=0, interactive=False, skip_checks=True)
elif task.DO == "work":
    call_command("db_worker", queue_name=task.QUEUE, startup_delay=False, reload=False, verbosity=0)
else:
    for payloads in task.batches():
        if len(payloads) == 1:
            nothing.enqueue(payloads[0])
            continue
        DBTaskResult.objects.bulk_create(  # `enqueue` writes them one by one.
            DBTaskResult(
                args_kwargs={"args": [payload], "kwargs": {}},
                task_path=nothing.module_path,
                queue_name=task.QUEUE,
                backend_name="default",
                run_after=get_date_max(),
            )
            for payload in payloads
        )
