"""The list of tasks in Django's admin: found by key and by index, never counted."""

import pytest

from tasks_app.admin.keyset import PAGE
from tasks_app.models import Task
from taskstore.types.tasks import NewTask

from .pages import ANN, TASKS, add, ids_in, text_of


@pytest.mark.parametrize("where", ["", "group=mail", "q=mail", "group=mail&state=retrying"])
def test_it_pages_without_skipping_or_repeating(viewer, where):
    # All of one moment, so that the id decides.
    tasks = Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", error="x")] * (2 * PAGE + 1))
    url, seen, pages = f"{TASKS}?{where}", [], 0
    while url:
        response = viewer.get(url)
        seen += ids_in(response)
        pages += 1
        url = TASKS + response.context["cl"].next_url if response.context["cl"].next_page else ""
    assert pages == 3
    assert len(seen) == len(tasks)
    assert set(seen) == {task.id for task in tasks}
    assert seen in (sorted(seen), sorted(seen, reverse=True))


def test_it_says_where_the_trail_of_a_finished_task_is(viewer):
    task = add()
    Task.objects.commit(owner=ANN, deletes=[task.id])
    response = viewer.get(f"{TASKS}?q={task.id}")
    assert ids_in(response) == []
    assert f"Task {task.id} has ended. View its history" in text_of(response)
    assert f"/admin/tasks_app/endedtask/?origin={task.id}" in response.content.decode()


@pytest.mark.parametrize(
    "where",
    [
        "p=nonsense",
        "p=1.2.3",
        "p=-1",
        "p=" + "9" * 30,
        "group=mail&state=nonsense",
        "group=mail&p=1",
        "o=1.2.3",
        "p=1&p=x",
    ],
)
def test_an_address_that_makes_no_sense_shows_the_first_page(viewer, where):
    add()
    response = viewer.get(f"{TASKS}?{where}", follow=True)
    assert response.status_code == 200
    assert len(ids_in(response)) == 1
