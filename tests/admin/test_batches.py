"""Batches in Django's admin."""

import re

import pytest

from tasks_app.models import AuditEntry, Task
from taskstore.types.tasks import NewTask

from ..people import signed_in

pytestmark = pytest.mark.django_db
BATCHES = "/admin/tasks_app/batch/"


@pytest.fixture
def operator(people):
    return signed_in(people["operator"])


def test_a_held_batch_is_released_with_a_reason_and_not_held_again(operator):
    batch, _ = Task.objects.create_batch(owner=1, name="Book", hold=True, then=NewTask(group="bind"))
    assert "Book" in operator.get(BATCHES).content.decode()
    page = f"{BATCHES}{batch.id}/change/"
    assert "held" in operator.get(page).content.decode()
    operator.post(page, {"reason": "all are there"})
    assert [task.group for task in Task.objects.all()] == ["bind"]
    assert AuditEntry.objects.latest("id").reason == "all are there"
    assert "succeeded" in operator.get(page).content.decode()
    assert "can&#x27;t be held again" in operator.post(page, {"hold": "on"}).content.decode()


def test_a_batch_that_is_not_held_says_so_and_shows_what_it_adds(operator):
    batch, _ = Task.objects.create_batch(
        owner=1, adds=[NewTask(group="pages")], then=[NewTask(group="bind"), NewTask(group="sell")]
    )
    page = operator.get(f"{BATCHES}{batch.id}/change/").content.decode()
    assert "2 tasks in bind, sell" in page
    assert not re.search('name="hold"[^>]* checked', page)


def test_deleted_batches_add_nothing(operator):
    made = [
        Task.objects.create_batch(owner=1, adds=[NewTask(group="mail")], then=NewTask(group="bind"))[0]
        for _ in range(2)
    ]
    asked = {"action": "delete_selected", "_selected_action": [batch.id for batch in made], "post": "yes"}
    operator.post(BATCHES, asked)
    assert not Task.objects.exists()
