"""How far a task is, as its owner says."""

import time

import pytest

from tasks_app.models import ProgressReport, Task
from tasks_app.writer.housekeeping import OldProgress
from taskstore.errors import CommitRefused, InvalidInput, NotHeld
from taskstore.types.tasks import Change, NewTask

from .masstasker import Grpc
from .people import ANN, BOB
from .values import with_each

PATIENCE_S = 10.0


@pytest.fixture
def store(store):
    if isinstance(store, Grpc):
        pytest.skip("gRPC, whose messages are fixed, has no word for it")
    return store


def claimed(store, group="mail", owner=ANN):
    store.commit(owner=owner, adds=[NewTask(group=group)])
    [task] = store.claim(group, owner=owner)
    return task


def wait_for_progress(store, task_id, expected):
    """A server writes what it was told within a second."""
    until = time.monotonic() + PATIENCE_S
    while (found := store.progress(task_id)) != expected:
        assert time.monotonic() < until, found
        time.sleep(0.02)


def test_the_owner_says_how_far_a_task_is(store):
    task = claimed(store)
    assert store.progress(task.id) is None
    store.report_progress(task.id, owner=ANN, done=0.42, text="page 7 of 20")
    wait_for_progress(store, task.id, (0.42, "page 7 of 20"))
    assert [each.id for each in store.find([task.id])] == [task.id]  # It makes no successor.


def test_the_last_of_many_reports_is_kept(store):
    task = claimed(store)
    for page in range(1, 21):
        store.report_progress(task.id, owner=ANN, done=page / 20, text=f"page {page} of 20")
    wait_for_progress(store, task.id, (1.0, "page 20 of 20"))


def test_it_stays_when_the_lease_is_renewed_and_goes_with_the_lease(store):
    task = claimed(store)
    store.report_progress(task.id, owner=ANN, done=0.5)
    wait_for_progress(store, task.id, (0.5, ""))
    [renewed] = store.commit(owner=ANN, updates=[Change(id=task.id, timespec_ms=-60_000)])
    assert store.progress(renewed.id) == (0.5, "")
    [free] = store.commit(owner=ANN, updates=[Change(id=renewed.id, release=True)])
    assert store.progress(free.id) is None
    [again] = store.claim("mail", owner=ANN)
    assert store.progress(again.id) is None


def test_only_the_owner_can_say_it(store):
    task = claimed(store)
    with pytest.raises(NotHeld, match=f"Task {task.id} is leased to client {ANN}, not to client {BOB}"):
        store.report_progress(task.id, owner=BOB, done=0.5)
    assert store.progress(task.id) is None


BAD = [
    ({"done": 1.5}, "done"),
    ({"done": -0.1}, "done"),
    ({"done": 0.5, "text": "x" * 256}, "text"),
    ({"done": 0.5, "text": "\0"}, "text"),
    ({"done": 0.5, "text": "\ud800"}, "text"),
]


@with_each("said, field", BAD)
def test_what_makes_no_sense_is_refused(store, said, field):
    task = claimed(store)
    with pytest.raises(InvalidInput) as refused:
        store.report_progress(task.id, owner=ANN, **said)
    assert list(refused.value.fields) == [field]
    assert store.progress(task.id) is None


def test_what_is_left_of_ended_tasks_and_earlier_leases_is_swept_away(transactional_db):
    from tasks_app.control.progress import report
    from tasks_app.database import dialect_of

    Task.objects.commit(owner=ANN, adds=[NewTask(group="mail")] * 3)
    ended, given_back, held = Task.objects.claim("mail", owner=ANN, limit=3)
    for task in (ended, given_back, held):
        report(task.id, owner=ANN, done=0.5)
    [held] = Task.objects.commit(owner=ANN, updates=[Change(id=held.id, timespec_ms=-60_000)])
    Task.objects.commit(owner=ANN, deletes=[ended.id], updates=[Change(id=given_back.id, release=True)])
    dialect = dialect_of("default")
    assert dialect.drive(OldProgress().forget(dialect)) is False
    assert [each.origin for each in ProgressReport.objects.all()] == [held.origin]


def test_the_worker_that_lost_its_lease_is_told_so(store):
    task = claimed(store)
    [free] = store.commit(owner=ANN, updates=[Change(id=task.id, release=True)])
    [taken] = store.claim("mail", owner=BOB)
    with pytest.raises(NotHeld):
        store.report_progress(free.id, owner=ANN, done=0.5)
    with pytest.raises(CommitRefused):
        store.commit(owner=ANN, deletes=[taken.id])
