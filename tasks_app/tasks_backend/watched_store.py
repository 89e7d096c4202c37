"""The store of a worker of Django's tasks, which sends the signals that their functions could not send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import close_old_connections
from django.dispatch import Signal

from taskstore.types.job_record import How, JobRecord, JobStatus, NotAJob, queue_of, status_of
from taskstore.types.tasks import NOBODY, State, Task

from ..local_store import LocalStore
from .framework import task_finished
from .signals import task_retried, tell

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
            if queue_of(task.group) and (signal := self._due_for(task)):
                self._tell(signal, task.origin)
        return made

    def _due_for(self, task: Task) -> Signal | None:
        status = status_of(task.group, State.READY)
        if status is JobStatus.CANCELLED:  # It has expired.
            return task_finished
        if status is JobStatus.FAILED:
            return task_finished if _was_silent(task) else None
        # What is leased was claimed again, or goes on: its last attempt was told of before.
        is_retry = status is JobStatus.PENDING and task.owner == NOBODY
        return task_retried if is_retry and task_retried.receivers and _was_silent(task) else None

    def cancelled_here(self, job_id: int) -> None:
        """Send the signal of a job that was cancelled while this worker held it."""
        self._tell(task_finished, job_id)

    def _tell(self, signal: Signal, job_id: int) -> None:
        close_old_connections()
        tell(signal, self._backend, job_id)
        close_old_connections()


def _was_silent(task: Task) -> bool:
    try:
        attempts = JobRecord.decode(task.data).attempts
    except NotAJob:
        return False
    return bool(attempts) and attempts[-1].how in SILENT
