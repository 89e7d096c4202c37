"""The store of a worker of Django's tasks, which sends the signals of failed tasks that could not send them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django.db import close_old_connections

from taskstore.types.job_record import How, JobRecord, JobStatus, NotAJob, status_of
from taskstore.types.tasks import State, Task

from ..local_store import LocalStore
from .framework import TaskResultDoesNotExist, task_finished
from .results import JobEnded

if TYPE_CHECKING:
    from .backend import TaskStoreBackend

SILENT = frozenset({How.DIED, How.TIMED_OUT, How.LOST})  # Ends in which the function sends no signal.


class WatchedStore(LocalStore):
    def __init__(self, backend: TaskStoreBackend) -> None:
        super().__init__()
        self._backend = backend

    def commit(self, **asked: Any) -> list[Task]:
        made = super().commit(**asked)
        for task in made:
            if status_of(task.group, State.READY) is JobStatus.FAILED and _was_silent(task):
                self._send_finished(task)
        return made

    def _send_finished(self, task: Task) -> None:
        close_old_connections()
        # The job may not be a task of this project, or may be purged already.
        with suppress(TaskResultDoesNotExist):
            result = self._backend.get_result(str(task.origin))
            try:
                raise JobEnded(result.errors[-1].traceback if result.errors else "")
            except JobEnded:  # Receivers that log or report errors expect a current exception.
                task_finished.send_robust(type(self._backend), task_result=result)
        close_old_connections()


def _was_silent(task: Task) -> bool:
    try:
        attempts = JobRecord.decode(task.data).attempts
    except NotAJob:
        return False
    return bool(attempts) and attempts[-1].how in SILENT
