"""django-tasks-db: the steps of its worker, with a process for each worker."""

from __future__ import annotations

import os
import uuid
from importlib import import_module
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command

from taskstore_project import environment

from ..pace import DATA
from .client import ProcessClient

CHUNK = 1_000
BACKEND = QUEUE = "default"
HAS_OWN_TASKS = django.VERSION >= (6,)


def set_up_django() -> None:
    database = environment.postgresql_database("DATABASE_URL", os.environ["DATABASE_URL"])
    del database["OPTIONS"]["pool"]  # A worker needs one connection.
    settings.configure(
        INSTALLED_APPS=[*([] if HAS_OWN_TASKS else ["django_tasks"]), "django_tasks_db"],
        DATABASES={"default": database},
        TASKS={BACKEND: {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": [QUEUE]}},
        USE_TZ=True,
    )
    django.setup()


set_up_django()

from django_tasks_db.management.commands.db_worker import Worker  # noqa: E402 - Django has to be ready.
from django_tasks_db.models import DBTaskResult, get_date_max  # noqa: E402
from django_tasks_db.utils import exclusive_transaction  # noqa: E402

tasks = import_module("django.tasks" if HAS_OWN_TASKS else "django_tasks")


@tasks.task()  # type: ignore[untyped-decorator]  # Each line of Django has it elsewhere.
def nothing(data: str) -> None:
    """The job."""


class DjangoTasksClient(ProcessClient):
    worker: Worker

    def prepare(self) -> None:
        call_command("migrate", verbosity=0, interactive=False, skip_checks=True)

    def add(self, tasks: int) -> None:
        add_rows(tasks)

    def open(self) -> None:
        self.worker = Worker(
            queue_names=[QUEUE],
            interval=0,
            batch=True,
            backend_name=BACKEND,
            startup_delay=False,
            max_tasks=None,
            worker_id=uuid.uuid4().hex,
            excluded_queue_names=[],
        )

    def claim(self) -> Any:
        # As in Worker.run(), which can't be asked for one task.
        ready = DBTaskResult.objects.ready().filter(backend_name=BACKEND).filter(queue_name__in=[QUEUE])
        with exclusive_transaction(ready.db):
            claimed = ready.get_locked()
            if claimed is not None:
                claimed.claim(self.worker.worker_id)
        return claimed

    def finish(self, task: Any) -> None:
        self.worker.run_task(task)


def add_rows(number: int) -> None:
    """Those of `nothing.enqueue(...)`, which writes them one by one."""
    for start in range(0, number, CHUNK):
        DBTaskResult.objects.bulk_create(_row() for _ in range(min(CHUNK, number - start)))


def succeeded() -> int:
    return int(DBTaskResult.objects.filter(status="SUCCESSFUL").count())


def _row() -> DBTaskResult:
    return DBTaskResult(
        args_kwargs={"args": [DATA.decode()], "kwargs": {}},
        task_path=nothing.module_path,
        queue_name=QUEUE,
        backend_name=BACKEND,
        run_after=get_date_max(),
    )
