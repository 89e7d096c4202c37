"""The list of tasks in Django's admin: found by key and by index, never counted."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tasks_app.admin.keyset import PAGE
from tasks_app.models import Task
from taskstore.types.tasks import NewTask

from .pages import ANN, TASKS, add, claim, ids_in, messages_of, text_of


def test_it_shows_the_newest_first(viewer):
    first, second = add(), add("reports", error="no such recipient", priority=7)
    response = viewer.get(TASKS)
    assert ids_in(response) == [second.id, first.id]
    assert "ready, failed" in text_of(response)
    assert "no such recipient" in text_of(response)


def test_it_does_not_count(viewer):
    add()
    for url in (TASKS, f"{TASKS}?q=mail", f"{TASKS}?q=1", f"{TASKS}?group=mail&state=ready&_facets=True"):
        with CaptureQueriesContext(
            connection,
        ) as captured:
            viewer.get(url)
        assert [query["sql"] for query in captured if "COUNT(" in query["sql"].upper()] == []


@pytest.mark.parametrize("where", ["", "group=mail", "q=mail", "group=mail&state=failed", "group=mail&state=ready"])
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


def test_it_finds_a_group_by_its_exact_name(viewer):
    mail, _ = add("mail"), add("mailing")
    assert ids_in(viewer.get(f"{TASKS}?q=mail")) == [mail.id]
    assert ids_in(viewer.get(f"{TASKS}?q=mai")) == []


def test_it_finds_a_task_by_its_id(viewer):
    task = add()
    add()
    response = viewer.get(f"{TASKS}?q={task.id}")
    assert ids_in(response) == [task.id]
    assert messages_of(response) == []


def test_it_says_where_the_trail_of_a_finished_task_is(viewer):
    task = add()
    Task.objects.commit(owner=ANN, deletes=[task.id])
    response = viewer.get(f"{TASKS}?q={task.id}")
    assert ids_in(response) == []
    assert f"Task {task.id} has ended. View its history" in text_of(response)
    assert f"/admin/tasks_app/endedtask/?origin={task.id}" in response.content.decode()


@pytest.mark.parametrize("state", ["ready", "claimed", "scheduled", "failed"])
def test_it_sorts_out_states_within_a_group(viewer, state):
    add()
    tasks = {"claimed": claim(), "ready": add(), "scheduled": add(timespec_ms=-60_000)}
    tasks["failed"] = add(error="x", timespec_ms=-60_000)
    found = set(ids_in(viewer.get(f"{TASKS}?group=mail&state={state}")))
    assert tasks[state].id in found
    assert found <= {tasks[state].id, tasks["failed"].id}


@pytest.mark.parametrize(
    "where",
    [
        "p=nonsense",
        "p=1.2",
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


def test_nul_in_the_search_finds_nothing_and_harms_nobody(viewer):
    add()
    assert viewer.get(f"{TASKS}?q=%00").status_code == 200
