"""An add that names an id of the deletes: the same task, in another group."""

from dataclasses import replace

import pytest

from tasks_app.core.operations import Operator
from tasks_app.models import Task
from taskstore.errors import CommitRefused, InvalidInput
from taskstore.types.tasks import Change, Ending, NewTask, Refusal

from .masstasker import Grpc
from .people import ANN, BOB
from .values import with_each
from .ways import Rest


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
        held, id=moved.id, group="reports", data=b"2", labels={}, priority=0, available_at_ms=clock.now_ms
    )
    assert moved.id > held.id
    assert (moved.origin, moved.claims, moved.created_at_ms) == (held.origin, 1, held.created_at_ms)
    assert [step.ending for step in store.history(moved.id)] == [Ending.CLAIMED, Ending.MOVED, None]


def test_an_add_with_an_id_that_the_commit_does_not_delete_is_refused(store, held):
    if isinstance(store, (Rest, Grpc)):
        pytest.skip("on the wire such an id is ignored, so that a task can be sent back as it came")
    with pytest.raises(InvalidInput) as refused:
        store.commit(owner=ANN, adds=[NewTask(group="mail"), NewTask(group="reports", id=held.id)])
    assert list(refused.value.fields) == ["adds[1].id"]
    assert (store.groups(), store.find([held.id])) == (["mail"], [held])


def test_on_the_wire_an_id_that_is_not_among_the_deletes_is_ignored(store, held):
    if not isinstance(store, (Rest, Grpc)):
        pytest.skip("in Python it is refused")
    [task] = store.commit(owner=ANN, adds=[NewTask(group="reports", id=held.id)])
    assert task.id not in (0, held.id)
    assert task.origin == task.id
    assert store.find([held.id]) == [held]


@with_each(
    "named",
    [
        {},
        {"data": b"2"},
        {"data": b"\xff", "data_type": "example/Card", "error": "lost", "labels": {"c": "d"}, "priority": -1},
        {"data": b"", "error": "", "labels": {}, "priority": 0, "release": True},
        {"timespec_ms": -60_000},
        {"timespec_ms": -60_000, "release": True},
    ],
)
def test_a_change_of_the_group_moves_the_task_and_keeps_what_it_does_not_name(store, clock, named):
    letter = NewTask(group="mail", data=b"1\xff", data_type="a/b", error="torn", labels={"a": "b"}, priority=5)
    store.commit(owner=BOB, adds=[letter])
    [held] = store.claim("mail", owner=ANN)
    clock.advance(5_000)
    [moved] = store.commit(owner=ANN, updates=[Change(id=held.id, group="reports", **named)])
    values = {name: value for name, value in named.items() if name not in ("timespec_ms", "release")}
    if "data" in named and "data_type" not in named:
        values["data_type"] = ""
    if named.get("error"):
        values["labels"] = {**named["labels"], "failed_from": "mail"}
    assert moved == replace(
        held,
        id=moved.id,
        group="reports",
        available_at_ms=clock.now_ms - named.get("timespec_ms", 0),
        owner=0 if named.get("release") else ANN,
        **values,
    )
    assert store.find([held.id]) == [None]
    assert [step.ending for step in store.history(moved.id)] == [Ending.CLAIMED, Ending.MOVED, None]


def test_a_refused_move_names_the_change_and_changes_nothing(store, held):
    [other, gone] = store.commit(owner=ANN, adds=[NewTask(group="mail")] * 2)
    store.commit(owner=ANN, deletes=[gone.id])
    with pytest.raises(CommitRefused) as refused:
        store.commit(
            owner=BOB,
            updates=[Change(id=gone.id, group="reports"), Change(id=held.id, group="reports"), Change(id=other.id)],
        )
    assert refused.value.refusal == Refusal(changes=(gone.id,), owned=(held.id,))
    assert store.find([held.id, other.id]) == [held, other]


@with_each("group", ["", "x" * 256])
def test_a_move_to_what_is_no_group_names_the_change(store, held, group):
    [other] = store.commit(owner=ANN, adds=[NewTask(group="mail")])
    with pytest.raises(InvalidInput) as refused:
        store.commit(owner=ANN, updates=[Change(id=other.id), Change(id=held.id, group=group)])
    assert list(refused.value.fields) == ["updates[1].group"]
    assert store.find([held.id, other.id]) == [held, other]


# ---- A task that failed and was moved away: the store remembers the group, and lets nobody else say it


def source(task):
    """As the store has it, whatever the way in shows."""
    return Task.objects.get(id=task.id).labels.get("failed_from")


def labels(task):
    return Task.objects.get(id=task.id).labels


def move(store, task, group, error="", owner=ANN, **fields):
    moved = NewTask(id=task.id, group=group, data=b"kept", error=error, **fields)
    [there] = store.commit(owner=owner, adds=[moved], deletes=[task.id])
    return there


@pytest.fixture
def letter(store):
    """Ann claimed it from `mail`, and it failed."""
    store.commit(owner=ANN, adds=[NewTask(group="mail", data=b"kept")])
    [held] = store.claim("mail", owner=ANN)
    return move(store, held, "mail/failed", "boom", labels={"tier": "gold"})


def test_a_task_that_is_moved_with_an_error_remembers_its_group(letter):
    assert labels(letter) == {"tier": "gold", "failed_from": "mail"}


def test_nobody_else_says_where_it_failed(store, letter):
    [task] = store.commit(owner=ANN, adds=[NewTask(group="mail", error="no", labels={"failed_from": "secret"})])
    assert source(task) is None
    assert source(move(store, task, "reports", labels={"failed_from": "secret"})) is None
    there = move(store, letter, "mail/failed", "boom", labels={"failed_from": "secret", "a": "b"})
    assert labels(there) == {"a": "b", "failed_from": "mail"}
    # Not even how long it may be is of any matter.
    many = {str(number): "" for number in range(64)} | {"failed_from": "x" * 1_000}
    assert labels(move(store, there, "mail/failed", "boom", labels=many)).keys() == many.keys()


def test_moved_on_it_still_comes_from_where_it_failed(store, letter):
    there = move(store, letter, "archive", "boom, and looked at")
    assert source(there) == "mail"
    assert source(move(store, there, "mail", "boom")) is None


@pytest.mark.django_db
def test_an_update_keeps_it_whatever_labels_it_gives():
    [task] = Task.objects.commit(owner=0, adds=[NewTask(group="mail")])
    [letter] = Task.objects.commit(
        owner=0, adds=[NewTask(id=task.id, group="mail/failed", error="boom")], deletes=[task.id]
    )
    given = {"a": "b", "failed_from": "secret"}
    [updated] = Task.objects.commit(owner=0, updates=[Change(id=letter.id, labels=given)])
    assert updated.labels == {"a": "b", "failed_from": "mail"}


@pytest.mark.django_db
def test_an_operator_who_only_moves_a_failed_task_makes_no_dead_letter():
    [task] = Task.objects.commit(owner=0, adds=[NewTask(group="mail", error="boom")])
    ann = Operator(name="Ann")
    kept = Change(id=task.id, group="archive")
    [moved] = Task.objects.commit(owner=0, updates=[kept], operator=ann)
    assert moved.failed_from == ""
    [failed] = Task.objects.commit(owner=0, updates=[Change(id=moved.id, group="x", error="no")], operator=ann)
    assert failed.failed_from == "archive"
