"""Workers that are killed at random: no job is lost, none is done twice in the record, none runs for ever."""

import random
from collections import Counter
from contextlib import ExitStack

import pytest

from taskstore.types.job_record import How, JobRecord, JobStatus, new_task, status_of
from taskstore.types.tasks import State

from .workers import SAMPLE, eventually

pytestmark = pytest.mark.stress

JOBS, WORKERS, KILLED = 1_000, 4, 12


def test_each_of_a_thousand_jobs_is_finished_once(queue):
    records = [JobRecord(function=f"{SAMPLE}.sleep", args=[0.01 * (number % 3)]) for number in range(JOBS)]
    jobs = {task.origin for task in queue.store.commit(adds=map(new_task, records))}
    chance = random.Random(7)
    with ExitStack() as workers:
        at_work = [begin(queue, workers, number) for number in range(WORKERS)]
        for number in range(WORKERS, WORKERS + KILLED):
            eventually(lambda: finished(queue) or chance.random() < 0.02, patience_s=1)
            victim = at_work.pop(chance.randrange(WORKERS))
            victim.kill()
            victim.wait()
            at_work.append(begin(queue, workers, number))
        assert eventually(lambda: finished(queue) == JOBS, patience_s=60)
    tasks = queue.tasks()
    assert Counter(task.origin for task in tasks) == Counter(jobs)
    for task in tasks:
        assert_finished_once(task)


def begin(queue, workers, number):
    options = {"processes": 2, "lease_ms": 3_000, "name": f"worker-{number}"}
    return workers.enter_context(queue.worker_process(**options))


def finished(queue):
    groups = {stats.group: stats for stats in queue.store.stats().groups}
    return sum(stats.finished for group, stats in groups.items() if group.count("/") > 1)


def assert_finished_once(task):
    record = JobRecord.decode(task.data)
    last = record.attempts[-1]
    assert [attempt.final for attempt in record.attempts] == [False] * (len(record.attempts) - 1) + [True]
    assert last.how == (How.SUCCEEDED if status_of(task.group, State.READY) == JobStatus.SUCCEEDED else How.LOST)
    assert record.result == ("slept" if last.how == How.SUCCEEDED else None)
    # Each claim has left one attempt.
    assert len(record.attempts) == task.claims
