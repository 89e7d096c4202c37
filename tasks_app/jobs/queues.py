"""Enqueue, find, list, delete and requeue jobs. A job is a task; see job_record.py."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from taskstore.errors import CommitRefused, InvalidInput, JobUnfinished, refuse
from taskstore.types.job_record import (
    DEFAULT_QUEUE,
    FINISHED,
    FUNCTION_LABEL,
    NO_LABELS,
    OWN_LABELS,
    SHOWN_MEMBERS,
    Attempt,
    How,
    JobError,
    JobRecord,
    JobStatus,
    NotAJob,
    finished_group,
    groups_of,
    new_task,
    problems_of,
    queue_group,
    queue_of,
    status_of,
)
from taskstore.types.jobs import Job
from taskstore.types.scalars import Action
from taskstore.types.sentences import unique_key
from taskstore.types.tasks import NOBODY, Change, Ending

from ..access import audit
from ..control.progress import progress_of
from ..core.actors import PROGRAM, Actor
from ..core.operations import EVERY_GROUP, GroupScope
from ..database import atomic
from ..database.time_limits import TookTooLong, at_most
from ..managers import TaskQuerySet
from ..models import Client, Task
from ..reading.pages import PAGE, Cursor, latest
from ..reading.search.grammar import Label

LISTED_BYTES = 256 * 2**10  # A list does not read larger records; it shows what the task says.
LIMIT_S = 5.0  # Jobs of a rare function are searched for in the whole queue.


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A filter: jobs must match every field that is not empty."""

    queue: str = ""
    status: JobStatus | None = None
    function: str = ""
    batch: int = 0
    label: Label | None = None
    owner: int | None = None  # The worker that runs it, or has ended it.
    since_ms: int = 0  # Due or ended at this time or later.


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some jobs in order, and the cursor of the next page, None when there is none."""

    jobs: Sequence[Job]
    tasks: Mapping[int, Task]  # The tasks of the jobs, by id, without data.
    after: Cursor | None
    at_ms: int


# ---- Enqueue


def enqueue(
    record: JobRecord,
    *,
    queue: str = DEFAULT_QUEUE,
    at_ms: int = 0,
    priority: int = 0,
    unique: str | None = None,
    unique_for_ms: int = 0,
    labels: Mapping[str, str] = NO_LABELS,
    batch: int = 0,
) -> Task:
    """Add a job: available now (0), after so many ms (negative), or at a time. Joins the caller's transaction.

    Returns its task, whose id stays the job's id; with a `unique` key that is taken, the task that holds the key, as
    `Task.objects.commit` does. Raises InvalidInput that names every wrong field.
    """
    refuse([*problems_of(queue, record, labels), *unique_key("", unique, unique_for_ms)])
    own: Any = {"unique": unique, "unique_for_ms": unique_for_ms, "labels": labels}
    new = new_task(record, queue=queue, at_ms=at_ms, priority=priority, **own)
    [task] = Task.objects.commit(owner=NOBODY, adds=[dataclasses.replace(new, batch=batch)])
    return task


# ---- Look


def find(job_id: int, scope: GroupScope = EVERY_GROUP) -> Job | None:
    """Return the job whose first task had this id; None when it does not exist or no longer exists.

    Raises NotAJob when the task is in a queue but is not a job.
    """
    task = task_of(job_id, scope)
    return job_of(task) if task else None


def holder_of_key(job_id: int, scope: GroupScope = EVERY_GROUP) -> Job:
    """Return the job that was enqueued before with a key. `job_id`: 0 if it can't be seen.

    Raises InvalidInput about `unique` when the job was deleted but keeps its key, or can't be shown.
    """
    try:
        job = find(job_id, scope) if job_id else None
    except NotAJob:
        job = None
    if job is None:
        holder = f"job {job_id}, which no longer exists" if job_id else "a task that can't be shown"
        raise InvalidInput({"unique": [f"must be another key: this one is taken by {holder}"]})
    return replace(job, duplicate=True)


def task_of(job_id: int, scope: GroupScope = EVERY_GROUP) -> Task | None:
    """Return the task in a queue whose first id this was; None when it does not exist or no longer exists."""
    task = Task.objects.get_queryset().of_chain(job_id).first()
    if task is None or task.origin != job_id or queue_of(task.group) is None or not scope.allows(task.group):
        return None
    return task


def job_of(task: Task) -> Job:
    """Return the job of a task. Raises NotAJob."""
    job = job_from(task, JobRecord.decode(bytes(task.data)), Task.objects.now_ms())
    return _with_workers([job], {task.id: task})[0]


def queues(scope: GroupScope = EVERY_GROUP) -> list[str]:
    """Return the sorted names of the queues that have jobs, finished ones included."""
    return sorted({queue for group in Task.objects.groups(scope) if (queue := queue_of(group)) is not None})


def list_jobs(
    wanted: Wanted, *, after: Cursor | None = None, limit: int = PAGE, scope: GroupScope = EVERY_GROUP
) -> Page:
    """Return at most `limit` jobs that follow `after`, sorted by due or finishing time, the latest first.

    Leaves out tasks that are not jobs. Raises InvalidInput when that takes over five seconds.
    """
    now_ms = Task.objects.now_ms()
    try:
        with at_most(LIMIT_S, using=Task.objects.db):
            places, next_place = latest(_queries(wanted, scope, now_ms), after, limit)
    except TookTooLong:
        raise InvalidInput({"function": ["takes too long to search: name a queue and a status too"]}) from None
    ids = [place.id for place in places]
    tasks = {task.id: task for task in Task.objects.get_queryset().filter(id__in=ids).beginnings(LISTED_BYTES)}
    jobs = [job for task_id in ids if task_id in tasks and (job := _listed(tasks[task_id], now_ms))]
    return Page(jobs=_with_workers(jobs, tasks), tasks=tasks, after=next_place, at_ms=now_ms)


def _queries(wanted: Wanted, scope: GroupScope, now_ms: int) -> Iterator[TaskQuerySet]:
    """Yield the query for the jobs of each group."""
    for queue in [wanted.queue] if wanted.queue else queues(scope):
        for group in filter(scope.allows, groups_with(wanted.status, queue)):
            tasks = Task.objects.get_queryset().in_group(group)
            match wanted.status:
                case JobStatus.SCHEDULED:
                    tasks = tasks.later(now_ms)
                case JobStatus.STARTED:
                    tasks = tasks.claimed(now_ms)
                case JobStatus.PENDING:
                    tasks = tasks.available(now_ms)
            if wanted.batch:
                tasks = tasks.in_batch(wanted.batch)
            if wanted.label:
                tasks = tasks.bearing(*wanted.label)
            if wanted.owner is not None:
                tasks = tasks.filter(owner=wanted.owner)
            if wanted.since_ms:
                tasks = tasks.filter(available_at_ms__gte=wanted.since_ms)
            yield tasks.bearing(FUNCTION_LABEL, wanted.function) if wanted.function else tasks


def groups_with(status: JobStatus | None, queue: str) -> Sequence[str]:
    """Return the groups that hold jobs of the status (None: all)."""
    if status is None:
        return groups_of(queue)
    return [finished_group(queue, status) if status in FINISHED else queue_group(queue)]


def _listed(task: Any, now_ms: int) -> Job | None:
    """Return the job, from the beginning of its task's data; None when the task is not a job."""
    if task.data_size > LISTED_BYTES:
        return job_from(task, JobRecord(function=task.labels.get(FUNCTION_LABEL, "")), now_ms, is_whole=False)
    try:
        return job_from(task, JobRecord.decode(bytes(task.data_start or b"")), now_ms)
    except NotAJob:
        return None


def job_from(task: Task, record: JobRecord, now_ms: int, *, is_whole: bool = True) -> Job:
    status = status_of(task.group, task.state(now_ms), is_later=task.available_at_ms > now_ms)
    if status is JobStatus.CANCELLED:
        # Whoever cancelled it could not write its record.
        if record.under_way:
            record = record.with_attempt(replace(record.under_way, how=How.CANCELLED, ended=task.made_at_ms))
        record = replace(
            record, error=JobError(type="Cancelled", message=task.error.removeprefix("cancelled").strip(" :"))
        )
    attempt = record.attempts[-1] if record.attempts else Attempt()
    return Job(
        id=task.origin,
        task=task.id,
        queue=queue_of(task.group) or "",
        status=status,
        **{name: getattr(record, name) for name in SHOWN_MEMBERS},
        worker=attempt.worker,
        host=attempt.host,
        pid=attempt.pid,
        started=attempt.started,
        priority=task.priority,
        labels={name: value for name, value in task.labels.items() if name not in OWN_LABELS},
        created=task.created_at_ms,
        updated=task.made_at_ms,
        available_at_ms=task.available_at_ms,
        is_whole=is_whole,
        place=str(Cursor.of(task)),
    )


def _with_workers(jobs: Sequence[Job], tasks: Mapping[int, Task]) -> list[Job]:
    """Add the current attempt, from the record or from the worker that holds the task, and its progress."""
    progress = progress_of(tasks.values())
    jobs = [replace(job, progress=progress[job.id]) if job.id in progress else job for job in jobs]
    owners = {tasks[job.task].owner for job in jobs if job.status is JobStatus.STARTED}
    workers = {client.id: client for client in Client.objects.filter(id__in=owners)} if owners else {}
    found = []
    for job in jobs:
        task = tasks[job.task]
        worker = workers.get(task.owner)
        recorded = job.attempts[-1] if job.attempts and job.attempts[-1].how is None else None
        # An attempt that a dead worker has left in the record says nothing about the present worker.
        if job.status is not JobStatus.STARTED or (recorded and (worker is None or recorded.worker == worker.name)):
            found.append(job)
        elif worker is None:
            found.append(replace(job, started=task.leased_since_ms, worker="", host="", pid=0))
        else:
            # The process of the job, if the worker reports it, otherwise the worker. Clients may report anything.
            reported = json.loads(worker.info).get("jobs")
            running = [each for each in reported if isinstance(each, dict)] if isinstance(reported, list) else []
            pids = [each.get("pid") for each in running if each.get("id") == job.id]
            pid = pids[0] if pids and isinstance(pids[0], int) else worker.pid or 0
            found.append(replace(job, started=task.leased_since_ms, worker=worker.name, host=worker.host, pid=pid))
    return found


# ---- Change


@atomic()
def delete(job: Job, actor: Actor = PROGRAM) -> None:
    """Delete a finished job. The audit log records it for operators; for workers, the history does.

    Raises JobUnfinished when it is not finished, or has changed in the meantime.
    """
    refuse_unfinished(job, "deleted")
    operator = actor.operator(Ending.DELETED) if actor.may(Action.OPERATE) else None
    try:
        Task.objects.commit(owner=NOBODY, deletes=[job.task], operator=operator)
    except CommitRefused:
        raise _changed(job) from None
    if operator:
        _write_down(job, "delete", actor, {"ids": [job.task]})


@atomic()
def requeue(
    job: Job, actor: Actor = PROGRAM, *, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None
) -> Job:
    """Run a finished job again, with these parameters in place of the old ones (None: they stay).

    It keeps its id and its attempts. Raises JobUnfinished when it is not finished, or has changed in the meantime,
    InvalidInput when parameters are not JSON.
    """
    refuse_unfinished(job, "requeued")
    record = job.record.requeued(args, kwargs)
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
    """Raise JobUnfinished when the job is not finished. `verb` is the refused change."""
    if not job.is_finished:
        raise JobUnfinished(f"Job {job.id} is {job.status}. Only a job that has succeeded or failed can be {verb}.")


def _changed(job: Job) -> JobUnfinished:
    return JobUnfinished(f"Job {job.id} has changed in the meantime. Reload it and try again.")


def _write_down(job: Job, action: str, actor: Actor, details: Mapping[str, Any]) -> None:
    group = finished_group(job.queue, job.status)
    audit.record(actor, action, group=group, selection=f"job {job.id}", done=1, details=details)
