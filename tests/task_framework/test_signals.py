"""The signals of tasks that are retried, cancelled, or killed: who sends them, and once."""

import json
import time
from datetime import timedelta

import pytest
from django.db import transaction

from tasks_app.models import Task
from tasks_app.tasks_backend import task_retried
from tasks_app.tasks_backend.framework import TaskResultStatus, task_finished
from tasks_app.testing import drain_queue
from taskstore.errors import InvalidInput
from taskstore.types.job_record import JobStatus

from .shop import Shop, wait_until
from .test_testing import MEMORY, MODULES, STORE
from .test_work import job
from .tested import choosy, fragile


@pytest.fixture(params=[MEMORY, STORE])
def backend(request, settings):
    if request.param == STORE:
        request.getfixturevalue("transactional_db")
    settings.TASKS = {"default": {"BACKEND": request.param, "QUEUES": ["default", "mail"], **MODULES}}


@pytest.fixture
def told():
    heard = []

    def hear(event):
        def receive(task_result, **_):
            heard.append((event, task_result.id, task_result.status, len(task_result.errors)))

        return receive

    finished, retried = hear("finished"), hear("retried")
    task_finished.connect(finished)
    task_retried.connect(retried)
    yield heard
    task_finished.disconnect(finished)
    task_retried.disconnect(retried)


@pytest.mark.usefixtures("backend")
def test_each_retry_is_told(told):
    lasting = fragile.enqueue(2)
    drain_queue()
    assert told == [
        ("retried", lasting.id, TaskResultStatus.READY, 1),
        ("retried", lasting.id, TaskResultStatus.READY, 2),
        ("finished", lasting.id, TaskResultStatus.SUCCESSFUL, 2),
    ]


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(
    ("raised", "events", "status"),
    [
        ("OSError", ["retried", "retried", "finished"], TaskResultStatus.FAILED),
        ("ValueError", ["finished"], TaskResultStatus.FAILED),
        ("FileNotFoundError", ["finished"], TaskResultStatus.FAILED),
        ("KeyError", [], None),
        ("save", ["finished"], TaskResultStatus.FAILED),
        ("retry", ["retried", "retried", "finished"], TaskResultStatus.FAILED),
    ],
)
def test_a_task_has_the_rules_of_jobs(told, raised, events, status):
    made = choosy.enqueue(raised)
    [*results] = drain_queue()
    assert [event for event, *_ in told] == events
    assert [result.status for result in results] == ([status] if status else [])
    assert made.id


@pytest.mark.usefixtures("backend")
def test_a_task_that_is_cancelled_while_it_waits_is_told_once(told):
    waits = fragile.enqueue(0)
    assert waits.cancel("not needed")
    assert not waits.cancel()
    assert told == [("finished", waits.id, TaskResultStatus.FAILED, told[0][3])]


@pytest.mark.django_db(transaction=True)
def test_a_cancel_that_is_rolled_back_tells_nothing(settings, told):
    settings.TASKS = {"default": {"BACKEND": STORE, **MODULES}}
    first, second = fragile.enqueue(0), fragile.enqueue(0)
    with transaction.atomic():
        Task.objects.cancel([first.id, second.id])
        transaction.set_rollback(True)
    assert told == []
    with transaction.atomic():
        Task.objects.cancel([first.id, second.id], reason="both")
        assert told == []
    assert {(event, id) for event, id, *_ in told} == {("finished", first.id), ("finished", second.id)}


@pytest.mark.django_db(transaction=True)
def test_a_worker_tells_of_what_was_cancelled_while_it_ran_and_of_each_retry(tmp_path):
    shop = Shop(tmp_path)
    ids = json.loads(
        shop.run(
            "import json; from shop.tasks import *; made = [wait.enqueue(), crash.using(max_attempts=2).enqueue(), "
            "fail.enqueue('ann'), add.using(expires=0.001).enqueue(1, 2)]; "
            "print(json.dumps([int(one.id) for one in made]))"
        )
    )
    waits, crashes, fails, expires = ids
    time.sleep(0.01)
    with shop.worker("--processes", "2"):
        wait_until(lambda: job(waits).status is JobStatus.STARTED)
        wait_until(lambda: all(job(each).is_finished for each in (crashes, fails, expires)))
        Task.objects.cancel([waits], reason="no longer")
        wait_until(lambda: sum(event[:2] == ["finished", "wait"] for event in events(shop)) == 1)
        assert job(expires).status is JobStatus.CANCELLED
        wait_until(lambda: [event[0] for event in events(shop) if event[1] == "add"] == ["finished"])
        told = {name: [event for event, each, *_ in events(shop) if each == name] for name in ("crash", "fail")}
        assert [event for event in told["crash"] if event != "started"] == ["retried", "finished"]
        assert told["fail"] == ["started", "retried", "started", "finished"]


@pytest.mark.django_db(transaction=True)
def test_a_retry_is_told_once_also_while_the_next_attempt_is_leased_again(tmp_path):
    shop = Shop(tmp_path)
    program = (
        "from shop.tasks import *; rare = sleep.using(max_attempts=3, timeout=0.4, backoff=0.05); "
        "print(*[rare.enqueue(60).id for _ in range(6)])"
    )
    made = [int(each) for each in shop.run(program).split()]
    with shop.worker("--processes", "2", "--lease", "1"):
        wait_until(lambda: all(job(each).is_finished for each in made))
        wait_until(lambda: sum(event[0] == "finished" for event in events(shop)) == len(made))
    assert sum(event[0] == "retried" for event in events(shop)) == 2 * len(made)


@pytest.mark.django_db
def test_a_reason_that_no_task_holds_is_refused_by_its_name(settings):
    settings.TASKS = {"default": {"BACKEND": STORE, **MODULES}}
    for reason in ("a\0b", "\ud800", "x" * 100_001):
        with pytest.raises(InvalidInput, match=r"^reason: "):
            fragile.enqueue(0).cancel(reason)


def events(shop):
    return [json.loads(line) for line in shop.events.splitlines()]


@pytest.mark.django_db
def test_rules_of_a_single_call_are_refused(settings):
    settings.TASKS = {"default": {"BACKEND": STORE, **MODULES}}
    for rule in ({"retry_on": KeyError}, {"backoff": [1, 2]}, {"jitter": 0.9}):
        [name] = rule
        with pytest.raises(Exception, match=f"{name} must be where the task is declared"):
            choosy.using(**rule).enqueue("x")
    assert choosy.using(backoff=timedelta(seconds=3)).enqueue("x")
