"""What became of every id that was ever given out."""

import pytest

from taskstore.errors import CommitRefused
from taskstore.types.tasks import Change, Ending, NewTask

from .people import ANN, BOB
from .values import with_each


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


def test_every_id_of_a_chain_tells_the_whole_chain(store, life):
    assert all(store.history(task_id) == store.history(life[0]) for task_id in life)


def test_the_commit_that_ends_an_id_makes_its_successor(store, life):
    steps = store.history(life[0])
    assert [step.ended_by_commit for step in steps[:-1]] == [step.made_by_commit for step in steps[1:]]
    assert len({step.made_by_commit for step in steps}) == len(steps)


def test_the_steps_of_one_commit_carry_its_number(store):
    one, other = store.commit(owner=ANN, adds=[NewTask(group="mail"), NewTask(group="mail")])
    [new] = store.commit(owner=ANN, updates=[Change(id=one.id)], deletes=[other.id])
    first, last = store.history(one.id)
    assert first.made_by_commit == store.history(other.id)[0].made_by_commit
    assert first.ended_by_commit == last.made_by_commit == store.history(other.id)[0].ended_by_commit
    assert last.id == new.id


def test_the_living_task_is_the_last_step(store):
    [added] = store.commit(owner=ANN, adds=[NewTask(group="mail")])
    [step] = store.history(added.id)
    assert (step.id, step.owner, step.ending, step.successor) == (added.id, ANN, None, None)
    [claimed] = store.claim("mail", owner=BOB)
    assert [(step.id, step.ending) for step in store.history(added.id)] == [
        (added.id, Ending.CLAIMED),
        (claimed.id, None),
    ]


def test_a_renewal_is_by_the_owner_with_the_same_data(store, clock):
    store.commit(owner=ANN, adds=[NewTask(group="mail", data=b"1")])
    [held] = store.claim("mail", owner=ANN, duration_ms=1_000)
    [rewritten] = store.commit(owner=ANN, updates=[Change(id=held.id, data=b"2", timespec_ms=-1_000)])
    clock.advance(1_000)
    [taken] = store.commit(owner=BOB, updates=[renewal(rewritten)])
    assert [step.ending for step in store.history(taken.id)] == [Ending.CLAIMED, Ending.CHANGED, Ending.CHANGED, None]


@with_each("task_id", [0, -1, 2**53, 2**63 - 1, -(2**63)])
def test_an_id_that_was_never_given_out_has_no_history(store, task_id):
    assert store.history(task_id) is None


def test_a_refused_commit_leaves_no_trace(store):
    [task] = store.commit(owner=ANN, adds=[NewTask(group="mail")])
    before = store.history(task.id)
    with pytest.raises(CommitRefused):
        store.commit(owner=ANN, updates=[Change(id=task.id)], depends=[2**53])
    assert store.history(task.id) == before
