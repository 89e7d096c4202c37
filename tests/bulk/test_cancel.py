"""Cancel: what becomes of tasks, jobs, commands and lists, and what an undo brings back."""

import pytest
from msgspec.structs import replace

from tasks_app import bulk
from tasks_app.bulk import Selection
from tasks_app.bulk.actions import Cancel
from tasks_app.commands import make_lists, process_closed, retry
from tasks_app.core.actors import Actor
from tasks_app.jobs import queues
from tasks_app.models import EndedTask, Task
from taskstore.errors import CommitRefused
from taskstore.types.command_record import CommandList, CommandStatus, group_of
from taskstore.types.job_record import How, JobStatus
from taskstore.types.tasks import Change
from tests.command_lists.commands import BOB, close, commands_in, submitted
from tests.command_lists.stages import run
from tests.console.store import add, change_all
from tests.jobs_store.jobs import ANN, enqueued, find, started, succeeded

pytestmark = pytest.mark.django_db

WHY = "cancelled by olaf: wrong addresses"


def cancel(*tasks_or_ids, **asked):
    ids = tuple(each if isinstance(each, int) else each.id for each in tasks_or_ids)
    operation = change_all(Cancel, Selection(ids=ids), reason="wrong addresses", **asked)
    assert operation.state == "done"
    return operation


def undone(operation):
    return bulk.undo(operation)


def test_a_task_is_deleted_and_the_history_says_by_whom_and_why():
    [task] = add()
    operation = cancel(task)
    end = EndedTask.objects.get(id=task.id)
    assert (end.ending, end.operator, end.reason, end.successor) == ("cancelled", "olaf", "wrong addresses", None)
    assert undone(operation).done == 1
    [back] = Task.objects.group("mail")
    assert (back.origin, bytes(back.data)) == (task.origin, bytes(task.data))


def test_a_waiting_job_is_kept_as_cancelled_and_an_undo_has_it_run_after_all():
    job_id = enqueued()
    operation = cancel(job_id)
    job = find(job_id)
    assert (job.status, job.is_finished, job.attempts) == (JobStatus.CANCELLED, True, ())
    assert (job.error.type, job.error.message) == ("Cancelled", "by olaf: wrong addresses")
    [task] = Task.objects.group("jobs/default/cancelled")
    assert task.error == WHY
    assert EndedTask.objects.get(id=job_id).ending == "cancelled"
    assert not Task.objects.claim("jobs/default", owner=ANN)
    assert undone(operation).done == 1
    assert find(job_id).status is JobStatus.PENDING
    assert started().error == ""


def test_a_running_job_is_taken_from_its_worker_when_that_is_asked_for_and_stays_so():
    job_id = enqueued()
    held = started(records_it=True)
    assert cancel(held).skipped == 1
    operation = cancel(held, takes_claimed=True)
    job = find(job_id)
    [attempt] = job.attempts
    assert (job.status, attempt.how, attempt.worker, attempt.ended) == (
        JobStatus.CANCELLED, How.CANCELLED, "ann", job.updated,
    )  # fmt: skip
    with pytest.raises(CommitRefused):
        Task.objects.commit(owner=ANN, deletes=[held.id])
    undo = undone(operation)
    assert (undo.done, bulk.reasons(undo.pk)) == (0, {"a worker had begun it": 1})
    again = queues.requeue(job, Actor("olaf"))
    assert [each.how for each in again.attempts] == [How.CANCELLED]
    assert again.record.next_attempt == 1


def test_what_has_ended_is_skipped():
    job_id = succeeded()
    operation = cancel(find(job_id).task)
    assert (operation.done, bulk.reasons(operation.pk)) == (0, {"ended already": 1})


def test_a_new_command_is_kept_as_cancelled_and_can_be_retried():
    [command] = submitted(1)
    cancel(*Task.objects.group(group_of("default", CommandStatus.NEW)))
    assert commands_in("default", CommandStatus.CANCELLED) == [command]
    assert make_lists("default") == 0
    assert retry("default", status=CommandStatus.CANCELLED) == 1
    assert len(commands_in("default", CommandStatus.NEW)) == 1


def test_of_a_running_list_nothing_runs_again_and_what_has_succeeded_has(settings):
    settings.TASKSTORE_COMMAND_LISTS = "*=3/1h/0s"
    done, failed, waiting = submitted(3)
    make_lists("default")
    [task] = Task.objects.claim(group_of("default", CommandStatus.OPEN), owner=BOB)
    cancel(task, takes_claimed=True)
    assert process_closed("default") == 1
    assert commands_in("default", CommandStatus.CANCELLED) == [done, failed, waiting]
    [first, *_] = Task.objects.group(group_of("default", CommandStatus.CANCELLED))
    assert first.error == WHY
    assert make_lists("default") == 0


def test_a_list_with_results_keeps_them(settings):
    settings.TASKSTORE_COMMAND_LISTS = "*=2/1h/0s"
    submitted(2)
    make_lists("default")
    [task] = Task.objects.claim(group_of("default", CommandStatus.OPEN), owner=BOB)
    made = CommandList.decode(bytes(task.data))
    good, bad = (replace(each, run=run(err=err)) for each, err in zip(made.commands, (b"", b"no"), strict=True))
    written = Change(id=task.id, data=replace(made, commands=(good, bad)).encode(), timespec_ms=-60_000)
    [task] = Task.objects.commit(owner=BOB, updates=[written])
    cancel(task, takes_claimed=True)
    assert process_closed("default") == 1
    assert [each.id for each in commands_in("default", CommandStatus.COMPLETED)] == [good.id]
    assert [each.id for each in commands_in("default", CommandStatus.CANCELLED)] == [bad.id]


def test_a_list_that_a_worker_has_closed_is_not_taken_for_a_cancelled_one(settings):
    settings.TASKSTORE_COMMAND_LISTS = "*=1/1h/0s"
    [command] = submitted(1)
    make_lists("default")
    close("default", lambda each: replace(each, run=run(err=b"no")))
    [closed] = Task.objects.group(group_of("default", CommandStatus.CLOSED))
    Task.objects.commit(owner=0, updates=[Change(id=closed.id, error="noted by hand")])
    process_closed("default")
    assert [each.id for each in commands_in("default", CommandStatus.FAILED_ARCHIVE)] == [command.id]
    assert len(commands_in("default", CommandStatus.NEW)) == 1
