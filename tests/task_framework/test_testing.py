"""What a project's tests do with its tasks: without a database, and with the store."""

from datetime import timedelta

import pytest
from django.utils import timezone

from tasks_app.models import Task
from tasks_app.tasks_backend.framework import BaseTaskBackend, TaskResultDoesNotExist, TaskResultStatus, task_finished
from tasks_app.testing import assert_enqueued, drain_queue, enqueued
from taskstore import current_job

from . import tested
from .tested import asleep, attempt_of, calls, endless, fragile, given_up, nested

MEMORY, IMMEDIATE = "tasks_app.testing.MemoryBackend", "tasks_app.testing.ImmediateBackend"
STORE = "tasks_app.tasks_backend.TaskStoreBackend"
MODULES = {"OPTIONS": {"modules": [tested.__name__]}}


@pytest.fixture(autouse=True)
def no_calls():
    calls.clear()


@pytest.fixture(params=[MEMORY, STORE])
def backend(request, settings):
    if request.param == STORE:
        request.getfixturevalue("db")
    settings.TASKS = {"default": {"BACKEND": request.param, "QUEUES": ["default", "mail"], **MODULES}}


@pytest.mark.usefixtures("backend")
def test_it_runs_what_is_enqueued_with_its_retries():
    lasting, failing = fragile.enqueue(2), fragile.enqueue(failures=9)
    assert lasting.status is TaskResultStatus.READY
    finished = []
    task_finished.connect(receiver := lambda task_result, **_: finished.append(task_result.status))
    results = drain_queue()
    task_finished.disconnect(receiver)
    assert [result.id for result in results] == [lasting.id, failing.id]
    assert sorted(calls) == [1, 1, 2, 2, 3, 3]
    lasting.refresh()
    assert (lasting.return_value, lasting.attempts, len(lasting.errors)) == (3, 3, 2)
    assert lasting.errors[0].exception_class is KeyError
    assert (results[1].status, results[1].attempts) == (TaskResultStatus.FAILED, 3)
    assert finished == [TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED]
    assert drain_queue() == []
    with pytest.raises(LookupError):
        current_job()


@pytest.mark.usefixtures("backend")
def test_it_runs_what_tasks_enqueue_but_not_for_ever():
    nested.enqueue(3)
    assert [result.return_value for result in drain_queue()] == [3, 2, 1, 0]
    endless.enqueue()
    with pytest.raises(AssertionError, match="there are still tasks in default after 20 runs"):
        drain_queue("default", most=20)


@pytest.mark.usefixtures("backend")
def test_it_leaves_what_is_for_later_and_for_other_queues():
    later = nested.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(0)
    mail = nested.using(queue_name="mail").enqueue(0)
    snoozed, gone = asleep.enqueue(), given_up.enqueue()
    assert [result.id for result in drain_queue("default")] == [snoozed.id]
    for result in (later, mail, snoozed):
        result.refresh()
        assert (result.status, result.attempts) == (TaskResultStatus.READY, 0)
    with pytest.raises(TaskResultDoesNotExist):
        gone.refresh()
    assert [result.id for result in drain_queue()] == [mail.id]


@pytest.mark.usefixtures("backend")
def test_the_task_with_the_highest_priority_is_first_and_a_key_is_taken_once():
    nested.using(unique="today").enqueue(0)
    urgent = attempt_of.using(priority=9).enqueue(plus=1)
    again = nested.using(unique="today").enqueue(0)
    assert [result.return_value for result in drain_queue()] == [2, 0]
    assert [result.id for result in enqueued()] == [again.id, urgent.id]
    assert nested.using(unique="today").enqueue(0).id != again.id


@pytest.mark.usefixtures("backend")
def test_it_says_what_was_enqueued():
    nested.enqueue(1)
    nested.enqueue(1)
    fragile.enqueue(failures=0)
    assert len(assert_enqueued(nested)) == len(assert_enqueued(nested, 1, times=2)) == 2
    assert_enqueued(fragile, failures=0)
    for times in (1, 3):
        with pytest.raises(AssertionError, match="was enqueued 2 times, not"):
            assert_enqueued(nested, 1, times=times)
    with pytest.raises(AssertionError) as wrong_arguments:
        assert_enqueued(nested, 2)
    first, *others = str(wrong_arguments.value).replace(f"{tested.__name__}.", "").split("\n")
    assert first == "nested(2) was not enqueued. Enqueued:"
    assert others == ["  nested(1)", "  nested(1)", "  fragile(failures=0)"]
    assert_enqueued(endless, times=0)
    drain_queue()
    assert_enqueued(nested, 1)


def test_at_once_it_has_run_when_it_is_enqueued(settings):
    settings.TASKS = {"default": {"BACKEND": IMMEDIATE, **MODULES}}
    assert fragile.enqueue(1).return_value == 2
    assert nested.enqueue(1).return_value == 1
    assert [result.return_value for result in enqueued()] == [2, 1, 0]
    assert given_up.enqueue().status is TaskResultStatus.READY
    assert nested.using(timeout=60, memory_bytes=2**30).enqueue(0).return_value == 0


def test_the_fixture_keeps_tasks_in_memory(task_queue):
    nested.enqueue(0)
    task_queue.assert_enqueued(nested, 0)
    assert [result.return_value for result in task_queue.drain()] == [0]


@pytest.mark.django_db
def test_the_fixture_forgets_them(task_queue):
    assert task_queue.enqueued() == []
    nested.enqueue(0)
    assert not Task.objects.exists()


def test_another_backend_is_named(settings):
    settings.TASKS = {"default": {"BACKEND": f"{BaseTaskBackend.__module__.removesuffix('base')}dummy.DummyBackend"}}
    with pytest.raises(TypeError, match="is DummyBackend: use tasks_app"):
        drain_queue()
