"""End the lease of a task from its page."""

import pytest

from tasks_app.models import Task
from taskstore.errors import CommitRefused

from .store import BOB, add, claim

pytestmark = pytest.mark.django_db


def give_back(client, task_id, **fields):
    return client.post(f"/console/task/{task_id}/give-back", fields)


@pytest.fixture
def held():
    add(error="tried once")
    return claim()[0]


def test_the_task_is_ready_and_its_worker_is_refused(operator, held):
    answer = give_back(operator, held.id, reason="its machine burns")
    [task] = Task.objects.all()
    assert answer.headers["Location"] == f"/console/task/{task.id}"
    assert (task.leased, task.owner, task.error, bytes(task.data)) == (False, 0, "tried once", b"hello")
    with pytest.raises(CommitRefused):
        Task.objects.commit(owner=BOB, deletes=[held.id])


def test_it_asks_and_warns_first(operator, held):
    html = operator.get(f"/console/task/{held.id}/give-back").content.decode()
    assert f'lease of worker <span class="owner">{BOB}</span>' in html
    assert "result will be rejected" in html
    assert "Give back…" in operator.get(f"/console/task/{held.id}").content.decode()


def test_an_unknown_task_is_not_found(operator):
    assert operator.get("/console/task/999999/give-back").status_code == 404
