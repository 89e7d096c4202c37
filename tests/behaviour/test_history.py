"""What became of every id that was ever given out."""

import pytest

from tasks_app.core.operations import Operator
from tasks_app.models import EndedTask, Task
from taskstore.errors import CommitRefused
from taskstore.types.tasks import Change, Ending, NewTask

from .people import ANN, BOB
from .ways import Store


def renewal(task):
    return Change(id=task.id, timespec_ms=-60_000)


@pytest.fixture
def life(store, clock):
    """The ids of a task from its beginning to its end."""
    [added] = store.commit(owner=ANN, adds=[NewTask(group="mail", data=b"1")])
    [claimed] = store.claim("mail", owner=BOB)
    [renewed] = store.commit(owner=BOB, updates=[renewal(claimed)])
    [given_back] = store.commit(owner=BOB, updates=[Change(id=renewed.id, release=True)])
    [changed] = store.commit(owner=ANN, updates=[Change(id=given_back.id, data=b"2")])
    [moved] = store.commit(owner=ANN, adds=[NewTask(group="reports", id=changed.id)], deletes=[changed.id])
    store.commit(owner=BOB, deletes=[moved.id])
    return [task.id for task in (added, claimed, renewed, given_back, changed, moved)]


def test_each_id_says_what_became_of_it(store, life):
    steps = store.history(life[0])
    assert [step.id for step in steps] == life
    assert [step.ending for step in steps] == [
        Ending.CLAIMED,
        Ending.RENEWED,
        Ending.GIVEN_BACK,
        Ending.CHANGED,
        Ending.MOVED,
        Ending.DELETED,
    ]
    assert [step.successor for step in steps] == [*life[1:], None]
    assert [step.group for step in steps] == ["mail"] * 5 + ["reports"]
    assert [step.owner for step in steps] == [ANN, BOB, BOB, 0, ANN, ANN]
    assert [step.ended_by for step in steps] == [BOB, BOB, BOB, ANN, ANN, BOB]


def test_a_refused_commit_leaves_no_trace(store):
    [task] = store.commit(owner=ANN, adds=[NewTask(group="mail")])
    before = store.history(task.id)
    with pytest.raises(CommitRefused):
        store.commit(owner=ANN, updates=[Change(id=task.id)], depends=[2**53])
    assert store.history(task.id) == before


# ---- With less history on request, what is told stays right, and everything else stays as it is


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
