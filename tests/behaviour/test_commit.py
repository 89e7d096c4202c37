"""What a commit does with what it adds, updates and deletes."""

from contextlib import contextmanager

import pytest
from django.db import connection

from taskstore.errors import CommitRefused, InvalidInput, LimitExceeded
from taskstore.types.tasks import Change, NewTask, Refusal

from .people import ANN, BOB
from .values import with_each
from .ways import Seen


def test_an_added_task_is_as_it_was_given(store, clock):
    [task] = store.commit(
        owner=ANN,
        adds=[
            NewTask(
                group="mail",
                data=b"Dear Bob",
                data_type="example/Letter",
                error="no stamp",
                labels={"to": "Bob", "é": ""},
                priority=-3,
            )
        ],
    )
    assert task == Seen(
        id=task.id,
        group="mail",
        available_at_ms=clock.now_ms,
        owner=ANN,
        data=b"Dear Bob",
        data_type="example/Letter",
        error="no stamp",
        labels={"to": "Bob", "é": ""},
        priority=-3,
        origin=task.id,
        claims=0,
        created_at_ms=clock.now_ms,
        unique="",
    )


def test_it_answers_adds_then_updates_in_the_order_given(store):
    old = store.commit(owner=ANN, adds=[NewTask(group="mail", data=bytes([n])) for n in range(3)])
    new = store.commit(
        owner=ANN,
        adds=[NewTask(group="reports", data=b"x"), NewTask(group="mail", data=b"y")],
        updates=[Change(id=old[2].id, data=b"c"), Change(id=old[0].id, data=b"a")],
        deletes=[old[1].id],
    )
    assert [(task.data, task.origin) for task in new] == [
        (b"x", new[0].id),
        (b"y", new[1].id),
        (b"c", old[2].id),
        (b"a", old[0].id),
    ]
    assert [task.id for task in new] == sorted(task.id for task in new)
    assert store.find([task.id for task in old]) == [None, None, None]


@with_each(
    "named, expected",
    [
        ({}, (b"1\xff", "example/Letter", "torn")),
        ({"timespec_ms": -60_000}, (b"1\xff", "example/Letter", "torn")),
        ({"data": b"2"}, (b"2", "", "torn")),
        ({"data": b"2", "data_type": "example/Card"}, (b"2", "example/Card", "torn")),
        ({"data": b""}, (b"", "", "torn")),
        ({"data_type": "example/Card"}, (b"1\xff", "example/Card", "torn")),
        ({"data_type": ""}, (b"1\xff", "", "torn")),
        ({"error": "lost"}, (b"1\xff", "example/Letter", "lost")),
        ({"error": ""}, (b"1\xff", "example/Letter", "")),
        ({"data": b"", "error": ""}, (b"", "", "")),
    ],
)
def test_data_type_and_error_stay_unless_the_update_names_them(store, named, expected):
    letter = NewTask(group="mail", data=b"1\xff", data_type="example/Letter", error="torn")
    [old] = store.commit(owner=ANN, adds=[letter])
    [new] = store.commit(owner=ANN, updates=[Change(id=old.id, **named)])
    assert (new.data, new.data_type, new.error) == expected
    assert (new.group, new.labels, new.priority, new.origin) == (old.group, old.labels, old.priority, old.origin)


def test_the_new_owner_is_who_commits(store):
    [old] = store.commit(owner=ANN, adds=[NewTask(group="mail")])
    [new] = store.commit(owner=BOB, updates=[Change(id=old.id)])
    assert (old.owner, new.owner) == (ANN, BOB)


def test_release_can_keep_the_data_and_wait(store, clock):
    store.commit(owner=ANN, adds=[NewTask(group="mail", data=b"1", error="torn")])
    [claimed] = store.claim("mail", owner=ANN)
    later = Change(id=claimed.id, release=True, timespec_ms=-5_000)
    [released] = store.commit(owner=ANN, updates=[later])
    assert (released.owner, released.data, released.error) == (0, b"1", "torn")
    assert store.claim("mail", owner=BOB) == []
    clock.advance(5_000)
    assert [task.origin for task in store.claim("mail", owner=BOB)] == [claimed.origin]


def test_a_commit_takes_ten_thousand_changes(store):
    tasks = store.commit(owner=ANN, adds=[NewTask(group="mail", data=b"%d" % n) for n in range(10_000)])
    assert [task.data for task in tasks] == [b"%d" % n for n in range(10_000)]
    assert [task.id for task in tasks] == sorted({task.id for task in tasks})
    assert store.commit(owner=ANN, deletes=[task.id for task in tasks]) == []
    assert store.groups() == []


# ---- A commit that can't be done changes nothing and says every reason


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


# ---- Finding tasks by their ids


@with_each("task_id", [2**63, -(2**63) - 1, 10**30])
def test_an_id_beyond_64_bits_is_bad_input(store, task_id):
    with pytest.raises(InvalidInput) as error:
        store.find([1, task_id])
    assert list(error.value.fields) == ["ids[1]"]
