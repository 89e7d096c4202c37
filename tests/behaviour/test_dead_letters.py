"""A task that failed and was moved away: the store remembers the group, and lets nobody else say it."""

import pytest

from tasks_app.core.operations import Operator
from tasks_app.models import Task
from taskstore.types.tasks import Change, NewTask

from .people import ANN


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
