"""Pausing and resuming a group from its page."""

import pytest

from tasks_app.models import Task
from taskstore.errors import CommitRefused

from .store import ANN, BOB, add, claim

pytestmark = pytest.mark.django_db


def pause(client, **fields):
    return client.post("/console/pause", {"name": "mail", "reason": "the mail server is down", **fields})


def test_it_says_who_paused_it_and_why(operator):
    add()
    pause(operator)
    html = operator.get("/console/group?name=mail").content.decode()
    assert "Paused</strong> by olaf" in html
    assert "the mail server is down" in html


def test_it_asks_with_what_waits_and_what_is_held(operator):
    add(count=3)
    Task.objects.claim("mail", owner=ANN)
    html = operator.get("/console/pause?name=mail").content.decode()
    assert "<strong>2</strong> ready tasks will wait." in html
    assert "Workers can still finish the <strong>1</strong> task they hold" in html


# ---- End the lease of a task from its page


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
    assert f'lease of worker <a class="owner" href="/console/workers/{BOB}">{BOB}</a>' in html
    assert "result will be rejected" in html
    assert "Give back…" in operator.get(f"/console/task/{held.id}").content.decode()


def test_an_unknown_task_is_not_found(operator):
    assert operator.get("/console/task/999999/give-back").status_code == 404
