"""Jobs in every state, as workers leave them."""

from typing import Any

from msgspec.structs import replace

from tasks_app.jobs import queues as job_queues
from tasks_app.models import Client, Task
from tasks_app.reading import clients
from taskstore.types.job_record import Attempt, How, JobError, JobRecord, JobStatus, finished_group, queue_group
from taskstore.types.tasks import Change, NewTask, Order

ANN = 1


def find(*asked) -> Any:
    """The job, or None."""
    return job_queues.find(*asked)


def enqueued(function="mail.send", *, queue="default", at_ms=0, priority=0, **record) -> int:
    """The id of a new job."""
    return job_queues.enqueue(JobRecord(function=function, **record), queue=queue, at_ms=at_ms, priority=priority).id


def started(queue="default", *, owner=ANN, records_it=False) -> Task:
    """The task of the oldest job, held by a worker; perhaps the record says so."""
    [task] = Task.objects.claim(queue_group(queue), owner=owner, order=Order.OLDEST)
    if not records_it:
        return task
    attempt = Attempt(started=Task.objects.now_ms(), worker="ann", host="node-1", pid=4_712)
    data = JobRecord.decode(bytes(task.data)).with_attempt(attempt).encode()
    [held] = Task.objects.commit(owner=owner, updates=[Change(id=task.id, data=data, timespec_ms=-60_000)])
    return held


def finished(task: Task, status=JobStatus.SUCCEEDED, *, owner=ANN, result=None, error=None, log="") -> None:
    """The held job ends, as a worker ends it."""
    now_ms = Task.objects.now_ms()
    how = How.FAILED if error else How.SUCCEEDED
    attempt = Attempt(
        started=now_ms - 1_500, ended=now_ms, how=how, worker="ann", host="node-1", pid=4_711, error=error, final=True
    )
    record = replace(JobRecord.decode(bytes(task.data)).with_attempt(attempt), result=result, error=error, log=log)
    queue = task.group.removeprefix("jobs/")
    successor = NewTask(
        id=task.id,
        group=finished_group(queue, status),
        data=record.encode(),
        labels=task.labels,
        priority=task.priority,
        error=error.line if error else "",
    )
    Task.objects.commit(owner=owner, adds=[successor], deletes=[task.id])


def succeeded(function="mail.send", *, queue="default", result=None, log="", **record) -> int:
    job_id = enqueued(function, queue=queue, **record)
    finished(started(queue), result=result, log=log)
    return job_id


ERROR = JobError(type="KeyError", message="'to'", traceback='Traceback (most recent call last):\nKeyError: "to"')


def failed(function="mail.send", *, queue="default", error=ERROR, **record) -> int:
    job_id = enqueued(function, queue=queue, **record)
    finished(started(queue), JobStatus.FAILED, error=error)
    return job_id


def one_of_each() -> dict[JobStatus, int]:
    """A job in every status, by id."""
    return {
        JobStatus.SUCCEEDED: succeeded(),
        JobStatus.FAILED: failed(),
        JobStatus.CANCELLED: cancelled(),
        JobStatus.STARTED: begun(),
        JobStatus.PENDING: enqueued(),
        JobStatus.SCHEDULED: enqueued(at_ms=-60_000),
    }


def cancelled() -> int:
    job_id = enqueued()
    moved = Change(id=job_id, group=finished_group("default", JobStatus.CANCELLED), error="cancelled by olaf")
    Task.objects.commit(owner=ANN, updates=[moved])
    return job_id


def begun() -> int:
    job_id = enqueued()
    started()
    return job_id


def heard(owner=ANN, **said) -> None:
    """A worker says that it lives."""
    clients.hear(Client(**{"id": owner, "name": "ann", "host": "node-1", "pid": 99, "groups": [], "info": "{}"} | said))
