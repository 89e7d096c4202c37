"""Cancel over REST: who may do it, what becomes of the tasks, and how their workers learn of it."""

import threading
import time

import pytest

from tasks_app.access import tokens
from tasks_app.control import cancelling
from tasks_app.models import AuditEntry, EndedTask, Scope, Task
from taskstore import Client
from taskstore.client.errors import NotAllowed
from taskstore.types.tasks import NewTask
from tests.jobs_store.jobs import enqueued, find, started

from .api import ANN, BOB, Api

pytestmark = pytest.mark.django_db

WHY = {"reason": "wrong addresses"}


@pytest.fixture
def worker():
    return Api(Scope.WORK)


@pytest.fixture
def operator():
    return Api(Scope.OPERATE)


def add(group="mail", **fields):
    [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group=group, **fields)])
    return task


def test_a_worker_cancels_what_nobody_holds_and_what_has_ended_is_left_out(worker):
    task, job_id = add(), enqueued()
    assert worker.post("/cancel", {"ids": [task.id, job_id, task.id, 10**9], **WHY}) == (
        200, {"ids": [task.id, job_id]},
    )  # fmt: skip
    assert worker.post("/cancel", {"ids": [task.id, job_id]}) == (200, {"ids": []})
    assert find(job_id).status == "cancelled"
    [cancelled] = Task.objects.group("jobs/default/cancelled")
    assert cancelled.error == "cancelled by token:Ann: wrong addresses"
    end = EndedTask.objects.get(id=task.id)
    assert (end.ending, end.operator, end.reason) == ("cancelled", "token:Ann", "wrong addresses")
    assert not AuditEntry.objects.exists()


def test_a_worker_cancels_what_another_client_has_scheduled(worker):
    task = add(timespec_ms=-3_600_000)
    assert worker.post("/cancel", {"ids": [task.id]}) == (200, {"ids": [task.id]})
    assert EndedTask.objects.get(id=task.id).ending == "cancelled"


@pytest.mark.django_db(transaction=True)
def test_nobody_is_told_of_cancelled_tasks_of_groups_that_they_may_not_see():
    seen, hidden = add("mail"), add("secret")
    for group in ("mail", "secret"):
        Task.objects.claim(group, owner=77)
    Task.objects.cancel([seen.id, hidden.id])
    [told, other] = EndedTask.objects.filter(ending="cancelled").order_by("group")
    address = "/cancelled?clientid=77"
    assert Api(Scope.WORK, ("mail",)).get(address)[1]["ids"] == [told.id]
    assert sorted(Api(Scope.WORK).get(address)[1]["ids"]) == sorted([told.id, other.id])


def test_what_is_leased_takes_an_operator_and_otherwise_nothing_is_cancelled(worker, operator):
    waiting, _ = add(), enqueued()
    held = started(owner=BOB)
    status, answer = worker.post("/cancel", {"ids": [waiting.id, held.origin]})
    assert (status, answer["detail"]) == (403, f"task {held.id} is leased: to cancel it takes the scope operate")
    assert Task.objects.count() == 2
    assert operator.post("/cancel", {"ids": [waiting.id, held.origin], **WHY})[0] == 200
    [entry] = AuditEntry.objects.all()
    assert (entry.action, entry.done, entry.selection, entry.reason) == ("cancel", 2, "2 tasks", "wrong addresses")


def test_a_token_for_some_groups_cancels_only_there_and_only_what_it_may_keep(operator):
    task, job_id = add(), enqueued()
    assert Api(Scope.WORK, ("reports*",)).post("/cancel", {"ids": [task.id, job_id]}) == (200, {"ids": []})
    status, answer = Api(Scope.WORK, ("jobs/default",)).post("/cancel", {"ids": [job_id]})
    assert (status, "jobs/default/cancelled" in answer["detail"]) == (403, True)
    assert Api(Scope.READ).post("/cancel", {"ids": [task.id]})[0] == 403
    assert Task.objects.count() == 2


def test_commands_take_their_scope(settings):
    settings.TASKSTORE_COMMANDS = True
    task = add("commands/default/new", data=b"{}")
    status, answer = Api(Scope.WORK).post("/cancel", {"ids": [task.id]})
    assert (status, "scope commands" in answer["detail"]) == (403, True)
    assert Api(Scope.COMMANDS).post("/cancel", {"ids": [task.id]})[0] == 200


@pytest.mark.django_db(transaction=True)
def test_a_worker_is_told_once_of_what_it_held(worker, operator, monkeypatch):
    enqueued()
    held, other = started(), enqueued()
    operator.post("/cancel", {"ids": [held.origin, other]})
    status, told = worker.get("/cancelled?clientid=1")
    assert (status, told["ids"]) == (200, [held.id])
    assert worker.get(f"/cancelled?clientid=1&after={told['after']}")[1]["ids"] == []
    assert worker.get("/cancelled?clientid=1&after=x-1")[1]["ids"] == [held.id]
    assert worker.get("/cancelled?clientid=2")[1]["ids"] == []
    monkeypatch.setattr(cancelling, "TOLD_MS", 0)
    assert worker.get("/cancelled?clientid=1")[1]["ids"] == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "ids"),
        ({"ids": []}, "ids"),
        ({"ids": ["x"]}, "ids[0]"),
        ({"ids": [1], "reason": "x" * 1_001}, "reason"),
        ({"ids": [1], "because": "x"}, "because"),
    ],
)
def test_what_is_wrong_is_named(worker, body, field):
    status, answer = worker.post("/cancel", body)
    assert (status, list(answer["errors"])) == (400, [field])


@pytest.mark.parametrize(
    ("query", "field"), [("", "clientid"), ("clientid=1&wait=-1", "wait"), ("clientid=x", "clientid")]
)
def test_what_is_wrong_with_a_question_is_named(worker, query, field):
    status, answer = worker.get(f"/cancelled?{query}")
    assert (status, list(answer["errors"])) == (400, [field])


@pytest.mark.django_db(transaction=True)
def test_who_waits_is_told_within_a_second(served):
    secret = tokens.create("ann", Scope.OPERATE)[1]
    with Client(served.url, token=secret, client_id=ANN) as client:
        assert client.cancelled(wait_ms=1).ids == ()
        job_id = enqueued()
        held = started(owner=ANN)
        came = []
        waiting = threading.Thread(target=lambda: came.append((client.cancelled(wait_ms=20_000), time.monotonic())))
        waiting.start()
        time.sleep(0.2)
        begun = time.monotonic()
        assert client.cancel([job_id], reason="x").ids == (held.id,)
        waiting.join(20)
        [(told, at)] = came
        assert told.ids == (held.id,)
        assert at - begun < 5
    with Client(served.url, token=tokens.create("bob", Scope.WORK)[1]) as client:
        enqueued()
        held = started(owner=ANN)
        with pytest.raises(NotAllowed):
            client.cancel([held.id])
