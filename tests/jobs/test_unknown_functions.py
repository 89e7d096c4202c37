"""A deploy: old workers meet new jobs and new workers old ones, and leave them to each other."""

import time

import pytest

from taskstore import Client, chain
from taskstore.errors import InvalidInput
from taskstore.jobs import executor, verdicts
from taskstore.jobs.registry import REGISTERED
from taskstore.jobs.worker import JobWorker
from taskstore.types.job_record import (
    DEFAULT_QUEUE,
    FUNCTION_LABEL,
    LEFT_LABEL,
    How,
    JobOptions,
    JobRecord,
    JobStatus,
    OnLost,
    new_task,
    queue_group,
)
from taskstore.types.tasks import NewTask
from taskstore.worker import heartbeat

from . import sample
from .workers import SAMPLE, Queue, eventually

NEW = "tests.jobs.new_version"
RENAMED, ADD = f"{NEW}.renamed", f"{SAMPLE}.add"
MANY, PAUSE_MS = 1_000, 1_000


class Deploy(Queue):
    """Workers of either version; each has a fork server of its own, which imports the functions of that one alone."""

    module = SAMPLE

    def new_worker(self, **options):
        options = {"processes": 2, "kill_after_ms": 300, "wait_ms": 100, **options}
        return JobWorker(self.store, runner=[REGISTERED, self.module], **options)

    def of(self, module):
        other = Deploy(
            Client(self.store.url, token=self.token, client_id=99), self.token
        )  # As in a process of its own.
        other.module = module
        return other

    def add(self, function, *values, **options):
        tasks = [new_task(JobRecord(function=function, args=[value], **options)) for value in values]
        return [task.origin for task in self.store.commit(adds=tasks)]

    def done(self):
        return {job.id: job for job in self.store.jobs.list(status=JobStatus.SUCCEEDED, limit=200).jobs}


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch):
    monkeypatch.setattr(verdicts, "UNKNOWN_MS", PAUSE_MS)
    monkeypatch.setattr(heartbeat, "BEAT_S", 1.0)
    monkeypatch.setattr(executor, "LOOK_EVERY_S", 0.5)


@pytest.fixture
def old(queue):
    return Deploy(queue.store, queue.token)


@pytest.fixture
def new(old):
    other = old.of(NEW)
    with other.store:
        yield other


def test_a_job_with_as_many_labels_as_it_may_have_is_left_to_others_and_comes_after_others(old, new):
    labels = {f"label {number}": "" for number in range(64)}
    with pytest.raises(InvalidInput, match="labels: must have at most 64 labels, not 65"):
        old.store.jobs.enqueue(RENAMED, args=[1], labels={**labels, "tenant": "acme"})
    left = old.store.jobs.enqueue(RENAMED, args=[1], labels=labels).id
    steps = chain(sample.add.s(1), sample.add.using(labels=labels).s(2)).enqueue(old.store)
    with old.worker(name="old"):
        assert eventually(lambda: old.record(left).attempts)
        assert old.store.batches.wait(steps.id, 30).state == "succeeded"
        with new.worker(name="new"):
            assert eventually(lambda: left in old.done())
    assert labels.items() <= old.task(left).labels.items()


def test_what_is_no_job_keeps_none_of_the_others_back(old, new, monkeypatch):
    monkeypatch.setattr(verdicts, "UNKNOWN_MS", 600_000)
    labels = {FUNCTION_LABEL: RENAMED, LEFT_LABEL: RENAMED}
    old.store.commit(adds=[NewTask(group=queue_group(DEFAULT_QUEUE), data=b"x", labels=labels, timespec_ms=-600_000)])
    [left] = old.add(RENAMED, 1)
    with old.worker():
        assert eventually(lambda: old.record(left).attempts)
    with new.worker():
        assert eventually(lambda: left in old.done())


def test_a_job_that_a_worker_does_not_have_is_left_to_others_and_its_name_is_told_once(old, new, caplog, monkeypatch):
    """By name, without options of its own, so that it would have one attempt."""
    monkeypatch.setattr(verdicts, "UNKNOWN_MS", 600_000)  # They are brought forward, and don't come by themselves.
    left = old.add(RENAMED, *range(20))
    with old.worker(name="old"):
        known = old.add(ADD, 1)
        assert eventually(lambda: all(old.record(each).attempts for each in left))
        assert old.finished(known[0]).result == 1
        told = [each.message for each in caplog.records if "renamed" in each.message]
        with new.worker(name="new"):
            assert eventually(lambda: old.done().keys() == {*known, *left})
    assert len(told) == 1
    assert told[0].startswith(f"jobs of {RENAMED} are left to other workers: this worker does not run {RENAMED}, only ")
    for job in old.done().values():
        *before, last = job.attempts
        assert (last.how, last.worker) == (How.SUCCEEDED, "new" if before else "old")
        assert all(each.lacked_function and each.worker == "old" for each in before)
    assert [(task.error, [*task.labels]) for task in old.tasks()] == [("", ["function"])] * 21


def test_a_job_keeps_its_place_and_its_attempts(old, new):
    [left] = old.add(RENAMED, 1)
    with old.worker(name="old"):
        assert eventually(lambda: old.record(left).attempts)
        task, first = old.task(left), old.record(left).attempts[0]
        assert (task.error, task.labels["unknown_function"]) == ("", RENAMED)  # No failure, which people are told of.
        assert first.error.line.startswith(f"UnknownFunction: this worker does not run {RENAMED}, only ")
        assert old.store.jobs.get(left).labels == {}
        assert PAUSE_MS <= task.available_at_ms - first.ended < 10 * PAUSE_MS  # The commit may come late.
        assert task.owner == 0
        assert (old.store.jobs.get(left).status, old.record(left).next_attempt) == (JobStatus.SCHEDULED, 1)
        assert eventually(lambda: old.record(left).attempts[0].times == 2)  # Offered again: one attempt, counted.
    [attempt] = old.record(left).attempts
    assert (attempt.started, attempt.lacked_function) == (first.started, True)
    later = old.add(RENAMED, 2)
    with new.worker(processes=1):
        assert eventually(lambda: old.done().keys() == {left, *later})


def test_a_job_that_must_not_be_lost_is_left_as_well(old, new):
    [left] = old.add(RENAMED, 1, options=JobOptions(on_lost=OnLost.FAIL))
    with old.worker():
        assert eventually(lambda: old.record(left).lacks_function)
    with new.worker():
        assert old.finished(left).result == 1


def test_a_worker_that_may_end_does_not_wait_for_what_it_does_not_have(old):
    old.add(RENAMED, 1)
    began_s = time.monotonic()
    worker = old.new_worker(processes=1)
    worker.run(until_empty=True)
    assert time.monotonic() - began_s < 20
    assert RENAMED in worker.left[0]


@pytest.mark.parametrize("processes", [1, 4])
def test_known_jobs_do_not_wait_behind_a_thousand_unknown_ones(old, processes):
    with old.worker(processes=processes):
        old.finished(old.add(ADD, 0)[0])
        unknown = old.add(RENAMED, *range(MANY))
        known = old.add(ADD, *range(10))
        assert eventually(lambda: {*known} <= old.done().keys())
        jobs, begun_ms = old.done(), old.task(unknown[0]).created_at_ms
        assert max(jobs[each].attempts[-1].ended - begun_ms for each in known) < 10_000  # Not a second each.
        assert all(old.record(each).lacks_function for each in (unknown[0], unknown[-1]))
