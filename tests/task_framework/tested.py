"""Tasks that test_testing.py runs."""

import builtins
from datetime import timedelta

from taskstore import Discard, Retry, Save, Snooze, current_job

from .framework import task

calls: list[int] = []


@task(max_attempts=3, backoff=timedelta(hours=1), timeout=60)
def fragile(failures):
    """Fails so often before it succeeds."""
    job = current_job()
    calls.append(job.attempt)
    job.progress(0.5)
    if job.attempt <= failures:
        raise KeyError(job.attempt)
    return job.attempt


@task
def nested(depth):
    if depth:
        nested.enqueue(depth - 1)
    return depth


@task
def endless():
    endless.enqueue()


@task
def asleep():
    raise Snooze(timedelta(minutes=1))


@task
def given_up():
    raise Discard


@task(takes_context=True)
async def attempt_of(context, *, plus):
    return context.attempt + plus


@task(queue_name="mail", priority=4, max_attempts=2, schedule="0 3 * * *")
def nightly():
    raise AssertionError("it is not night")


@task(max_attempts=3, backoff=[0, 1], jitter=0.5, retry_on=OSError, fail_on=FileNotFoundError, discard_on=KeyError)
def choosy(raised):
    if raised == "save":
        raise Save
    if raised == "retry":
        raise Retry(in_=timedelta())
    raise getattr(builtins, raised)
