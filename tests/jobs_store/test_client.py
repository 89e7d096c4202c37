"""`client.jobs` against a server: what was enqueued is found, waited for, listed, deleted and requeued."""

import asyncio
import threading

import pytest
from django.db import connections

from tasks_app.access import tokens
from tasks_app.models import Scope
from taskstore import AsyncClient, Client, InvalidInput, JobOptions, JobStatus, JobUnfinished, NotFound
from taskstore.types.job_record import How

from .jobs import ERROR, enqueued, failed, finished, started

# What crosses the wire is the same on each database: test_queues.py and tests/rest_api/test_jobs.py run on both.
pytestmark = pytest.mark.once

OPTIONS = JobOptions(max_attempts=3, timeout_ms=60_000)


@pytest.fixture
def secret(served):
    return tokens.create("ann", Scope.OPERATE)[1]


@pytest.fixture
def client(served, secret):
    with Client(served.url, token=secret) as client:
        yield client


def work():
    try:
        finished(started("mail"), result=[1])
    finally:
        connections.close_all()  # Those of this thread.


def test_a_job_is_waited_for_and_says_what_came_of_it(client):
    job = client.jobs.enqueue("mail.send", ["ann", None], {"n": 2**80}, queue="mail", priority=5, options=OPTIONS)
    assert (job.status, job.queue, job.args, job.kwargs, job.options) == (
        JobStatus.PENDING, "mail", ["ann", None], {"n": 2**80}, OPTIONS,
    )  # fmt: skip
    with pytest.raises(TimeoutError):
        client.jobs.wait(job.id, 0.05)
    with pytest.raises(JobUnfinished, match="is pending"):
        client.jobs.delete(job.id)
    worker = threading.Timer(0.1, work)
    worker.start()
    done = client.jobs.wait(job.id, 30)
    worker.join()
    assert (done.status, done.result, done.attempts[0].how, done.pid) == (
        JobStatus.SUCCEEDED, [1], How.SUCCEEDED, 4_711,
    )  # fmt: skip


@pytest.mark.parametrize("args", ["ann", b"ann", 5])
def test_arguments_are_a_list(client, args):
    with pytest.raises(InvalidInput, match="args: must be a list of arguments"):
        client.jobs.enqueue("mail.send", args)


def test_jobs_are_listed_requeued_and_deleted(client):
    old, new = failed(args=[1]), enqueued()
    first = client.jobs.list(limit=1).jobs
    assert [job.id for job in (*first, *client.jobs.list(after=first[-1].place).jobs)] == [new, old]
    [job] = client.jobs.list(status=JobStatus.FAILED, queue="default", function="mail.send").jobs
    assert (job.id, job.error) == (old, ERROR)
    again = client.jobs.requeue(old, args=[2], reason="fixed")
    assert (again.id, again.status, again.args) == (old, JobStatus.PENDING, [2])
    gone = failed(queue="other")
    assert client.jobs.delete(gone).id == gone
    assert (client.jobs.delete(gone), client.jobs.get(gone)) == (None, None)
    with pytest.raises(NotFound):
        client.jobs.wait(gone, 1)
    with pytest.raises(InvalidInput, match="queue"):
        client.jobs.enqueue("mail.send", queue="a/b")


def test_it_can_be_awaited(served, secret):
    async def flow():
        async with AsyncClient(served.url, token=secret) as client:
            job = await client.jobs.enqueue("mail.send", at_ms=-60_000)
            with pytest.raises(TimeoutError):
                await client.jobs.wait(job.id, 0.05)
            return job, (await client.jobs.list(status=JobStatus.SCHEDULED)).jobs

    job, listed = asyncio.run(flow())
    assert listed == (job,)
