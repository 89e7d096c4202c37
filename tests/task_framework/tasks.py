"""Tasks as a project has them."""

from datetime import date

from .framework import task


@task
def send(address, *, copies=1):
    return [address] * copies


@task(queue_name="reports", priority=7)
async def report(month):
    return {"month": month}


@task(takes_context=True)
def which(context):
    return context.task_result.id


@task
def echo_a_day(text):
    return date.fromisoformat(text)


def not_a_task():
    raise AssertionError("nobody may run this")
