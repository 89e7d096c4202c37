"""Tasks of Django's task framework that end together, and those that are added when they have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from taskstore.jobs.registry import current_job
from taskstore.types.batches import plan_of
from taskstore.types.job_record import JobStatus, NotAJob, status_of
from taskstore.types.tasks import NOBODY, NewTask, State

from .framework import DEFAULT_TASK_BACKEND_ALIAS, Task, TaskResult, TaskResultDoesNotExist

if TYPE_CHECKING:
    from taskstore.types.batches import Batch, Planned

AT_ONCE = 200  # Results that are read.

_current: ContextVar[int] = ContextVar("taskstore_batch", default=0)


def current_batch() -> int:
    """Return the id of the batch of the block that this code runs in; 0 outside of such a block."""
    return _current.get()


@contextmanager
def batch(
    name: str = "", *, then: Planned = None, on_failure: Planned = None, failed_ends: bool = False
) -> Iterator[Batch]:
    """Make the tasks that the block enqueues a batch, in the caller's transaction; within another block a part of that.

    `then`: what to add to it once, when all of them have succeeded: `planned(...)`, several of these, or a chain or
    group of them. `on_failure`: what to add once when the first of all that has failed. `failed_ends`: what has failed
    counts as succeeded. Only for tasks of backends of Task Store.
    """
    from ..core.operations import Step
    from ..database import atomic
    from ..models import Task as StoredTask

    with atomic():
        options: Any = {"parent": current_batch(), "failed_ends": failed_ends, "hold": True}
        made, _ = StoredTask.objects.create_batch(
            owner=NOBODY, name=name, steps=[plan_of(then)], on_failure=on_failure, **options
        )
        token = _current.set(made.id)
        try:
            yield made
        finally:
            _current.reset(token)
        StoredTask.objects.change_batch(made.id, Step.RELEASE)


def batch_results(
    batch: int | None = None, backend: str = DEFAULT_TASK_BACKEND_ALIAS
) -> Iterator[TaskResult[..., Any]]:
    """Yield the results of the tasks of a batch that have succeeded so far, in the order in which they were enqueued.

    `batch`: its id; None: that of the batch that the running task belongs to or follows. It leaves out jobs that are
    not tasks of this project. Raises LookupError in a task that follows no batch, and outside of tasks.
    """
    from ..jobs import queues
    from ..models import Task as StoredTask
    from .backend import of_alias  # It imports this module.

    try:
        wanted = current_job().after_batch if batch is None else batch
    except LookupError:
        raise LookupError("no task is running here: name the batch by its id") from None
    if wanted is None:
        raise LookupError("the running task follows no batch")
    of_batch, last = StoredTask.objects.get_queryset().in_batch(wanted).order_by("origin"), 0
    while tasks := list(of_batch.filter(origin__gt=last)[:AT_ONCE]):
        last = tasks[-1].origin
        for task in tasks:
            if status_of(task.group, State.READY) is not JobStatus.SUCCEEDED:
                continue
            with suppress(NotAJob, TaskResultDoesNotExist):
                result = of_alias(backend).result_of(queues.job_of(task))
                yield result


def planned(task: Task[..., Any], *args: Any, **kwargs: Any) -> NewTask:
    """Return a call of the task for `then` and `on_failure`. Raises InvalidTask as `enqueue` does, and for a key."""
    from .backend import of_alias  # It imports this module.

    if not isinstance(task, Task):
        raise TypeError(f"planned needs a function with @task of Django's framework, not {task!r:.100}")
    return of_alias(task.backend).planned(task, args, kwargs)
