"""Jobs with a key: while an unfinished job has it, an equal one is not enqueued."""

import pytest

from tasks_app.access import tokens
from tasks_app.models import Scope, Task
from taskstore import Client
from taskstore.errors import InvalidInput
from taskstore.types.tasks import NewTask


@pytest.fixture
def client(served):
    _, secret = tokens.create("Ann", Scope.OPERATE)
    with Client(served.url, token=secret, client_id=7) as client:
        yield client


def finish(job):
    done = NewTask(group=f"jobs/{job.queue}/succeeded", id=job.task, data=Task.objects.get(id=job.task).data)
    Task.objects.commit(owner=7, adds=[done], deletes=[job.task])


def test_an_equal_job_is_not_enqueued_until_the_first_has_finished(client):
    first = client.jobs.enqueue("reports.build", ["june"], unique="june")
    again = client.jobs.enqueue("reports.build", ["july"], unique="june")
    assert (again.id, again.duplicate, again.args) == (first.id, True, ["june"])
    assert not client.jobs.enqueue("reports.build", unique="june", queue="other").duplicate
    finish(first)
    assert not client.jobs.enqueue("reports.build", unique="june").duplicate


def test_a_key_can_stay_taken_by_a_job_that_has_finished(client):
    first = client.jobs.enqueue("reports.build", unique="june", unique_for_ms=60_000)
    finish(first)
    again = client.jobs.enqueue("reports.build", unique="june")
    assert (again.id, again.duplicate, again.status) == (first.id, True, "succeeded")
    client.jobs.delete(first.id)
    with pytest.raises(InvalidInput) as refused:
        client.jobs.enqueue("reports.build", unique="june")
    assert refused.value.fields == {
        "unique": [f"must be another key: this one is taken by job {first.id}, which no longer exists"]
    }


@pytest.mark.parametrize(
    ("asked", "wrong"),
    [
        ({"unique": ""}, {"unique": ["must not be empty"]}),
        ({"unique": "x" * 256}, {"unique": ["must have at most 255 characters, not 256"]}),
        ({"unique_for_ms": 1}, {"unique_for": ["must be given together with unique"]}),
    ],
)
def test_what_makes_no_sense_is_named_by_its_field(client, asked, wrong):
    with pytest.raises(InvalidInput) as refused:
        client.jobs.enqueue("reports.build", **asked)
    assert refused.value.fields == wrong
