"""Operators override owners, and the trail says so."""

import pytest

from tasks_app.core.operations import Operator
from tasks_app.models import Task
from tasks_app.reading import history
from taskstore.errors import CommitRefused
from taskstore.types.tasks import Change, Ending, NewTask, Refusal

from .people import ANN, BOB


@pytest.fixture
def held(transactional_db):
    """A task that Bob holds."""
    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail", data=b"1")])
    [held] = Task.objects.claim("mail", owner=BOB)
    return held


def steps(task):
    chain = history.chain_of(task.id)
    assert chain is not None
    return [(step.ending, step.operator, step.reason) for step in chain.ended]


def test_an_operator_deletes_what_another_client_holds(held):
    Task.objects.commit(
        owner=0, deletes=[held.id], operator=Operator(name="Ann", ending=Ending.PURGED, reason="was a test")
    )
    assert Task.objects.groups() == []
    assert steps(held) == [("claimed", "", ""), ("purged", "Ann", "was a test")]
    assert history.epitaph_of(held.id) == f"task {held.id} was purged by Ann"


def test_an_operator_requeues_what_another_client_holds(held):
    requeue = Change(id=held.id, release=True)
    [ready] = Task.objects.commit(owner=0, updates=[requeue], operator=Operator(name="Ann", ending=Ending.REQUEUED))
    assert (ready.data, ready.owner, ready.leased, ready.origin) == (b"1", 0, False, held.origin)
    assert steps(held) == [("claimed", "", ""), ("requeued", "Ann", "")]
    with pytest.raises(CommitRefused) as error:
        Task.objects.commit(owner=BOB, deletes=[held.id])
    assert error.value.refusal == Refusal(deletes=(held.id,))


def test_an_operator_is_refused_what_is_gone_or_makes_no_sense(held):
    with pytest.raises(CommitRefused) as error:
        Task.objects.commit(
            owner=0,
            adds=[NewTask(group="")],
            updates=[Change(id=2**53)],
            deletes=[held.id, 0],
            depends=[-1],
            operator=Operator(name="Ann"),
        )
    refusal = error.value.refusal
    assert (refusal.changes, refusal.deletes, refusal.depends, refusal.owned) == ((2**53,), (0,), (-1,), ())
    assert len(refusal.bugs) == 1
    assert Task.objects.find([held.id]) == [held]
