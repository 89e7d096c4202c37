"""The store of a worker of Django's tasks: it tells of those that have failed and could not tell it themselves."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django.db import close_old_connections

from taskstore.types.job_record import How, JobRecord, JobStatus, NotAJob, status_of
from taskstore.types.tasks import State, Task

from ..local_store import LocalStore
from . import results
from .framework import TaskResult, TaskResultDoesNotExist, task_finished
from .results import JobEnded

if TYPE_CHECKING:
    from .backend import TaskStoreBackend

SILENT = frozenset({How.DIED, How.TIMED_OUT, How.LOST})  # How a function does not come to its own end.


class WatchedStore(LocalStore):
    def __init__(self, backend: TaskStoreBackend) -> None:
        super().__init__()
        self._backend = backend

    def commit(self, **asked: Any) -> list[Task]:
        made = super().commit(**asked)
        for task in made:
            if status_of(task.group, State.READY) is JobStatus.FAILED and _was_silent(task):
                self._tell(task)
        return made

    def _tell(self, task: Task) -> None:
        close_old_connections()
        # It may be no task of this project, or be purged already.
        with suppress(TaskResultDoesNotExist):
            _send(type(self._backend), results.find(str(task.origin), self._backend))
        close_old_connections()


def _send(sender: type[TaskStoreBackend], result: TaskResult[..., Any]) -> None:
    """While an exception is handled, as receivers expect it: what logs or reports errors takes it from there."""
    try:
        raise JobEnded(result.errors[-1].traceback if result.errors else "")
    except JobEnded:
        task_finished.send_robust(sender, task_result=result)


def _was_silent(task: Task) -> bool:
    try:
        attempts = JobRecord.decode(task.data).attempts
    except NotAJob:
        return False
    return bool(attempts) and attempts[-1].how in SILENT
