"""A verb inside the caller's own transaction joins it: both happen or neither."""

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, transaction

from tasks_app.models import EndedTask, Task
from taskstore.errors import CommitRefused
from taskstore.types.tasks import Change, NewTask

from .people import ANN, BOB

MAIL = NewTask(group="mail")


@pytest.fixture
def ledger(transactional_db):
    """A table of the caller's own."""
    yield Group.objects.filter(name__startswith="the caller")
    Group.objects.filter(name__startswith="the caller").delete()


@pytest.fixture
def task(ledger):
    [task] = Task.objects.commit(owner=ANN, adds=[MAIL])
    return task


def note(name="the caller's row"):
    return Group.objects.create(name=name)


def test_both_happen(task, ledger):
    with transaction.atomic():
        note()
        [held] = Task.objects.claim("mail", owner=BOB)
        [new] = Task.objects.commit(owner=BOB, adds=[MAIL], deletes=[held.id])
    assert ledger.count() == 1
    assert Task.objects.find([task.id, held.id, new.id]) == [None, None, new]
    assert EndedTask.objects.filter(origin=task.id).count() == 2


def fails_after(*steps):
    """A transaction of the caller that does these things and then fails."""
    with transaction.atomic():
        for step in steps:
            step()
        raise ZeroDivisionError


def test_neither_happens_when_the_caller_fails(task, ledger):
    with pytest.raises(ZeroDivisionError):
        fails_after(
            note,
            lambda: Task.objects.claim("mail", owner=BOB),
            lambda: Task.objects.commit(owner=BOB, adds=[NewTask(group="reports")]),
        )
    assert ledger.count() == 0
    assert Task.objects.find([task.id]) == [task]
    assert Task.objects.groups() == ["mail"]
    assert not EndedTask.objects.exists()


def test_neither_happens_when_the_database_refuses_the_callers_row(task, ledger):
    with pytest.raises(IntegrityError):
        fails_after(lambda: Task.objects.commit(owner=ANN, deletes=[task.id]), note, note)
    assert ledger.count() == 0
    assert Task.objects.find([task.id]) == [task]


def test_a_refused_commit_leaves_the_transaction_usable(task, ledger):
    with transaction.atomic():
        note()
        with pytest.raises(CommitRefused):
            Task.objects.commit(owner=ANN, deletes=[task.id, 2**53])
        with pytest.raises(CommitRefused):
            Task.objects.claim("mail", owner=ANN, depends=[2**53])
        [new] = Task.objects.commit(owner=ANN, updates=[Change(id=task.id, data=b"2")])
    assert ledger.count() == 1
    assert Task.objects.find([new.id]) == [new]


def test_on_commit_hooks_run_after_the_callers_commit(task, ledger):
    seen = []
    with transaction.atomic():
        Task.objects.commit(owner=ANN, deletes=[task.id])
        transaction.on_commit(lambda: seen.append(Task.objects.groups()))
        assert seen == []
    assert seen == [[]]
