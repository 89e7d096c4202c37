"""Signals about tasks whose function can't send them: it was killed or cancelled, or has not been called.

The worker that holds a task sends them. Of a task that waits, the process of the project that cancels it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial

from django.db import transaction
from django.dispatch import Signal

from taskstore.types.job_record import JobStatus, queue_of, status_of
from taskstore.types.tasks import State

from .backend import TaskStoreBackend
from .framework import TaskResultDoesNotExist, task_backends, task_finished
from .results import JobEnded

task_retried = Signal()  # Sent as task_finished, for a failed attempt that another one follows.


def tell(signal: Signal, backend: TaskStoreBackend, job_id: int) -> bool:
    """Send the signal with the result of a job. Returns False if it is not a task of this project, or purged."""
    with suppress(TaskResultDoesNotExist):
        result = backend.get_result(str(job_id))
        try:
            raise JobEnded(result.errors[-1].traceback if result.errors else "")
        except JobEnded:  # Receivers that log or report errors expect a current exception.
            signal.send_robust(type(backend), task_result=result)
            return True
    return False


def tell_cancelled(made: Mapping[int, tuple[int, str]], using: str, **_: object) -> None:
    """Once the transaction is committed, send task_finished for tasks that were cancelled while they waited.

    `made`: by the ids that they had, the first id of each, and its present group.
    """
    jobs = {before: origin for before, (origin, group) in made.items() if _is_cancelled_job(group)}
    if jobs and (backends := list(_backends())):
        transaction.on_commit(partial(_tell_waiting, jobs, backends, using), using=using, robust=True)


def _is_cancelled_job(group: str) -> bool:
    return bool(queue_of(group)) and status_of(group, State.READY) is JobStatus.CANCELLED


def _backends() -> Iterable[TaskStoreBackend]:
    return (backend for alias in task_backends if isinstance(backend := task_backends[alias], TaskStoreBackend))


def _tell_waiting(jobs: Mapping[int, int], backends: Iterable[TaskStoreBackend], using: str) -> None:
    from ..models import CancelledTask  # Models can be imported only when the apps are ready.

    held = set(CancelledTask.objects.using(using).filter(id__in=jobs).values_list("id", flat=True))
    for before, origin in jobs.items():
        if before not in held:
            any(tell(task_finished, backend, origin) for backend in backends)
