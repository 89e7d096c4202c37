"""Jobs on the verbs: enqueue, find, list, delete, requeue. A job is a task; see job_record.py."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from heapq import nlargest
from typing import Any

from django.db import transaction
from msgspec.structs import replace

from taskstore.errors import CommitRefused, InvalidInput, JobUnfinished, refuse
from taskstore.types import sentences
from taskstore.types.job_record import (
    DEFAULT_QUEUE,
    FINISHED,
    FUNCTION_LABEL,
    LONGEST_FUNCTION,
    Attempt,
    JobRecord,
    JobStatus,
    NotAJob,
    finished_group,
    groups_of,
    new_task,
    queue_group,
    queue_of,
    status_of,
    why_no_queue,
)
from taskstore.types.jobs import Job
from taskstore.types.rights import Action
from taskstore.types.tasks import NOBODY, Change, Ending, Problem

from ..access import audit
from ..core.actors import PROGRAM, Actor
from ..core.operations import EVERY_GROUP, GroupScope
from ..core.validation import text
from ..database.time_limits import TookTooLong, at_most
from ..managers import TaskQuerySet
from ..models import Client, Task
from ..reading.listing import PAGE, Cursor

LISTED_BYTES = 256 * 2**10  # Of a larger record a list has no more than what the task itself tells.
LIMIT_S = 5.0  # The jobs of a function that is rare are looked for among all of a queue.


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which jobs are meant: those that meet all that is not empty."""

    queue: str = ""
    status: JobStatus | None = None
    function: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some jobs in order, and the place where the next page begins, None when there is none."""

    jobs: Sequence[Job]
    tasks: Mapping[int, Task]  # Those that the jobs are, by id; without their data.
    after: Cursor | None
    at_ms: int


# ---- Enqueue


def enqueue(record: JobRecord, *, queue: str = DEFAULT_QUEUE, at_ms: int = 0, priority: int = 0) -> Task:
    """Add a job: available now (0), so long from now (negative), or at a time. Joins the caller's transaction.

    Returns its task, whose id is the job's for good. Raises InvalidInput that names what is wrong.
    """
    refuse(problems_of(queue, record))
    [task] = Task.objects.commit(owner=NOBODY, adds=[new_task(record, queue=queue, at_ms=at_ms, priority=priority)])
    return task


async def aenqueue(record: JobRecord, *, queue: str = DEFAULT_QUEUE, at_ms: int = 0, priority: int = 0) -> Task:
    """As `enqueue`."""
    refuse(problems_of(queue, record))
    [task] = await Task.objects.acommit(
        owner=NOBODY, adds=[new_task(record, queue=queue, at_ms=at_ms, priority=priority)]
    )
    return task


def problems_of(queue: str, record: JobRecord) -> Iterator[Problem]:
    """What no job can have as its queue, its function, or its parameters."""
    if why := why_no_queue(queue):
        yield "queue", why
    if not record.function:
        yield "function", sentences.DOTTED_PATH
    yield from text("function", record.function, LONGEST_FUNCTION)
    for name, value in (("args", record.args), ("kwargs", record.kwargs)):
        if why := why_no_json(value):
            yield name, why


def why_no_json(value: Any) -> str | None:
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as problem:
        return f"must be valid JSON: {problem}"
    return None


# ---- Look


def find(job_id: int, scope: GroupScope = EVERY_GROUP) -> Job | None:
    """The job whose first task had this id; None when there is none, or no longer.

    Raises NotAJob when its task lies among jobs, but is none.
    """
    task = task_of(job_id, scope)
    return job_of(task) if task else None


def task_of(job_id: int, scope: GroupScope = EVERY_GROUP) -> Task | None:
    """The task among jobs whose first id this was; None when there is none, or no longer."""
    task = Task.objects.get_queryset().of_chain(job_id).first()
    if task is None or task.origin != job_id or queue_of(task.group) is None or not scope.allows(task.group):
        return None
    return task


def job_of(task: Task) -> Job:
    """The job that a task among jobs is. Raises NotAJob."""
    job = job_from(task, JobRecord.decode(bytes(task.data)), Task.objects.now_ms())
    return _with_workers([job], {task.id: task})[0]


def queues(scope: GroupScope = EVERY_GROUP) -> list[str]:
    """The names of the queues with jobs, finished or not, sorted."""
    return sorted({queue for group in Task.objects.groups(scope) if (queue := queue_of(group)) is not None})


def list_jobs(
    wanted: Wanted, *, after: Cursor | None = None, limit: int = PAGE, scope: GroupScope = EVERY_GROUP
) -> Page:
    """At most `limit` jobs that follow `after`: by when they are or were due, or finished, the latest first.

    What is no job is left out. Raises InvalidInput when they can't be found in five seconds.
    """
    now_ms = Task.objects.now_ms()
    try:
        with at_most(LIMIT_S, using=Task.objects.db):
            places = nlargest(limit + 1, _places(wanted, after, limit, scope, now_ms))
    except TookTooLong:
        raise InvalidInput({"function": ["takes too long to search: name a queue and a status too"]}) from None
    last = places[limit - 1] if len(places) > limit else None
    ids = [task_id for _, task_id in places[:limit]]
    tasks = {task.id: task for task in Task.objects.get_queryset().filter(id__in=ids).beginnings(LISTED_BYTES)}
    jobs = [job for task_id in ids if task_id in tasks and (job := _listed(tasks[task_id], now_ms))]
    return Page(
        jobs=_with_workers(jobs, tasks),
        tasks=tasks,
        after=Cursor(available_at_ms=last[0], id=last[1]) if last else None,
        at_ms=now_ms,
    )


def _places(
    wanted: Wanted, after: Cursor | None, limit: int, scope: GroupScope, now_ms: int
) -> Iterator[tuple[int, int]]:
    """The available times and ids of the first tasks of each group: those of all together are among them."""
    for tasks in _tasks_by_group(wanted, scope, now_ms):
        beyond = _beyond(tasks, after) if after else tasks
        if wanted.function:
            beyond = beyond.bearing(FUNCTION_LABEL, wanted.function)
        ordered = beyond.order_by("-available_at_ms", "-id")
        yield from ordered.values_list("available_at_ms", "id")[: limit + 1]


def _tasks_by_group(wanted: Wanted, scope: GroupScope, now_ms: int) -> Iterator[TaskQuerySet]:
    # Group by group, because the index of a group has them in order, and none has those of several.
    for queue in [wanted.queue] if wanted.queue else queues(scope):
        for group in filter(scope.allows, groups_with(wanted.status, queue)):
            yield _in_status(Task.objects.get_queryset().in_group(group), wanted.status, now_ms)


def groups_with(status: JobStatus | None, queue: str) -> Sequence[str]:
    """The groups in which jobs of the status (None: all) lie."""
    if status is None:
        return groups_of(queue)
    return [finished_group(queue, status) if status in FINISHED else queue_group(queue)]


def _in_status(tasks: TaskQuerySet, status: JobStatus | None, now_ms: int) -> TaskQuerySet:
    match status:
        case JobStatus.SCHEDULED:
            return tasks.scheduled(now_ms)
        case JobStatus.STARTED:
            return tasks.claimed(now_ms)
        case JobStatus.PENDING:
            return tasks.available(now_ms)
    return tasks


def _beyond(tasks: TaskQuerySet, place: Cursor) -> TaskQuerySet:
    # The first condition bounds the scan of the index, which the second alone would not.
    from_there = tasks.filter(available_at_ms__lte=place.available_at_ms)
    return from_there.exclude(available_at_ms=place.available_at_ms, id__gte=place.id)


def _listed(task: Any, now_ms: int) -> Job | None:
    """The job, from the beginning of its task's data; None when it is none."""
    if task.data_size > LISTED_BYTES:
        return job_from(task, JobRecord(function=task.labels.get(FUNCTION_LABEL, "")), now_ms, is_whole=False)
    try:
        return job_from(task, JobRecord.decode(bytes(task.data_start or b"")), now_ms)
    except NotAJob:
        return None


def job_from(task: Task, record: JobRecord, now_ms: int, *, is_whole: bool = True) -> Job:
    attempt = record.attempts[-1] if record.attempts else Attempt()
    return Job(
        id=task.origin,
        task=task.id,
        queue=queue_of(task.group) or "",
        status=status_of(task.group, task.state(now_ms)),
        **{each.name: getattr(record, each.name) for each in fields(record)},
        worker=attempt.worker,
        host=attempt.host,
        pid=attempt.pid,
        started=attempt.started,
        priority=task.priority,
        created=task.created_at_ms,
        updated=task.made_at_ms,
        available_at_ms=task.available_at_ms,
        is_whole=is_whole,
        place=str(Cursor(available_at_ms=task.available_at_ms, id=task.id)),
    )


def _with_workers(jobs: Sequence[Job], tasks: Mapping[int, Task]) -> list[Job]:
    """With the attempt that is under way, by what the record says of it, or the worker that holds the task."""
    owners = {tasks[job.task].owner for job in jobs if job.status is JobStatus.STARTED}
    workers = {client.id: client for client in Client.objects.filter(id__in=owners)} if owners else {}
    return [
        _under_way(job, tasks[job.task], workers.get(tasks[job.task].owner)) if job.status is JobStatus.STARTED else job
        for job in jobs
    ]


def _under_way(job: Job, task: Task, worker: Client | None) -> Job:
    recorded = job.attempts[-1] if job.attempts and job.attempts[-1].how is None else None
    # What a worker that died has left in the record is not about the one that holds the job now.
    if recorded and (worker is None or recorded.worker == worker.name):
        return job
    if worker is None:
        return replace(job, started=task.leased_since_ms, worker="", host="", pid=0)
    pid = _pid_of(job, worker)
    return replace(job, started=task.leased_since_ms, worker=worker.name, host=worker.host, pid=pid)


def _pid_of(job: Job, worker: Client) -> int:
    """Of the process that runs the job, if the worker tells it; else of the worker itself."""
    told = json.loads(worker.info).get("jobs")
    # Anybody may say anything there.
    jobs = [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []
    pids = [each.get("pid") for each in jobs if each.get("id") == job.id]
    return pids[0] if pids and isinstance(pids[0], int) else worker.pid or 0


# ---- Change


@transaction.atomic
def delete(job: Job, actor: Actor = PROGRAM) -> None:
    """Delete a finished job. What a worker does to its own tasks is in the history; the audit has what operators do.

    Raises JobUnfinished when it is not finished, or has changed meanwhile.
    """
    refuse_unfinished(job, "deleted")
    operator = actor.operator(Ending.DELETED) if actor.may(Action.OPERATE) else None
    try:
        Task.objects.commit(owner=NOBODY, deletes=[job.task], operator=operator)
    except CommitRefused:
        raise _changed(job) from None
    if operator:
        _write_down(job, "delete", actor, {"ids": [job.task]})


@transaction.atomic
def requeue(
    job: Job,
    actor: Actor = PROGRAM,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Job:
    """Let a finished job run once more, with these parameters in place of the old ones (None: they stay).

    It stays the same job, and what was tried stays with it. Raises JobUnfinished when it is not finished, or has
    changed meanwhile, InvalidInput when parameters are no JSON.
    """
    refuse_unfinished(job, "requeued")
    record = JobRecord(**{each.name: getattr(job, each.name) for each in fields(JobRecord)}).requeued(args, kwargs)
    refuse(problems_of(job.queue, record))
    change = Change(id=job.task, group=queue_group(job.queue), data=record.encode(), error="", release=True)
    try:
        [task] = Task.objects.commit(owner=NOBODY, updates=[change], operator=actor.operator(Ending.REQUEUED))
    except CommitRefused:
        raise _changed(job) from None
    is_edited = args is not None or kwargs is not None
    _write_down(job, "requeue", actor, {"ids": [job.task, task.id], "edited": is_edited})
    return job_of(task)


def refuse_unfinished(job: Job, verb: str) -> None:
    """Raise JobUnfinished when it is not finished. `verb`: what can't be done to it then."""
    if not job.is_finished:
        raise JobUnfinished(f"Job {job.id} is {job.status}. Only a job that has succeeded or failed can be {verb}.")


def _changed(job: Job) -> JobUnfinished:
    return JobUnfinished(f"Job {job.id} has changed in the meantime. Reload it and try again.")


def _write_down(job: Job, action: str, actor: Actor, details: Mapping[str, Any]) -> None:
    group = finished_group(job.queue, job.status)
    audit.record(actor, action, group=group, selection=f"job {job.id}", done=1, details=details)
