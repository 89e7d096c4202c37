"""An add that names an id of the deletes: the same task, in another group."""

from dataclasses import replace

import pytest

from tasks_app.errors import CommitRefused
from tasks_app.operations import Ending, NewTask

from .people import ANN, BOB


@pytest.fixture
def held(store):
    """A task that Ann holds, with a past."""
    store.commit(owner=BOB, adds=[NewTask(group="mail", data=b"1", labels={"a": "b"}, priority=5)])
    [held] = store.claim("mail", owner=ANN)
    return held


def test_the_add_is_the_successor_of_the_deleted_task(store, held, clock):
    clock.advance(5_000)
    [moved] = store.commit(owner=ANN, adds=[NewTask(group="reports", data=b"2", id=held.id)], deletes=[held.id])
    assert moved == replace(
        held,
        id=moved.id,
        group="reports",
        data=b"2",
        labels={},
        priority=0,
        available_at_ms=clock.now_ms,
    )
    assert moved.id > held.id
    assert (moved.origin, moved.claims, moved.created_at_ms) == (held.origin, 1, held.created_at_ms)
    assert [step.ending for step in store.history(moved.id)] == [Ending.CLAIMED, Ending.MOVED, None]


def test_within_the_same_group_it_is_a_change(store, held):
    [again] = store.commit(owner=ANN, adds=[NewTask(group="mail", id=held.id)], deletes=[held.id])
    assert again.origin == held.origin
    assert [step.ending for step in store.history(again.id)] == [Ending.CLAIMED, Ending.CHANGED, None]


def test_of_several_adds_only_the_first_is_the_successor(store, held):
    first, second = store.commit(
        owner=ANN,
        adds=[NewTask(group="reports", id=held.id), NewTask(group="mail", id=held.id)],
        deletes=[held.id],
    )
    assert (first.origin, first.claims) == (held.origin, 1)
    assert (second.origin, second.claims) == (second.id, 0)
    assert [step.successor for step in store.history(held.id)][-2:] == [first.id, None]
    assert [step.id for step in store.history(second.id)] == [second.id]


def test_several_tasks_move_in_one_commit(store, held):
    [other] = store.commit(owner=ANN, adds=[NewTask(group="mail")])
    moved = store.commit(
        owner=ANN,
        adds=[NewTask(group="reports", id=other.id), NewTask(group="reports", id=held.id)],
        deletes=[held.id, other.id],
    )
    assert [task.origin for task in moved] == [other.origin, held.origin]


def test_an_id_that_is_not_among_the_deletes_means_nothing(store, held):
    [task] = store.commit(owner=ANN, adds=[NewTask(group="reports", id=held.id)])
    assert task.id not in (0, held.id)
    assert task.origin == task.id
    assert store.find([held.id]) == [held]


def test_a_move_of_what_is_gone_is_refused(store, held):
    store.commit(owner=ANN, deletes=[held.id])
    with pytest.raises(CommitRefused) as error:
        store.commit(owner=ANN, adds=[NewTask(group="reports", id=held.id)], deletes=[held.id])
    assert error.value.refusal.deletes == (held.id,)
    assert store.groups() == []


def test_a_move_of_what_another_client_holds_is_refused(store, held):
    with pytest.raises(CommitRefused) as error:
        store.commit(owner=BOB, adds=[NewTask(group="reports", id=held.id)], deletes=[held.id])
    assert error.value.refusal.owned == (held.id,)
    assert store.group("mail", owned=True) == [held]


def test_a_moved_task_with_a_future_time_is_its_movers(store, held):
    [moved] = store.commit(
        owner=ANN, adds=[NewTask(group="reports", id=held.id, timespec_ms=-60_000)], deletes=[held.id]
    )
    with pytest.raises(CommitRefused) as error:
        store.commit(owner=BOB, deletes=[moved.id])
    assert error.value.refusal.owned == (moved.id,)
