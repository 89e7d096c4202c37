"""What becomes of a batch by the way in which one of its two members ends: each way, for each kind of task."""

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tasks_app.bulk import Purge, Requeue, Selection, undo
from tasks_app.bulk.actions import Cancel
from tasks_app.bulk.starting import delete_batch
from tasks_app.commands import make_lists, new_commands, process_closed, retry
from tasks_app.control import batches as control
from tasks_app.core.actors import Actor
from tasks_app.core.operations import BatchStep, Commit, Operator, Step, Update
from tasks_app.models import AuditEntry, Batch, BatchPlan, Task
from tasks_app.tasks_backend import batches as blocks
from tasks_app.writer.totals import fold_here
from taskstore.errors import CommitRefused
from taskstore.types.batches import Plan
from taskstore.types.command_record import CommandStatus, group_of, new_command_task
from taskstore.types.commands import Submission
from taskstore.types.job_record import JobRecord
from taskstore.types.tasks import Change, Ending, NewTask
from tests.behaviour.conftest import Clock
from tests.behaviour.test_housekeeping import keep_house
from tests.command_lists.commands import close
from tests.command_lists.stages import run
from tests.console.store import change_all
from tests.task_framework.tasks import send

pytestmark = pytest.mark.django_db

ANN = 7
DAY_MS = 86_400_000
PROJECT = "film"


class Pair:
    """A batch of a member of this kind, and of another task, which ends last and well."""

    def __init__(self, kind):
        self.made, [self.other] = Task.objects.create_batch(
            owner=ANN, adds=[NewTask(group="other")], then=NewTask(group="sum"), on_failure=NewTask(group="alarm")
        )
        if kind == "command":
            [command] = new_commands(PROJECT, [Submission(cmd="true", max_fails=2)])
            [task] = Task.objects.commit(owner=ANN, adds=[new_command_task(PROJECT, command, batch=self.made.id)])
        elif kind == "Django's task":
            around = blocks._current.set(self.made.id)
            task = Task.objects.get(origin=int(send.enqueue(1, copies=1).id))
            blocks._current.reset(around)
        else:
            group = {"plain": "mail", "job": "jobs/mail"}[kind]
            data = JobRecord(function="f").encode() if kind == "job" else b""
            [task] = Task.objects.commit(owner=ANN, adds=[NewTask(group=group, data=data, batch=self.made.id)])
        self.origin = task.origin

    @property
    def told(self):
        return Batch.objects.counted().get(pk=self.made.id).told()

    @property
    def member(self):
        return Task.objects.get(origin=self.origin)

    @property
    def added(self):
        return sorted(Task.objects.filter(group__in=["sum", "alarm"]).values_list("group", flat=True))

    def end_other(self):
        Task.objects.commit(owner=ANN, deletes=[self.other.id])


@pytest.fixture
def clock(db, monkeypatch):
    return Clock(Task.objects.now_ms(), monkeypatch)


def deleted(pair, operator=None):
    Task.objects.commit(owner=ANN, deletes=[pair.member.id], operator=operator)


def moved(pair, group, error=""):
    Task.objects.commit(owner=ANN, updates=[Change(id=pair.member.id, group=group, error=error)])


def finished(pair, status):
    moved(pair, f"{pair.member.group}/{status}".rstrip("/"), "" if status == "succeeded" else "no")


def described(pair, *, is_named):
    """By gRPC: a delete by its id, or one that a selector describes, in one update."""
    matched = frozenset() if is_named else frozenset({pair.member.id})
    operator = Operator(name="ann", ending=Ending.PURGED)
    Task.objects.perform(Update(deletes=(pair.member.id,), matched=matched, operator=operator))


def in_bulk(pair, action):
    operation = change_all(action, Selection(ids=(pair.member.id,)))
    assert (operation.done, operation.failed) == (1, 0)
    return operation


def cancelled(pair):
    Task.objects.cancel([pair.origin])


def purged_and_back(pair):
    assert undo(in_bulk(pair, Purge)).done == 1


def dead(pair):
    moved(pair, "dead", "no such host")


def old(pair, clock):
    fold_here()
    clock.advance(400 * DAY_MS)
    keep_house()


COUNTED_PURGE, COUNTED_CANCEL = partial(Purge, counts_as_done=True), partial(Cancel, counts_as_done=True)
SUCCEEDED, FAILED, GONE, OPEN, OPEN_YET = "succeeded", "failed", "gone", "open again", "open yet"
SUCCEEDED_AT_LAST = "succeeded at last"
WAYS: dict[tuple[str, str], tuple[str, list[Any]]] = {
    ("plain", "a program deletes it"): (SUCCEEDED, [deleted]),
    ("plain", "a dead letter"): (FAILED, [dead]),
    ("plain", "a dead letter that a program deletes"): (SUCCEEDED, [dead, deleted]),
    ("plain", "a dead letter that is requeued"): (OPEN, [dead, partial(in_bulk, action=Requeue)]),
    ("plain", "a dead letter that is purged"): (GONE, [dead, partial(in_bulk, action=Purge)]),
    ("plain", "purged"): (GONE, [partial(in_bulk, action=Purge)]),
    ("plain", "cancelled"): (GONE, [partial(in_bulk, action=Cancel)]),
    ("plain", "cancelled by a program"): (GONE, [cancelled]),
    ("plain", "an operator deletes it"): (GONE, [partial(deleted, operator=Operator(name="ann"))]),
    ("plain", "gRPC names it"): (SUCCEEDED, [partial(described, is_named=True)]),
    ("plain", "gRPC describes it"): (GONE, [partial(described, is_named=False)]),
    ("plain", "a purge that is undone"): (OPEN, [purged_and_back]),
    ("plain", "purged, and counted as done"): (SUCCEEDED, [partial(in_bulk, action=COUNTED_PURGE)]),
    ("plain", "a dead letter that is purged, and counted as done"): (
        SUCCEEDED_AT_LAST,
        [dead, partial(in_bulk, action=COUNTED_PURGE)],
    ),
    ("plain", "retention"): (GONE, [old]),
    ("plain", "retention of a dead letter"): (FAILED, [dead, old]),
    ("job", "succeeded"): (SUCCEEDED, [partial(finished, status="succeeded")]),
    ("job", "succeeded, then deleted"): (SUCCEEDED, [partial(finished, status="succeeded"), deleted]),
    ("job", "succeeded, then purged and undone"): (SUCCEEDED, [partial(finished, status="succeeded"), purged_and_back]),
    ("job", "discarded"): (SUCCEEDED, [deleted]),
    ("job", "failed"): (FAILED, [partial(finished, status="failed")]),
    ("job", "goes on"): (OPEN_YET, [partial(finished, status="")]),
    ("job", "failed, and old"): (FAILED, [partial(finished, status="failed"), old]),
    ("job", "failed, then requeued"): (OPEN, [partial(finished, status="failed"), partial(in_bulk, action=Requeue)]),
    ("job", "failed, and its record deleted"): (GONE, [partial(finished, status="failed"), deleted]),
    ("job", "cancelled"): (GONE, [cancelled]),
    ("job", "cancelled, and counted as done"): (SUCCEEDED, [partial(in_bulk, action=COUNTED_CANCEL)]),
    ("job", "cancelled, counted as done and requeued"): (
        SUCCEEDED,
        [partial(in_bulk, action=COUNTED_CANCEL), partial(in_bulk, action=Requeue)],
    ),
    ("job", "cancelled, and old"): (GONE, [cancelled, old]),
    ("job", "cancelled, then requeued"): (OPEN, [cancelled, partial(in_bulk, action=Requeue)]),
}


WAYS |= {("Django's task", way): ends for (kind, way), ends in WAYS.items() if kind == "job"}


def ran_well(command):
    return replace(command, run=run())


def ran_and_failed(command):
    return replace(command, run=run(failed=True))


def ran(pair, fails):
    """The list of the command is made, run and settled. A list and its commands count as the same."""
    for failed in fails:
        assert make_lists(PROJECT) == 1
        assert (pair.told.total, pair.told.open) == (2, 2)
        close(PROJECT, ran_and_failed if failed else ran_well)
        assert (pair.told.total, pair.told.open) == (2, 2)
        assert process_closed(PROJECT) == 1


def tried_again(pair):
    [task] = Task.objects.filter(group__in=[group_of(PROJECT, each) for each in ENDED], batch=pair.made.id)
    assert retry(PROJECT, ids=[task.id]) == 1
    assert not Task.objects.filter(group__endswith="_archive").exclude(batch=0).exists()


def cancelled_in_its_list(pair):
    assert make_lists(PROJECT) == 1
    [task] = Task.objects.filter(group=group_of(PROJECT, CommandStatus.OPEN))
    Task.objects.cancel([task.id])
    process_closed(PROJECT)


ENDED = (CommandStatus.FAILED_COUNT, CommandStatus.CANCELLED)
WAYS |= {
    ("command", "completed"): (SUCCEEDED, [partial(ran, fails=[False])]),
    ("command", "completed at the second attempt"): (SUCCEEDED, [partial(ran, fails=[True, False])]),
    ("command", "failed once"): (OPEN_YET, [partial(ran, fails=[True])]),
    ("command", "failed too often"): (FAILED, [partial(ran, fails=[True, True])]),
    ("command", "failed too often, and old"): (FAILED, [partial(ran, fails=[True, True]), old]),
    ("command", "failed too often, then tried again"): (OPEN, [partial(ran, fails=[True, True]), tried_again]),
    ("command", "cancelled"): (GONE, [cancelled]),
    ("command", "cancelled in its list"): (GONE, [cancelled_in_its_list]),
    ("command", "cancelled, then tried again"): (OPEN, [cancelled, tried_again]),
    ("command", "cancelled, and counted as done"): (SUCCEEDED, [partial(in_bulk, action=COUNTED_CANCEL)]),
    ("command", "purged"): (GONE, [partial(in_bulk, action=Purge)]),
}


@pytest.fixture
def retention(settings):
    settings.TASKSTORE_COMMAND_LISTS = "*=1/10min/1s"
    settings.TASKSTORE_RETENTION = "mail=1d dead=1d jobs/*=1d commands/*=1d"


@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_each_end_has_its_meaning(kind, way, clock, retention):
    expected, steps = WAYS[kind, way]
    pair = Pair(kind)
    for step in steps:
        step(pair, clock) if step is old else step(pair)
    told = pair.told
    assert (told.total, told.ended, told.failed, told.gone, told.state) == {
        SUCCEEDED: (2, 1, 0, 0, "open"),
        SUCCEEDED_AT_LAST: (2, 1, 0, 0, "open"),
        FAILED: (2, 0, 1, 0, "open"),
        GONE: (2, 0, 1, 1, "open"),
        OPEN: (2, 0, 0, 0, "open"),
        OPEN_YET: (2, 0, 0, 0, "open"),
    }[expected]
    alarms = ["alarm"] if expected not in (SUCCEEDED, OPEN_YET) or dead in steps else []
    assert pair.added == alarms
    pair.end_other()
    told = pair.told
    assert (told.state, told.is_stuck) == {
        SUCCEEDED: ("succeeded", False),
        SUCCEEDED_AT_LAST: ("succeeded", False),
        FAILED: ("open", True),
        GONE: ("failed", False),
        OPEN: ("open", False),
        OPEN_YET: ("open", False),
    }[expected]
    assert pair.added == alarms + (["sum"] if expected in (SUCCEEDED, SUCCEEDED_AT_LAST) else [])


def test_a_list_counts_as_its_commands(settings):
    settings.TASKSTORE_COMMAND_LISTS = "*=3/10min/1s"
    batch, _ = Task.objects.create_batch(owner=ANN, then=NewTask(group="sum"), hold=True)
    commands = new_commands(PROJECT, [Submission(cmd="true") for _ in range(3)])
    Task.objects.commit(owner=ANN, adds=[new_command_task(PROJECT, each, batch=batch.id) for each in commands])
    Task.objects.change_batch(batch.id, Step.RELEASE)

    def numbers():
        told = Batch.objects.counted().get(pk=batch.id).told()
        return told.total, told.open, told.ended, told.failed

    assert make_lists(PROJECT) == 1
    assert numbers() == (3, 3, 0, 0)
    close(PROJECT, lambda command: replace(command, run=run(failed=command.id == commands[0].id)))
    assert process_closed(PROJECT) == 1
    assert numbers() == (3, 1, 2, 0)  # One runs again.


def made(number=1, **more):
    batch, tasks = Task.objects.create_batch(owner=ANN, adds=[NewTask(group="mail")] * number, **more)
    return batch.id, tasks


def told_of(batch):
    return Batch.objects.counted().get(pk=batch).told()


def groups():
    return sorted(Task.objects.exclude(group="mail").values_list("group", flat=True))


@pytest.mark.parametrize("way", ["cancel", "delete the batch"])
def test_a_batch_that_fails_fails_the_one_around_it(way):
    outer, [task] = made(then=NewTask(group="sum"), on_failure=NewTask(group="alarm"))
    middle, _ = made(0, hold=True, parent=outer)
    inner, [failing] = made(parent=middle)
    if way == "cancel":
        Task.objects.cancel([failing.id])
    else:
        assert delete_batch(inner)
    assert told_of(inner).state == ("failed" if way == "cancel" else "deleted")
    assert (told_of(middle).state, told_of(middle).failed_children, groups()) == ("held", 1, ["alarm"])
    Task.objects.change_batch(middle, Step.RELEASE)
    assert (told_of(middle).state, groups()) == ("failed", ["alarm"])
    Task.objects.commit(owner=ANN, deletes=[task.id])
    assert (told_of(outer).state, groups()) == ("failed", ["alarm"])
    assert not BatchPlan.objects.exists()


def test_a_batch_is_completed_without_what_has_failed():
    batch, [first, second, third] = made(3, then=NewTask(group="sum"))
    Task.objects.commit(owner=ANN, updates=[Change(id=first.id, group="dead", error="no")], deletes=[])
    Task.objects.cancel([second.id])
    control.complete(batch, Actor("olaf"))
    assert told_of(batch).state == "open"
    Task.objects.commit(owner=ANN, deletes=[third.id])
    assert (told_of(batch).state, told_of(batch).failed, groups()) == ("succeeded", 2, ["dead", "sum"])
    assert AuditEntry.objects.filter(action="complete batch").count() == 1


def test_what_is_to_follow_a_failed_batch_is_refused():
    batch, [task] = made()
    Task.objects.cancel([task.id])
    later = BatchStep(batch, Step.ADD_LATER, Plan(then=Plan((NewTask(group="sum"),))))
    with pytest.raises(CommitRefused, match=f"batch {batch} has failed, so that nothing can follow it"):
        Task.objects.perform(Commit(owner=ANN, batch=later))
