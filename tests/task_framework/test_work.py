"""`manage.py work` in a project that installs the app: real processes run its tasks."""

import json
from statistics import median

import pytest
from django.core.management import CommandError, call_command

from tasks_app.database import table_version
from tasks_app.database.table_version import Version
from tasks_app.jobs import queues as job_queues
from tasks_app.jobs.queues import Wanted
from tasks_app.tasks_backend.framework import BaseTaskBackend
from taskstore.types.job_record import How, JobRecord, JobStatus

from .shop import Shop, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

ENQUEUE = """
import datetime, json
from django.db import transaction
from django.utils import timezone
from shop.tasks import *

soon = timezone.now() + datetime.timedelta(seconds=1)
with transaction.atomic():
    add.enqueue(0, 0)
    transaction.set_rollback(True)
results = {
    "first": add.using(priority=90).enqueue(1, 2),
    "last": add.using(priority=-5).enqueue(b=4, a=3),
    "async": count.using(priority=50).enqueue(),
    "context": who.using(priority=40).enqueue(),
    "fails": fail.enqueue("ann"),
    "crashes": crash.enqueue(),
    "too long": sleep.using(timeout=0.3).enqueue(60),
    "no JSON": unsay.enqueue(),
    "deferred": add.using(run_after=soon, priority=-50).enqueue(5, 6),
}
print(json.dumps({name: result.id for name, result in results.items()}))
"""

READ = """
import json, sys
from tasks_app.tasks_backend.framework import task_backends

def told(id):
    result = task_backends["default"].get_result(id)
    errors = [[each.exception_class.__name__, each.traceback] for each in result.errors]
    started_ms = (result.started_at - result.enqueued_at).total_seconds() * 1000
    return [result.status, result._return_value, result.attempts, errors, started_ms]

print(json.dumps({name: told(id) for name, id in json.loads(%r).items()}))
"""


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


def test_tasks_run_in_processes_of_a_worker_and_it_is_known_what_came_of_them(shop):
    ids = json.loads(shop.run(ENQUEUE))
    foreign = job_queues.enqueue(JobRecord(function="os.getpid"), priority=1)
    with shop.worker("--processes", "1") as worker:
        wait_until(lambda: all(job(job_id).is_finished for job_id in ids.values()))
        results = json.loads(shop.run(READ % json.dumps(ids)))
        assert said(results["first"]) == ["SUCCESSFUL", 3, 1]
        assert said(results["last"]) == ["SUCCESSFUL", 7, 1]
        assert said(results["async"]) == ["SUCCESSFUL", 0, 1]
        status, (job_id, attempt, pid), _ = said(results["context"])
        assert (status, job_id, attempt) == ("SUCCESSFUL", ids["context"], 1)
        assert said(results["deferred"]) == ["SUCCESSFUL", 11, 1]
        assert results["deferred"][-1] >= 1_000
        assert said(results["fails"]) == ["FAILED", None, 2]
        assert [kind for kind, _ in results["fails"][3]] == ["KeyError", "KeyError"]
        assert 'File "' in results["fails"][3][0][1]
        assert "hello ann" in job(ids["fails"]).log
        for name, why in {"crashes": "SIGKILL", "too long": "longer than 0.3 s"}.items():
            assert said(results[name]) == ["FAILED", None, 1]
            [(kind, text)] = results[name][3]
            assert kind == "JobEnded"
            assert why in text
        assert results["no JSON"][3][0][0] == "JobEnded"
        assert "the result must be JSON: " in results["no JSON"][3][0][1]
        assert len(job_queues.list_jobs(Wanted()).jobs) == len(ids) + 1  # Not the one that was rolled back.
        [left] = job(foreign.id).attempts
        assert (left.how, left.error.type, job(foreign.id).result) == (How.GIVEN_BACK, "UnknownFunction", None)
        assert "os.getpid is not a task" in left.error.message
        events = [json.loads(line) for line in shop.events.splitlines()]
        assert_told(events, worker.pid, pid)
        assert median(waits(shop)) < 500  # Without a word from the other process it would be a second.


def assert_told(events, worker_pid, context_pid):
    """Each start, in order of priority; each end, by the process that knew of it, and only for good."""
    started = [name for event, name, *_ in events if event == "started"]
    assert started[:3] == ["add", "count", "who"]
    assert started.count("fail") == 2
    assert ["started", "who", "RUNNING", 1, context_pid] in events
    assert ["finished", "who", "SUCCESSFUL", 1, context_pid] in events
    ends = {name: (status, pid == worker_pid) for event, name, status, _, pid in events if event == "finished"}
    assert ends == {
        "add": ("SUCCESSFUL", False),
        "count": ("SUCCESSFUL", False),
        "who": ("SUCCESSFUL", False),
        "fail": ("FAILED", False),
        "unsay": ("FAILED", False),
        "crash": ("FAILED", True),
        "sleep": ("FAILED", True),
    }
    assert sum(event == "finished" and name == "fail" for event, name, *_ in events) == 1


def waits(shop):
    """How many ms tasks waited that were enqueued by another process while the worker had nothing to do."""
    ids = json.loads(
        shop.run(
            """
import json, time
from shop.tasks import add
ids = {}
for each in range(3):
    result = ids[each] = add.enqueue(each, each)
    while not result.is_finished:
        time.sleep(0.05)
        result.refresh()
print(json.dumps({each: result.id for each, result in ids.items()}))
"""
        )
    )
    return [result[-1] for result in json.loads(shop.run(READ % json.dumps(ids))).values()]


def test_a_task_whose_worker_is_killed_is_run_by_another_one(shop):
    job_id = shop.run("from shop.tasks import wait; print(wait.using(max_lost=2).enqueue().id)").strip()
    with shop.worker("--lease", "2", "--name", "ann") as ann:
        wait_until(lambda: "started" in shop.events)
        with shop.worker("--lease", "2", "--name", "bob", "--jobs-per-process", "5"):
            ann.kill()
            (shop.folder / "go").touch()
            wait_until(lambda: job(job_id).is_finished)
    assert job(job_id).status == JobStatus.SUCCEEDED
    assert [(each.worker, each.how) for each in job(job_id).attempts] == [("ann", "lost"), ("bob", "succeeded")]


def test_it_starts_again_when_code_changes(shop):
    code = shop.folder / "shop" / "tasks.py"
    with shop.worker("--reload", "--processes", "1") as worker:
        code.write_text(code.read_text().replace("return a + b", "return [a, b]"))
        assert worker.stdout.readline().endswith("works for default, mail\n")
        job_id = int(shop.run("from shop.tasks import add; print(add.enqueue(1, 2).id)"))
        wait_until(lambda: job(job_id).is_finished)
    assert job(job_id).result == [1, 2]


def said(result):
    return result[:3]


def job(job_id):
    found = job_queues.find(int(job_id))
    assert found
    return found


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--backend", "other"], "'other' doesn't exist"),
        (["--backend", "dummy"], "must be a backend of Task Store, not DummyBackend"),
        (["--queue", "a/b"], "must not be empty or contain /"),
        (["--processes", "0"], "from 1 to 1000"),
        (["--lease", "9999999999"], "from 1 to 2592000"),
        (["--grace", "nan"], "number of seconds"),
        (["--burst-wait", "-1"], "number of seconds"),
        (["--reload", "--burst"], "either --reload or --burst"),
    ],
)
def test_it_says_what_is_wrong_with_how_it_is_started(settings, options, why):
    dummy = f"{BaseTaskBackend.__module__.removesuffix('.base')}.dummy.DummyBackend"
    settings.TASKS = {**settings.TASKS, "dummy": {"BACKEND": dummy}}
    with pytest.raises(CommandError, match=why):
        call_command("work", *options)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (Version.NONE, "the database .default. lacks tables until `python manage.py migrate` has run"),
        (Version.EARLIER, "has tables of an earlier version until `python manage.py migrate` has run"),
        (Version.UNRELEASED, "was made by an unreleased revision with other tables: export its tasks"),
    ],
)
def test_without_its_tables_a_worker_says_so_and_ends(monkeypatch, version, words):
    monkeypatch.setattr(table_version, "version_of", lambda using: version)
    with pytest.raises(CommandError, match=words):
        call_command("work", "--burst")
