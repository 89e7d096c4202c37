"""With less history on request, what is told stays right, and everything else stays as it is."""

import pytest

from tasks_app.core.operations import Operator
from tasks_app.models import EndedTask, Task
from taskstore.types.tasks import Change, Ending, NewTask

from .people import ANN, BOB
from .ways import Store

MAIL = NewTask(group="mail", data=b"1")


@pytest.fixture(params=["finished", "off"])
def reduced(request, settings):
    settings.TASKSTORE_HISTORY = request.param
    return request.param


@pytest.fixture
def finished(settings):
    settings.TASKSTORE_HISTORY = "finished"


@pytest.fixture
def off(settings):
    settings.TASKSTORE_HISTORY = "off"


def live(store: Store) -> list[int]:
    """Let a task be added, claimed, changed and moved. Returns its ids."""
    [added] = store.commit(owner=ANN, adds=[MAIL])
    [claimed] = store.claim("mail", owner=BOB)
    [changed] = store.commit(owner=BOB, updates=[Change(id=claimed.id, data=b"2")])
    [moved] = store.commit(owner=ANN, adds=[NewTask(group="reports", id=changed.id)], deletes=[changed.id])
    return [task.id for task in (added, claimed, changed, moved)]


def test_only_how_a_task_ended_is_kept(store, finished):
    ids = live(store)
    assert not EndedTask.objects.exists()
    store.commit(owner=BOB, deletes=[ids[-1]])
    [step] = store.history(ids[-1])
    assert (step.id, step.ending, step.ended_by, step.successor) == (ids[-1], Ending.DELETED, BOB, None)
    assert store.history(ids[0]) == [step]
    assert [store.history(task_id) for task_id in ids[1:-1]] == [None, None]


def test_what_an_operator_purged_is_kept(transactional_db, finished):
    [task] = Task.objects.commit(owner=ANN, adds=[MAIL])
    ada = Operator(name="ada", ending=Ending.PURGED, reason="a test")
    Task.objects.commit(owner=0, deletes=[task.id], operator=ada)
    assert EndedTask.objects.values_list("id", "ending", "operator", "reason").get() == (
        task.id,
        "purged",
        "ada",
        "a test",
    )
