"""Text from outside, whatever it is, costs no attempt its record: messages, outputs, arguments and results."""

import logging
import threading
from contextlib import contextmanager

import pytest

from tasks_app.access import tokens
from tasks_app.models import Scope
from tasks_app.testing import drain_queue
from taskstore import Client, Discard, NewTask, Retry, Save, Worker
from taskstore.commands.worker import CommandWorker
from taskstore.jobs.registry import REGISTERED
from taskstore.jobs.worker import JobWorker
from taskstore.types.command_record import CommandStatus
from taskstore.types.job_record import JobStatus
from taskstore.types.texts import LONGEST_ERROR, LONGEST_MESSAGE, clean
from tests.client.patience import wait_for_last_requests
from tests.commands.projects import NAME, Project
from tests.task_framework.framework import task

from . import weird
from .weird import TEXTS


@task(max_attempts=2)
def weird_task(name):
    raise ValueError(TEXTS[name])


@pytest.fixture
def project(served, settings):
    settings.TASKSTORE_COMMANDS = True
    _, secret = tokens.create("ann", Scope.COMMANDS)
    with Client(served.url, token=secret) as client:
        yield Project(client, secret)
        wait_for_last_requests()


@pytest.fixture
def store(project):
    return project.store


@contextmanager
def running(worker, **options):
    thread = threading.Thread(target=worker.run, kwargs={"until_empty": True, **options})
    thread.start()
    yield
    thread.join(60)
    assert not thread.is_alive()


def test_the_record_of_a_job_has_each_attempt_with_its_place_and_its_output(store):
    jobs = {name: store.jobs.enqueue(f"{weird.__name__}.weird", [name, text]).id for name, text in valid(TEXTS)}
    jobs["surrogate"] = store.jobs.enqueue(f"{weird.__name__}.weird", ["surrogate"]).id
    worker = JobWorker(store, runner=[REGISTERED, weird.__name__], processes=1, jobs_per_process=100)
    with running(worker):
        pass
    for name, job_id in jobs.items():
        found = store.jobs.get(job_id)
        assert (found.status, len(found.attempts)) == (JobStatus.FAILED, 2), name
        for attempt in found.attempts:
            assert f'"{weird.__file__}", line' in attempt.error.traceback, name
            assert attempt.error.type == "ValueError"
            assert len(attempt.error.message) <= LONGEST_MESSAGE
            assert attempt.error.message == clean(TEXTS[name], LONGEST_MESSAGE)
        assert found.log, name
        assert len(store.task(found.task).error) <= LONGEST_ERROR


def test_a_result_is_any_text_that_json_can_hold(store):
    texts = {**TEXTS, "long": "x" * 100_000}
    jobs = {name: store.jobs.enqueue(f"{weird.__name__}.echo", [text]).id for name, text in valid(texts)}
    with running(JobWorker(store, runner=[REGISTERED, weird.__name__], processes=1, jobs_per_process=100)):
        pass
    for name, job_id in jobs.items():
        assert store.jobs.get(job_id).result == texts[name], name


@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.parametrize("kind", [ValueError, Save, Retry, Discard])
def test_a_function_may_fail_with_any_text(store, kind, processes):
    store.commit(adds=[NewTask(group=f"weird/{kind.__name__}", data=name.encode()) for name in TEXTS])
    worker = Worker(store, processes=processes)
    worker.handle(f"weird/{kind.__name__}", failed_group="failed", max_attempts=1)(
        getattr(weird, f"raise_{kind.__name__}")
    )
    with running(worker):
        pass
    left = store.group("failed", owned=True)
    assert sorted(task.data.decode() for task in left) == ([] if kind is Discard else sorted(TEXTS))
    assert all(len(task.error) <= LONGEST_ERROR and task.error for task in left)


def test_a_command_may_write_any_text(project):
    project.add_list(*[rf"printf '{text}'; exit 3" for text in (r"\377\0", r"\033[31m", r"\r\n")], max_fails=1)
    with running(CommandWorker(project.store, [NAME]), burst_wait_s=0):
        pass
    kept = [command.run.out.kept for command in project.ended()]
    assert kept == [b"\xff\0", b"\x1b[31m", b"\r\n"]
    assert not project.lists(CommandStatus.OPEN)


@pytest.mark.django_db
@pytest.mark.parametrize("backend", ["tasks_app.testing.MemoryBackend", "tasks_app.tasks_backend.TaskStoreBackend"])
def test_the_tests_of_a_project_may_fail_with_any_text(settings, backend):
    settings.TASKS = {"default": {"BACKEND": backend, "OPTIONS": {"modules": [__name__]}}}
    for name in TEXTS:
        weird_task.enqueue(name)
    logging.disable()  # Django's framework logs the message as it is, which pytest can't send to its main process.
    try:
        results = drain_queue()
    finally:
        logging.disable(logging.NOTSET)
    assert len(results) == len(TEXTS)
    for result in results:
        assert [f'"{__file__}", line' in error.traceback for error in result.errors] == [True, True]


def valid(texts):
    return [(name, text) for name, text in texts.items() if name != "surrogate"]
