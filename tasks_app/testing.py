"""Tests of a project's tasks (docs/django.md): backends without a database, `drain_queue` and `assert_enqueued`.

`drain_queue` and `assert_enqueued` work with these backends, and with the store itself within a TestCase.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, ParamSpec, TypeVar

from msgspec import structs

from taskstore.errors import refuse
from taskstore.jobs.process import answer_to, packed
from taskstore.jobs.verdicts import Verdict, after, assigned, change_of, now_ms, outcome_of
from taskstore.types.job_record import (
    DEFAULT_QUEUE,
    SHOWN_MEMBERS,
    UNCOUNTED,
    Attempt,
    JobError,
    JobRecord,
    JobStatus,
    problems_of,
    queue_group,
    queue_of,
)
from taskstore.types.jobs import Job
from taskstore.types.progress import Progress
from taskstore.types.sentences import unique_key
from taskstore.types.tasks import Change, NewTask, Order, answer_of
from taskstore.worker.children import Over

from .tasks_backend import TaskStoreBackend
from .tasks_backend.backend import Where
from .tasks_backend.framework import (
    DEFAULT_TASK_BACKEND_ALIAS,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    normalize_json,
    task_backends,
    task_finished,
)
from .tasks_backend.functions import Functions
from .tasks_backend.signals import tell

WORKER, OWNER = "tests", 1
LEASE_MS = 3_600_000

P = ParamSpec("P")
R = TypeVar("R")


class MemoryBackend(TaskStoreBackend):
    """Keeps tasks in the memory of this process, with all options. `drain_queue` runs them."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.clear()

    def clear(self) -> None:
        """Forget all tasks, as between two tests."""
        self.jobs: dict[int, Job] = {}
        self._held: dict[tuple[str, str], tuple[int, int]] = {}  # By queue and key: the job, and until when at least.
        self._ids = count(1)

    def _add(self, record: JobRecord, where: Where) -> Job:
        queue, unique, now = where["queue"], where["unique"], now_ms()
        refuse([*problems_of(queue, record, where["labels"]), *unique_key("", unique, where["unique_for_ms"])])
        if unique is not None and (held := self._held.get((queue, unique))):
            job_id, until_ms = held
            if now < until_ms or not self.jobs[job_id].is_finished:
                return structs.replace(self.jobs[job_id], duplicate=True)
        number = next(self._ids)
        due_ms = where["at_ms"] or now
        job = Job(
            id=number,
            task=number,
            queue=queue,
            status=JobStatus.SCHEDULED if due_ms > now else JobStatus.PENDING,
            **_members(record),
            worker="",
            host="",
            pid=0,
            started=0,
            priority=where["priority"],
            labels=where["labels"],
            created=now,
            updated=now,
            available_at_ms=due_ms,
            is_whole=True,
            place=str(number),
        )
        self.jobs[number] = job
        if unique is not None:
            self._held[queue, unique] = (number, now + where["unique_for_ms"])
        return job

    def _find(self, job_id: int) -> Job | None:
        return self.jobs.get(job_id)

    def cancel(self, result_id: str, reason: str = "") -> bool:
        """Cancel a task that has not finished."""
        job = self.jobs[int(result_id)]
        if job.is_finished:
            return False
        error = JobError(type="Cancelled", message=reason)
        self.jobs[job.id] = structs.replace(job, status=JobStatus.CANCELLED, error=error, updated=now_ms())
        tell(task_finished, self, job.id)
        return True

    def take(self, queues: Sequence[str]) -> tuple[Job, JobRecord] | None:
        """Start the next task that is due. None when there is none."""
        now = now_ms()
        due = [
            job
            for job in self.jobs.values()
            if job.queue in queues and not job.is_finished and not job.started and job.available_at_ms <= now
        ]
        if not due:
            return None
        job = min(due, key=lambda job: (-job.priority, job.available_at_ms, job.id))
        started = structs.replace(job, status=JobStatus.STARTED, started=now, worker=WORKER, pid=os.getpid())
        self.jobs[job.id] = started
        return started, job.record

    def settle(self, job: Job, verdict: Verdict) -> None:
        """Keep what came of a task."""
        if verdict.is_discarded:
            del self.jobs[job.id]
            return
        waiting = JobStatus.SCHEDULED if verdict.in_ms else JobStatus.PENDING
        self.jobs[job.id] = structs.replace(
            job,
            **_members(verdict.record),
            status=verdict.finished or waiting,
            started=0,
            updated=now_ms(),
            available_at_ms=now_ms() + verdict.in_ms,
        )


class ImmediateBackend(MemoryBackend):
    """Runs a task when it is enqueued, with its retries; one for later stays enqueued."""

    def enqueue(self, task: Task[P, R], args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult[P, R]:
        result = super().enqueue(task, args, kwargs)
        drain_queue(task.queue_name, backend=self.alias)
        with suppress(TaskResultDoesNotExist):  # It has discarded itself.
            result.refresh()
        return result


class Stored:
    """Tasks in the store, of whichever database the project's routers say."""

    def take(self, queues: Sequence[str]) -> tuple[Job, JobRecord] | None:
        from .jobs import queues as job_queues
        from .models import Task as StoredTask

        groups = tuple(map(queue_group, queues))
        claimed = StoredTask.objects.claim(groups, owner=OWNER, duration_ms=LEASE_MS, order=Order.OLDEST)
        for task in claimed:
            job = job_queues.job_of(task)
            return job, JobRecord.decode(bytes(task.data))
        return None

    def settle(self, job: Job, verdict: Verdict) -> None:
        from .models import Task as StoredTask

        [task] = StoredTask.objects.find([job.task])
        if task is None:
            return  # It has been deleted while it ran.
        change = None if verdict.is_discarded else change_of(answer_of(task), queue_of(task.group) or "", verdict)
        StoredTask.objects.commit(
            owner=OWNER,
            adds=[change] if isinstance(change, NewTask) else [],
            updates=[change] if isinstance(change, Change) else [],
            deletes=[] if isinstance(change, Change) else [task.id],
        )


def drain_queue(
    *queues: str, backend: str = DEFAULT_TASK_BACKEND_ALIAS, most: int = 1_000
) -> list[TaskResult[..., Any]]:
    """Run what is enqueued and due in this process, until nothing is left, and return the results in their order.

    `queues`: by default all of the backend. A failed task runs again at once, as often as its options allow. One for
    later is left, also one that snoozes. Raises AssertionError after `most` runs: a task may enqueue itself.
    """
    chosen = _backend(backend)
    place = chosen if isinstance(chosen, MemoryBackend) else Stored()
    wanted = queues or sorted(chosen.queues) or [DEFAULT_QUEUE]
    ended: dict[int, None] = {}
    for _ in range(most):
        taken = place.take(wanted)
        if taken is None:
            break
        job, record = taken
        place.settle(job, _run(chosen, job, record))
        ended[job.id] = None
    else:
        raise AssertionError(f"there are still tasks in {', '.join(wanted)} after {most} runs")
    return [chosen.result_of(left) for job_id in ended if (left := chosen._find(job_id))]


def enqueued(*, backend: str = DEFAULT_TASK_BACKEND_ALIAS) -> list[TaskResult[..., Any]]:
    """Return the results of all tasks that are enqueued or have run, in the order in which they were enqueued."""
    chosen = _backend(backend)
    return [chosen.result_of(job) for job in _jobs_of(chosen)]


def assert_enqueued(
    task: Task[..., Any], *args: Any, backend: str = DEFAULT_TASK_BACKEND_ALIAS, times: int | None = None, **kwargs: Any
) -> list[TaskResult[..., Any]]:
    """Raise AssertionError unless the task was enqueued, with these arguments if any are given. Returns its results.

    Whether it has run since makes no difference. `times`: how often exactly; None: at least once.
    """
    given: tuple[Any, Any] | None = (normalize_json(list(args)), normalize_json(kwargs)) if args or kwargs else None
    all_of_them = enqueued(backend=backend)
    found = [
        each
        for each in all_of_them
        if each.task.module_path == task.module_path and given in (None, (list(each.args), dict(each.kwargs)))
    ]
    if len(found) == times or (found and times is None):
        return found
    what = _call(task, *given) if given else task.module_path
    others = "\n".join(f"  {_call(each.task, each.args, each.kwargs)}" for each in all_of_them) or "  nothing"
    how_often = "was not enqueued" if not found else f"was enqueued {len(found)} times, not {times}"
    raise AssertionError(f"{what} {how_often}. Enqueued:\n{others}")


def _run(backend: TaskStoreBackend, job: Job, record: JobRecord) -> Verdict:
    """Call the function of the task, and decide as a worker would what follows."""
    started = now_ms()
    # The job is the current one only within.
    answer = copy_context().run(
        answer_to, assigned(record, job.id, WORKER), Functions(backend), partial(_note, backend, job.id), is_alone=False
    )
    outcome = outcome_of(Over(answer=packed(answer), pid=os.getpid()), "", None, None)
    attempt = Attempt(
        started=started, ended=now_ms(), how=outcome.how, worker=WORKER, pid=outcome.pid, error=outcome.error
    )
    verdict = after(record, attempt, outcome)
    return verdict if outcome.how in UNCOUNTED else replace(verdict, in_ms=0)


def _note(backend: TaskStoreBackend, job_id: int, done: float, text: str) -> None:
    """Keep the progress that a task reports."""
    if isinstance(backend, MemoryBackend):
        now = Progress(done=done, text=text, at_ms=now_ms())
        backend.jobs[job_id] = structs.replace(backend.jobs[job_id], progress=now)
    else:
        from .control.progress import report

        report(job_id, owner=OWNER, done=done, text=text)


def _backend(alias: str) -> TaskStoreBackend:
    chosen = task_backends[alias]
    if not isinstance(chosen, TaskStoreBackend):
        raise TypeError(
            f'TASKS["{alias}"] is {type(chosen).__name__}: use tasks_app.testing.MemoryBackend, ImmediateBackend or '
            "the backend of the store"
        )
    return chosen


def _jobs_of(backend: TaskStoreBackend) -> Iterable[Job]:
    if isinstance(backend, MemoryBackend):
        return list(backend.jobs.values())
    from .jobs import queues
    from .models import Task as StoredTask

    groups = filter(queue_of, StoredTask.objects.groups())
    tasks = [task for group in groups for task in StoredTask.objects.group(group, owned=True)]
    return sorted(map(queues.job_of, tasks), key=lambda job: job.id)


def _members(record: JobRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in SHOWN_MEMBERS}


def _call(task: Task[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any]) -> str:
    given = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    return f"{task.module_path}({', '.join(given)})"
