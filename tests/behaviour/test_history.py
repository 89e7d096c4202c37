"""What became of every id that was ever given out."""

import pytest

from taskstore.errors import CommitRefused
from taskstore.types.tasks import Change, Ending, NewTask

from .people import ANN, BOB


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
