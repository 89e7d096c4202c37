"""Jobs in every status, as workers would have left them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from tasks_app.jobs.queues import enqueue
from tasks_app.models import Task
from taskstore.types.job_record import (
    Attempt,
    How,
    JobError,
    JobOptions,
    JobRecord,
    JobStatus,
    finished_group,
    queue_group,
)
from taskstore.types.tasks import NewTask, Order

MINUTE_MS = 60_000
FUNCTIONS = ("shop.invoices.render", "shop.mail.send", "shop.images.resize", "shop.reports.month")
QUEUES = ("default", "reports")
FINISHED, WAITING, LATER = 24, 6, 3  # Jobs of each queue.
OPTIONS = JobOptions(max_attempts=3, timeout_ms=15 * MINUTE_MS)
TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "/srv/shop/mail.py", line 41, in send\n'
    "    answer = server.deliver(to, text)\n"
    "TimeoutError: no answer within 30 s\n"
)
ERROR = JobError(type="TimeoutError", message="no answer within 30 s", traceback=TRACEBACK)


def sow_jobs(chance: random.Random, owners: range) -> None:
    """Some of each status in each queue, held by these clients where they are started."""
    for queue in QUEUES:
        for number in range(FINISHED + WAITING):
            enqueue(_record(chance, number), queue=queue, priority=chance.choice((0, 0, 10)))
        for task in Task.objects.claim(queue_group(queue), owner=owners[0], limit=FINISHED, order=Order.OLDEST):
            _finish(task, queue, chance)
        Task.objects.claim(queue_group(queue), owner=owners[-1], duration_ms=30 * MINUTE_MS, limit=2)
        for number in range(LATER):
            enqueue(_record(chance, number), queue=queue, at_ms=-(number + 1) * 20 * MINUTE_MS)


def _record(chance: random.Random, number: int) -> JobRecord:
    order = chance.randrange(10**6)
    kwargs = {"to": f"user{order % 50_000}@example.org", "copies": chance.randrange(1, 4)}
    return JobRecord(function=FUNCTIONS[number % len(FUNCTIONS)], args=[order], kwargs=kwargs, options=OPTIONS)


def _finish(task: Task, queue: str, chance: random.Random) -> None:
    """Most succeed, some of them at the second attempt."""
    fails = chance.random() < 0.2
    status = JobStatus.FAILED if fails else JobStatus.SUCCEEDED
    attempts = tuple(_attempts(chance, 3 if fails else chance.choice((1, 1, 1, 2)), fails=fails))
    record = replace(
        JobRecord.decode(bytes(task.data)),
        attempts=attempts,
        result=None if fails else {"pages": chance.randrange(1, 40), "file": f"invoices/{task.id}.pdf"},
        error=ERROR if fails else None,
        log=f"order {task.id}: rendering\norder {task.id}: {'gave up' if fails else 'done'}\n",
    )
    error = ERROR.line if fails else ""
    finished = NewTask.successor_of(task, group=finished_group(queue, status), data=record.encode(), error=error)
    Task.objects.commit(owner=task.owner, adds=[finished], deletes=[task.id])


def _attempts(chance: random.Random, count: int, *, fails: bool) -> Iterator[Attempt]:
    """The last one has just ended."""
    now_ms = Task.objects.now_ms()
    for number in range(1, count + 1):
        is_last = number == count
        ended = now_ms - (count - number) * MINUTE_MS
        yield Attempt(
            started=ended - chance.randrange(400, 50_000),
            ended=ended,
            how=How.SUCCEEDED if is_last and not fails else chance.choice((How.FAILED, How.TIMED_OUT)),
            worker=f"worker-{chance.randrange(1, 9)}",
            host=f"node-{chance.randrange(1, 5)}.example.org",
            pid=1_000 + chance.randrange(30_000),
            error=None if is_last and not fails else ERROR,
            final=is_last,
        )
