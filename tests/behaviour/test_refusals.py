"""A commit that can't be done changes nothing and says every reason."""

from contextlib import contextmanager

import pytest
from django.db import connection

from taskstore.errors import CommitRefused, InvalidInput, LimitExceeded
from taskstore.types.tasks import Change, NewTask, Refusal

from .people import ANN, BOB
from .values import with_each

NEVER = 2**53  # No store has come that far.


@contextmanager
def refused(**lists):
    """Nothing in the database changes, and the reasons are these."""
    before = everything()
    with pytest.raises(CommitRefused) as error:
        yield
    assert error.value.refusal == Refusal(**lists)
    assert everything() == before


def everything():
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM tasks_app_task ORDER BY id")
        tasks = cursor.fetchall()
        cursor.execute("SELECT * FROM tasks_app_endedtask ORDER BY id")
        return tasks, cursor.fetchall()


@pytest.fixture
def task(store):
    [task] = store.commit(owner=ANN, adds=[NewTask(group="mail", data=b"1")])
    return task


@pytest.fixture
def gone(store):
    [gone] = store.commit(owner=ANN, adds=[NewTask(group="mail")])
    store.commit(owner=ANN, deletes=[gone.id])
    return gone.id


@pytest.fixture
def held(store):
    """A task that Ann holds."""
    store.commit(owner=BOB, adds=[NewTask(group="reports")])
    [held] = store.claim("reports", owner=ANN)
    return held


def test_every_reason_at_once(store, gone, task, held):
    before = everything()
    with pytest.raises(CommitRefused) as error:
        store.commit(
            owner=BOB,
            adds=[NewTask(group="mail"), NewTask(group="")],
            updates=[Change(id=gone), Change(id=held.id), Change(id=task.id)],
            deletes=[NEVER, task.id],
            depends=[gone, task.id],
        )
    refusal = error.value.refusal
    assert (refusal.changes, refusal.deletes, refusal.depends, refusal.owned) == (
        (gone,), (NEVER,), (gone,), (held.id,)
    )  # fmt: skip
    assert len(refusal.bugs) == 2
    assert everything() == before


def test_a_refused_commit_uses_no_id(store, gone, task):
    with refused(changes=(gone,)):
        store.commit(owner=ANN, adds=[NewTask(group="mail")] * 3, updates=[Change(id=gone)])
    [first] = store.commit(owner=ANN, adds=[NewTask(group="mail")])
    [second] = store.commit(owner=ANN, adds=[NewTask(group="mail")])
    assert second.id - first.id == first.id - task.id == 1


@with_each(
    "asked, field",
    [
        ({"adds": [NewTask(group="a\0")]}, "adds[0].group"),
        ({"adds": [NewTask(group="x" * 256)]}, "adds[0].group"),
        ({"adds": [NewTask(group="mail", priority=101)]}, "adds[0].priority"),
        ({"adds": [NewTask(group="mail", timespec_ms=2**63 - 1)]}, "adds[0].timespec"),
        ({"adds": [NewTask(group="mail", error="\0")]}, "adds[0].error"),
        ({"adds": [NewTask(group="mail"), NewTask(group="mail", labels={"a": "\0"})]}, "adds[1].labels.a"),
        ({"updates": [Change(id=1, priority=-101)]}, "updates[0].priority"),
        ({"updates": [Change(id=2**63)]}, "updates[0].id"),
        ({"deletes": [1, -(2**63) - 1]}, "deletes[1]"),
        ({"depends": [2**64]}, "depends[0]"),
        ({"owner": 2**63}, "clientid"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(store, task, asked, field):
    before = everything()
    with pytest.raises(InvalidInput) as error:
        store.commit(**{"owner": ANN, **asked})
    assert list(error.value.fields) == [field]
    assert everything() == before


def test_more_than_the_limits_allow_is_refused(store, task, settings):
    settings.TASKSTORE_MAX_CHANGES = 3
    settings.TASKSTORE_MAX_DATA_BYTES = 10
    settings.TASKSTORE_MAX_LABELS = 1
    before = everything()
    for asked in (
        {"adds": [NewTask(group="mail")] * 2, "deletes": [task.id], "depends": [task.id]},
        {"adds": [NewTask(group="mail", data=b"12345678901")]},
        {"adds": [NewTask(group="mail", labels={"a": "", "b": ""})]},
    ):
        with pytest.raises(LimitExceeded):
            store.commit(owner=ANN, **asked)
    assert everything() == before
    assert len(store.commit(owner=ANN, adds=[NewTask(group="mail", data=b"1234567890", labels={"a": ""})] * 3)) == 3
