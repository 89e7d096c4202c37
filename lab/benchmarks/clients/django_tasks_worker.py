"""django-tasks-db's worker, its command `db_worker`: started in the environment that names the database."""

from __future__ import annotations

from django.core.management import call_command

from .django_tasks import BACKEND, QUEUE, add_rows, succeeded, tasks
from .job_functions import look_at_clock as look
from .jobs import JobClient, module


@tasks.task()  # type: ignore[untyped-decorator]  # Each line of Django has it elsewhere.
def look_at_clock(file: str) -> None:
    look(file)


class DjangoTasksWorkerClient(JobClient):
    def prepare(self) -> None:
        call_command("migrate", verbosity=0, interactive=False, skip_checks=True)

    def enqueue(self, number: int) -> None:
        add_rows(number)

    def enqueue_look_at_clock(self, file: str) -> None:
        look_at_clock.enqueue(file)

    def workers(self) -> list[list[str]]:
        return [module("django_tasks_worker")] * self.load.clients

    def finished(self) -> int:
        return succeeded()


if __name__ == "__main__":
    call_command("db_worker", queue_name=QUEUE, backend_name=BACKEND, startup_delay=False, reload=False, verbosity=0)
