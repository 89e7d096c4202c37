"""`client.schedules` against a server."""

import asyncio

import pytest

from tasks_app.access import tokens
from tasks_app.models import Scope
from taskstore import AsyncClient, Client, DueJob, DueTask, JobOptions

# What crosses the wire is the same on each database: test_verbs.py and test_rest.py run on both.
pytestmark = pytest.mark.once


@pytest.fixture
def secret(served):
    return tokens.create("ann", Scope.OPERATE)[1]


@pytest.fixture
def client(served, secret):
    with Client(served.url, token=secret) as client:
        yield client


def test_a_schedule_is_made_paused_run_and_deleted(client):
    task = DueTask(group="mail", data="héllo", labels={"tier": "gold"}, priority=3)
    made = client.schedules.put("the digest?", "30 3 * * *", zone="Europe/Berlin", catch_up="latest", task=task)
    assert (made.state, made.cron, made.zone, made.catch_up, made.task, made.job) == (
        "on", "30 3 * * *", "Europe/Berlin", "latest", task, None,
    )  # fmt: skip
    assert client.schedules.list() == [made]
    assert client.schedules.get("the digest?") == made
    assert client.schedules.get("another") is None
    paused = client.schedules.pause("the digest?", "moving")
    assert (paused.state, paused.next_ms, paused.paused.reason) == ("paused", None, "moving")
    assert client.schedules.resume("the digest?").next_ms == made.next_ms
    ran = client.schedules.run("the digest?")
    assert (ran.group, ran.text, ran.labels["schedule"]) == ("mail", "héllo", "the digest?")
    assert client.schedules.get("the digest?").last.origin == ran.id
    assert client.schedules.delete("the digest?").name == "the digest?"
    assert client.schedules.delete("the digest?") is None


def test_a_job_that_is_due_is_one_of_the_jobs(client):
    job = DueJob(function="reports.build", args=[None, 2**70], kwargs={"to": None}, options=JobOptions(max_attempts=3))
    assert client.schedules.put("report", "@daily", job=job).job == job
    ran = client.jobs.get(client.schedules.run("report").id)
    assert (ran.function, ran.args, ran.kwargs, ran.options) == (job.function, job.args, job.kwargs, job.options)


def test_it_is_awaited_too(served, secret):
    async def story():
        async with AsyncClient(served.url, token=secret) as client:
            await client.schedules.put("digest", "every 5min", task=DueTask(group="mail"))
            return [each.name for each in await client.schedules.list()]

    assert asyncio.run(story()) == ["digest"]
