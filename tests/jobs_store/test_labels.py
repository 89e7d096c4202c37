"""Labels of jobs, by each way to enqueue one, and what they are for."""

import pytest

from tasks_app.access import tokens
from tasks_app.jobs import queues
from tasks_app.models import Scope, Task
from tasks_app.tasks_backend.framework import InvalidTask
from taskstore import Client, DueJob, InvalidInput, Rate, chain, job
from taskstore.client.calls import encoded
from taskstore.types.job_record import JobRecord
from taskstore.types.jobs import JobRequest
from taskstore.types.schedules import PlannedJob
from tests.client.patience import wait_for_last_requests
from tests.rest_api.api import Api
from tests.task_framework.tasks import send as send_by_django

pytestmark = pytest.mark.django_db(transaction=True)

ACME, OWN = {"tenant": "acme"}, {"team": "mail"}


@job(labels=OWN)
def send(to):
    return to


@pytest.fixture
def store(served):
    _, secret = tokens.create("ann", Scope.OPERATE)
    with Client(served.url, token=secret) as client:
        yield client
        wait_for_last_requests()


def labels_of(job_id):
    found = queues.find(job_id)
    assert found
    return dict(found.labels)


def test_each_way_gives_them(store):
    mine = send.using(labels=ACME)
    ids = [
        mine.enqueue(store, 1).id,
        *store.jobs.enqueue_many([mine.s(2)]),
        store.jobs.enqueue("f", labels={**OWN, **ACME}).id,
        Api(Scope.WORK).post("/jobs", {"function": "f", "labels": {**OWN, **ACME}})[1]["id"],
        store.batches.create("film", [mine.s(3)]).tasks[0].id,
        int(send_by_django.using(labels=OWN).using(labels=ACME).enqueue("kim").id),
    ]
    assert [labels_of(each) for each in ids] == [{**OWN, **ACME}] * len(ids)
    assert labels_of(send.enqueue(store, 1).id) == OWN
    assert store.jobs.get(ids[0]).labels == {**OWN, **ACME}
    assert len(store.search("label.tenant:acme group:jobs/default").tasks) == len(ids)


def test_a_chain_keeps_them_beside_its_own(store):
    made = chain(send.s(1), send.using(labels=ACME).s(2)).enqueue(store)
    [first] = Task.objects.filter(batch=made.id)
    Task.objects.commit(owner=1, deletes=[first.id])
    [second] = Task.objects.filter(batch=made.id)
    assert second.labels == {**OWN, **ACME, "function": send.path, "after_batch": str(made.id)}


def test_a_schedule_gives_them(store):
    put = store.schedules.put("nightly", "0 3 * * *", job=DueJob(function="f", labels=ACME))
    assert put.job
    assert put.job.labels == ACME
    store.schedules.run("nightly")
    [added] = store.jobs.list(function="f").jobs
    assert added.labels.items() >= ACME.items()
    with pytest.raises(InvalidInput, match=r"labels.due: must be absent: the schedule sets this label"):
        store.schedules.put("other", "0 3 * * *", job=DueJob(function="f", labels={"due": "x"}))


def test_they_stay_when_it_runs_again(store):
    done = send.using(labels=ACME).enqueue(store, 1)
    [task] = store.claim("jobs/default", limit=1)
    store.move(task, "jobs/default/failed", error="no")
    assert store.jobs.requeue(done.id).labels == {**OWN, **ACME}


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"function": "x"}, "labels.function.*must be absent: the store sets this label"),
        ({"tenant": 7}, "labels.* must be texts by name, such as {'tenant': 'acme'}, not {'tenant': 7}"),
        ("tenant", "labels.* must be texts by name"),
    ],
)
def test_wrong_ones_are_refused_at_once(store, labels, words):
    with pytest.raises(ValueError, match=words):
        job(labels=labels)
    with pytest.raises(ValueError, match=words):
        send.using(labels=labels)
    with pytest.raises(InvalidInput, match=words):
        store.jobs.enqueue("f", labels=labels)
    with pytest.raises(InvalidTask, match=words):
        send_by_django.using(labels=labels)
    with pytest.raises(InvalidInput, match=words):
        queues.enqueue(JobRecord(function="f"), labels=labels)
    assert not Task.objects.exists()


def test_limits_and_cancels_go_by_them(store):
    store.set_limits("jobs/default", by="tenant", running=1, rate=Rate(claims=100, per_ms=1_000))
    for tenant in ("acme", "acme", "orbit"):
        send.using(labels={"tenant": tenant}).enqueue(store, 1)
    claimed = store.claim("jobs/default", limit=10)
    assert sorted(task.labels["tenant"] for task in claimed) == ["acme", "orbit"]
    store.bulk_start(store.bulk_preview("cancel", q="label.tenant:acme"), take_claimed=True)
    by_tenant = [(each.labels["tenant"], each.group) for each in Task.objects.order_by("origin")]
    assert by_tenant == [
        ("acme", "jobs/default/cancelled"), ("acme", "jobs/default/cancelled"), ("orbit", "jobs/default"),
    ]  # fmt: skip


def test_an_older_server_is_sent_no_empty_labels():
    assert encoded(JobRequest(function="f")) == b'{"function":"f"}'
    assert b"labels" not in encoded(PlannedJob.of(DueJob(function="f")))
