"""Who may change a task, and until when."""

import pytest

from taskstore.errors import CommitRefused
from taskstore.types.tasks import Change, NewTask

from .people import ANN, BOB


def add(store, **fields):
    [task] = store.commit(owner=ANN, adds=[NewTask(group="mail", **fields)])
    return task


def is_owned(store, task, by):
    """Whether the commit of another client is refused because of the owner alone."""
    with pytest.raises(CommitRefused) as error:
        store.commit(owner=by, deletes=[task.id])
    return error.value.refusal.owned == (task.id,)


def test_a_leased_task_is_its_owners_until_the_very_millisecond(store, clock):
    add(store)
    [held] = store.claim("mail", owner=ANN, duration_ms=1_000)
    clock.advance(999)
    assert is_owned(store, held, by=BOB)
    assert store.claim("mail", owner=BOB) == []
    clock.advance(1)
    [taken] = store.commit(owner=BOB, updates=[Change(id=held.id)])
    assert taken.owner == BOB


def test_whoever_is_late_is_told_so(store, clock):
    add(store)
    [late] = store.claim("mail", owner=ANN, duration_ms=1_000)
    clock.advance(1_000)
    [taken] = store.claim("mail", owner=BOB)
    with pytest.raises(CommitRefused) as error:
        store.commit(owner=ANN, deletes=[late.id])
    assert error.value.refusal.deletes == (late.id,)
    assert store.find([taken.id]) == [taken]


def test_a_released_future_task_is_for_owner_zero_only(store):
    add(store)
    [held] = store.claim("mail", owner=ANN)
    [released] = store.commit(owner=ANN, updates=[Change(id=held.id, release=True, timespec_ms=-60_000)])
    assert is_owned(store, released, by=ANN)
    assert store.commit(owner=0, deletes=[released.id]) == []
