"""Tasks of Django's framework that are enqueued, and what is known of them; who runs them is in test_work.py."""

import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, Overflow
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.utils import timezone

from tasks_app.jobs import queues as job_queues
from tasks_app.models import Task
from tasks_app.tasks_backend import batch, batch_results, batches, planned
from tasks_app.tasks_backend.backend import TaskStoreBackend, of_alias
from tasks_app.tasks_backend.framework import InvalidTask, TaskResultDoesNotExist, TaskResultStatus, task_enqueued
from tasks_app.tasks_backend.results import JobEnded
from tasks_app.testing import drain_queue
from taskstore.client.errors import JobFailed
from taskstore.errors import InvalidInput
from taskstore.types.job_record import JobError, JobOptions, JobRecord, JobStatus, OnLost
from taskstore.types.tasks import Change, NewTask
from tests.jobs_store.jobs import enqueued, finished, started

from .tasks import echo_a_day, report, send, which

pytestmark = pytest.mark.django_db

BACKEND = "tasks_app.tasks_backend.TaskStoreBackend"
OBJECTS: Any = Task.objects  # For what type checkers would refuse.
NEW: Any = NewTask
ANYTHING: Any = "x"


@pytest.fixture
def backend():
    return of_alias("default")


def test_it_can_do_all_that_the_framework_knows(backend):
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority


@pytest.mark.parametrize("queued", [send, report, which], ids=lambda queued: queued.name)
def test_what_was_enqueued_is_found_again_as_it_was(backend, queued):
    result = queued.enqueue(1, copies=2)
    assert (result.task, result.status, result.args, result.kwargs) == (
        queued,
        TaskResultStatus.READY,
        [1],
        {"copies": 2},
    )
    assert (result.started_at, result.finished_at, result.attempts) == (None, None, 0)
    assert abs(timezone.now() - result.enqueued_at) < timedelta(minutes=1)
    assert backend.get_result(result.id) == result == queued.get_result(result.id)
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    job = job_of(result)
    assert (job.queue, job.priority) == (queued.queue_name, queued.priority)


def test_the_async_words_do_the_same(backend):
    result = async_to_sync(report.aenqueue)(5)
    assert async_to_sync(backend.aget_result)(result.id) == async_to_sync(report.aget_result)(result.id) == result
    with pytest.raises(TaskResultDoesNotExist):
        async_to_sync(backend.aget_result)("123")


def test_a_deferred_task_waits_for_its_time(backend):
    at = (timezone.now() + timedelta(hours=1)).replace(microsecond=5_000)
    result = send.using(run_after=at).enqueue("ann")
    assert backend.get_result(result.id) == result
    job = job_of(result)
    assert (job.status, job.available_at_ms) == (JobStatus.SCHEDULED, at.timestamp() * 1000)
    with pytest.raises(InvalidTask, match="aware"):
        send.using(run_after=datetime.now())  # noqa: DTZ005 - that is the mistake


def test_it_tells_that_it_was_enqueued():
    told = []

    def hear(sender, task_result, **_):
        told.append((sender, task_result))

    task_enqueued.connect(hear)
    result = send.enqueue("ann")
    report.using(unique="june").enqueue(1)
    report.using(unique="june").enqueue(1)
    task_enqueued.disconnect(hear)
    assert told[0] == (TaskStoreBackend, result)
    assert len(told) == 2  # Nothing is told of a job that was not added.


def test_a_result_follows_its_job(backend):
    result = send.enqueue("ann")
    claimed = started(records_it=True)
    result.refresh()
    assert (result.status, result.worker_ids, result.attempts) == (TaskResultStatus.RUNNING, ["ann"], 1)
    assert result.started_at == result.last_attempted_at
    assert result.finished_at is None
    finished(claimed, result=["ann"])
    result.refresh()
    assert (result.status, result.return_value, result.errors) == (TaskResultStatus.SUCCESSFUL, ["ann"], [])
    assert result.finished_at >= result.started_at


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (JobError(type="KeyError"), KeyError),
        (JobError(type="decimal.Overflow"), Overflow),
        (JobError(type="Died"), JobEnded),
    ],
)
def test_a_result_keeps_what_went_wrong(backend, error, kind):
    result: Any = send.enqueue("ann")
    finished(started(), JobStatus.FAILED, error=error)
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    [kept] = result.errors
    assert (kept.exception_class, kept.traceback) == (kind, f"{error.type}\n")
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value
    with pytest.raises(JobFailed, match=f"job {result.id} failed: {error.type}"):
        result.get(timeout=1)


def test_a_result_is_waited_for(backend):
    result: Any = send.enqueue("ann")
    with pytest.raises(TimeoutError, match=f"task {result.id} has not finished yet"):
        result.get(timeout=0.05)
    finished(started(), JobStatus.SUCCEEDED, result=["ann"])
    assert result.get(timeout=1) == result.return_value == ["ann"]


def test_the_results_of_a_batch_come_in_order(backend, monkeypatch):
    monkeypatch.setattr(batches, "AT_ONCE", 2)
    with batch() as made:
        for name in "abc":
            send.enqueue(name)
    [task, *others] = [started() for _ in range(3)]
    for each in others:
        finished(each, JobStatus.SUCCEEDED, result=JobRecord.decode(each.data).args[0])
    finished(task, JobStatus.FAILED, error=JobError(type="KeyError"))
    failed = JobRecord.decode(task.data).args[0]
    assert [result.return_value for result in batch_results(made.id)] == [name for name in "abc" if name != failed]
    with pytest.raises(LookupError):
        next(batch_results())


def test_the_result_of_a_cancelled_job_has_failed_and_says_why(backend):
    made = send.enqueue("ann")
    Task.objects.cancel([int(made.id)], by="olaf", reason="ordered twice")
    result = backend.get_result(made.id)
    assert (result.status, result.is_finished) == (TaskResultStatus.FAILED, True)
    assert result.finished_at >= result.enqueued_at
    [kept] = result.errors
    assert (kept.exception_class, kept.traceback) == (JobEnded, "Cancelled: by olaf: ordered twice\n")


@pytest.mark.parametrize("kind", [BACKEND, "tasks_app.testing.MemoryBackend"])
def test_a_result_cancels_its_task_once(settings, kind):
    settings.TASKS = {"default": {"BACKEND": kind}}
    result: Any = send.enqueue("ann")
    assert (result.cancel("ordered twice"), result.cancel()) == (True, False)
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert "ordered twice" in result.errors[-1].traceback
    with pytest.raises(JobFailed, match=f"job {result.id} was cancelled: ordered twice"):
        result.get(timeout=1)
    done: Any = send.enqueue("bob")
    drain_queue()
    assert not done.cancel()


def test_any_id_of_a_chain_names_it(backend):
    first, second = send.enqueue("ann"), send.enqueue("bob")
    [held, other] = [started(), started()]
    Task.objects.commit(owner=held.owner, updates=[Change(id=held.id)])  # It has another id.
    [present] = Task.objects.filter(origin=held.origin)
    assert present.id not in (held.id, held.origin)
    assert Task.objects.cancel([held.id, second.id]) == [other.id, present.id]
    assert {job.status for job in map(backend.job_of, (first.id, second.id))} == {JobStatus.CANCELLED}


@pytest.mark.parametrize("job_id", ["0", "-1", "17", "x", str(2**80)])
def test_what_is_no_job_of_the_project_does_not_exist(backend, job_id):
    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result(job_id)


@pytest.mark.parametrize(
    "function", ["tests.task_framework.tasks.not_a_task", "tests.task_framework.tasks.nothing", "this.s", "x"]
)
def test_nothing_but_tasks_of_the_project_is_looked_at(backend, function):
    with pytest.raises(TaskResultDoesNotExist, match=function):
        backend.get_result(str(enqueued(function)))
    assert "this" not in sys.modules  # Which prints a poem to whoever imports it.


def test_a_job_of_a_queue_that_is_no_longer_there_is_none_of_the_project(settings):
    result = report.enqueue(5)
    settings.TASKS = {"default": {"BACKEND": BACKEND}}
    with pytest.raises(TaskResultDoesNotExist, match="reports"):
        of_alias("default").get_result(result.id)


@pytest.mark.parametrize("argument", [datetime.now(UTC), {1, 2}, float("nan")], ids=["time", "set", "nan"])
def test_parameters_that_are_no_json_are_refused(argument):
    for told, enqueue in {
        r"args\[1\]:? must be ": partial(send.enqueue, "ann", argument),
        "copies:? must be ": partial(send.enqueue, "ann", copies=argument),
    }.items():
        with pytest.raises((TypeError, InvalidInput), match=told):
            enqueue()
    assert not Task.objects.exists()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: OBJECTS.commit(owner=1, adds=[NEW(group="a", data="text")]), r"adds\[0\].data: must be bytes"),
        (lambda: OBJECTS.create_batch(owner=1, adds=[NEW(group="a", data=None)]), "must be bytes, not None"),
        (lambda: OBJECTS.commit(owner=1, adds=[{"group": "a"}]), r"adds\[0\]: must be a NewTask, not"),
        (lambda: OBJECTS.commit(owner=1, adds=[NEW(group="a", labels={"a": 5})]), "labels: must be texts"),
        (lambda: OBJECTS.commit(owner=1, updates=[NEW(group="a")]), r"updates\[0\]: must be a Change, not"),
        (lambda: OBJECTS.cancel([1], reason=None), "reason must be text, not None"),
        (lambda: OBJECTS.cancel(["seven"]), r"ids\[0\]: must be an integer, not 'seven'"),
        (lambda: OBJECTS.set_limits("a", rate=100), r"rate must be a Rate, such as Rate\(100"),
        (lambda: planned(ANYTHING), "planned needs a function with @task"),
    ],
)
def test_what_a_program_passes_wrongly_is_named(call, told):
    with pytest.raises((InvalidInput, TypeError), match=told):
        call()
    assert not Task.objects.exists()


def test_a_function_of_the_settings_makes_json_of_parameters(settings):
    settings.TASKS = {"default": {"BACKEND": BACKEND, "OPTIONS": {"json_default": str}}}
    result = send.enqueue(Decimal("1.5"), copies={"day": date(2026, 11, 29)})
    assert (result.args, result.kwargs) == (["1.5"], {"copies": {"day": "2026-11-29"}})
    echoed = echo_a_day.enqueue("2026-11-29")
    assert next(each for each in drain_queue() if each.id == echoed.id).return_value == "2026-11-29"
    settings.TASKS = {"default": {"BACKEND": BACKEND, "OPTIONS": {"json_default": lambda value: value + ""}}}
    with pytest.raises(TypeError, match=r"^args\[0\] must be JSON: unsupported operand"):
        send.enqueue(Decimal("1.5"))


def test_options_come_from_the_backend_the_queue_and_the_task(settings):
    settings.TASKS = {
        "default": {
            "BACKEND": BACKEND,
            "QUEUES": ["default", "slow"],
            "OPTIONS": {
                "max_attempts": 2,
                "timeout": 30,
                "on_lost": "fail",
                "queues": {"slow": {"timeout": timedelta(hours=1), "max_lost": 1}},
            },
        }
    }
    assert options_of(send) == JobOptions(max_attempts=2, timeout_ms=30_000, on_lost=OnLost.FAIL)
    slow = send.using(queue_name="slow")
    assert options_of(slow) == JobOptions(max_attempts=2, timeout_ms=3_600_000, on_lost=OnLost.FAIL, max_lost=1)
    own = slow.using(max_attempts=5, timeout=0.5, backoff=timedelta(seconds=2), memory_bytes=2**30, on_lost="retry")
    assert options_of(own) == JobOptions(
        max_attempts=5, timeout_ms=500, backoff_ms=2_000, memory_bytes=2**30, on_lost=OnLost.RETRY, max_lost=1
    )


def options_of(queued):
    return job_of(queued.enqueue("ann")).options


def job_of(result):
    job = job_queues.find(int(result.id))
    assert job
    return job


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ({"max_attempts": 0}, "must be between 1 and"),
        ({"timeout": 0}, "at least a millisecond"),
        ({"backoff": "soon"}, "a timedelta or a number of seconds"),
        ({"on_lost": "weep"}, "retry, fail"),
        ({"queue_name": "a/b"}, "must not be empty or contain /"),
        ({"priority": 101}, "priority"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_task_that_makes_no_sense_is_refused_when_it_is_made(wrong, right):
    with pytest.raises(InvalidTask, match=right):
        send.using(**wrong)


@pytest.mark.once
@pytest.mark.parametrize(
    ("changes", "complaints"),
    [
        ({}, []),
        ({"OPTIONS": {"modules": ["shop.work"], "queues": {"default": {"max_lost": 1}}}}, []),
        ({"OPTIONS": {"max_attempts": 0, "retries": 3}}, ["tasks_app.E008"] * 2),
        ({"OPTIONS": {"queues": {"default": {"timeout": -1}}}}, ["tasks_app.E008"]),
        ({"OPTIONS": {"queues": ["default"], "modules": "shop.work"}}, ["tasks_app.E008"] * 2),
        ({"QUEUES": ["a/b"]}, ["tasks_app.E009"]),
        ({"OPTIONS": {"queues": {"slow": {}}}}, ["tasks_app.E010"]),
    ],
)
def test_its_settings_are_checked(settings, changes, complaints):
    settings.TASKS = {"default": {"BACKEND": BACKEND, **changes}}
    found = of_alias("default").check()
    assert [each.id for each in found] == complaints
    assert all("must" in each.msg or "use one of" in each.msg or each.hint for each in found)


@pytest.mark.once
def test_the_app_has_to_be_installed(settings):
    settings.INSTALLED_APPS = []
    [found] = of_alias("default").check()
    assert found.id == "tasks_app.E007"


def test_a_task_with_a_key_is_enqueued_once_until_it_has_finished(backend):
    once = report.using(unique="june", unique_for=timedelta(minutes=1))
    with transaction.atomic():
        first = once.enqueue(1)
    again = once.enqueue(2)
    assert (again.id, again.args) == (first.id, [1])
    assert report.enqueue(3).id != first.id
    finished(Task.objects.get(id=int(first.id)))
    again = report.using(unique="june").enqueue(4)
    assert (again.id, again.status) == (first.id, TaskResultStatus.SUCCESSFUL)


@pytest.mark.parametrize("wrong", [{"unique": ""}, {"unique": "x" * 256}, {"unique_for": 1}])
def test_a_key_that_makes_no_sense_is_refused(backend, wrong):
    with pytest.raises(InvalidTask, match="unique"):
        report.using(**wrong).enqueue(1)
    assert not Task.objects.exists()
