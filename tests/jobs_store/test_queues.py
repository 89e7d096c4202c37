"""Jobs on the verbs: found, listed, deleted and requeued, whatever their status."""

import json
from typing import Any

import pytest
from django.db import transaction

from tasks_app.control import pauses
from tasks_app.core.actors import Actor
from tasks_app.core.operations import GroupScope
from tasks_app.jobs import queues as job_queues
from tasks_app.jobs.queues import Wanted, delete, enqueue, list_jobs, requeue
from tasks_app.models import AuditEntry, Task
from tasks_app.reading.history import chain_of
from taskstore.errors import InvalidInput, JobUnfinished
from taskstore.types.job_record import JobRecord, JobStatus, NotAJob
from taskstore.types.tasks import NewTask

from .jobs import ERROR, enqueued, failed, find, finished, heard, one_of_each, started, succeeded

pytestmark = pytest.mark.django_db


def listed(**wanted) -> list[int]:
    return [job.id for job in list_jobs(Wanted(**wanted)).jobs]


def test_a_job_is_found_by_its_first_id_whatever_becomes_of_it():
    job_id = enqueued(args=[1], priority=3)
    job = find(job_id)
    assert (job.status, job.queue, job.args, job.priority) == (JobStatus.PENDING, "default", [1], 3)
    task = started(records_it=True)
    job = find(job_id)
    assert (job.status, job.task, job.attempt.worker, job.attempt.pid) == (JobStatus.STARTED, task.id, "ann", 4_712)
    finished(task, result={"sent": 1})
    job = find(job_id)
    assert (job.status, job.result, job.created <= job.updated) == (
        JobStatus.SUCCEEDED, {"sent": 1}, True,
    )  # fmt: skip
    assert find(task.id) is None


def test_enqueue_joins_the_callers_transaction():
    with transaction.atomic():
        enqueue(JobRecord(function="a"))
        transaction.set_rollback(True)
    assert listed() == []


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"function": ""}, "function"),
        ({"function": "a" * 256}, "function"),
        ({"function": "a", "args": [float("nan")]}, "args[0]"),
        ({"function": "a", "kwargs": {"b": object()}}, "kwargs.b"),
        ({"function": "a", "kwargs": {"b": "\ud800"}}, "kwargs.b"),
    ],
)
def test_what_can_be_no_job_is_refused_by_the_field(asked, field):
    with pytest.raises(InvalidInput) as refused:
        enqueue(JobRecord(**asked), queue="a/b")
    assert {"queue", field} == set(refused.value.fields)


def test_a_list_has_what_is_asked_for_the_latest_first_page_by_page():
    jobs = one_of_each()
    other = succeeded("mail.count", queue="other")
    assert listed()[0] == jobs[JobStatus.SCHEDULED]
    assert set(listed()) == {*jobs.values(), other}
    for status, job_id in jobs.items():
        assert listed(queue="default", status=status) == [job_id]
    assert listed(function="mail.count") == [other]
    assert listed(queue="other") == [other]
    assert listed(queue="none") == []
    seen, after = [], None
    while True:
        page = list_jobs(Wanted(), after=after, limit=2)
        seen += [job.id for job in page.jobs]
        after = page.after
        if after is None:
            break
    assert seen == listed()


def test_a_list_has_no_more_of_a_large_record_than_its_task_tells(monkeypatch):
    monkeypatch.setattr(job_queues, "LISTED_BYTES", 200)
    job_id = enqueued(args=["a" * 200])
    [job] = list_jobs(Wanted()).jobs
    assert (job.id, job.is_whole, job.function, job.args) == (job_id, False, "mail.send", ())
    assert find(job_id).args == ["a" * 200]


def test_what_is_no_job_is_left_out_of_lists_and_says_so_when_asked_for():
    [task] = Task.objects.commit(owner=0, adds=[NewTask(group="jobs/default", data=b"{}")])
    assert listed() == []
    with pytest.raises(NotAJob):
        find(task.id)


def test_jobs_in_groups_that_the_asker_may_not_touch_are_not_there():
    job_id, scope = succeeded(), GroupScope(("jobs/default",))
    assert find(job_id, scope) is None
    assert list_jobs(Wanted(), scope=scope).jobs == []
    assert find(job_id, GroupScope(("jobs/default/*",))).id == job_id


def test_who_runs_a_job_is_known_from_the_worker_when_the_record_does_not_tell():
    job_id = enqueued()
    started(owner=7)
    assert find(job_id).attempt.worker == ""
    heard(7, name="bob")
    assert (find(job_id).attempt.worker, find(job_id).attempt.pid) == ("bob", 99)
    heard(7, name="bob", info=json.dumps({"jobs": [1, {"id": job_id, "pid": 100}]}))
    assert find(job_id).attempt.pid == 100


def test_what_a_dead_worker_left_in_the_record_is_not_about_the_one_that_has_the_job_now():
    job_id = enqueued()
    pauses.give_back(started(records_it=True).id, Actor("olaf"))
    assert find(job_id).status is JobStatus.PENDING
    heard(7, name="bob")
    started(owner=7)
    assert find(job_id).attempt.worker == "bob"


@pytest.mark.parametrize("status", [JobStatus.STARTED, JobStatus.PENDING, JobStatus.SCHEDULED])
def test_only_what_is_finished_is_deleted_and_requeued(status):
    job = find(one_of_each()[status])
    with pytest.raises(JobUnfinished, match=f"is {status}"):
        delete(job, Actor("ann"))
    with pytest.raises(JobUnfinished, match=f"is {status}"):
        requeue(job, Actor("ann"))
    assert find(job.id) == job
    assert not AuditEntry.objects.exists()


def test_a_finished_job_is_deleted_once():
    job = find(failed())
    delete(job, Actor("ann", reason="done with it"))
    assert find(job.id) is None
    ended: Any = chain_of(job.id)
    assert (ended.ended[-1].ending, ended.ended[-1].operator) == ("deleted", "ann")
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.action, entry.selection, entry.group) == (
        "ann", "delete", f"job {job.id}", "jobs/default/failed",
    )  # fmt: skip
    with pytest.raises(JobUnfinished, match="changed in the meantime"):
        delete(job)


def test_a_requeued_job_is_the_same_job_with_what_was_tried_and_perhaps_new_parameters():
    job_id = failed(args=[1], kwargs={"a": 2})
    again = requeue(find(job_id), Actor("ann", reason="fixed"), args=[3])
    assert (again.id, again.status, again.args, again.kwargs) == (
        job_id, JobStatus.PENDING, [3], {"a": 2},
    )  # fmt: skip
    assert (Task.objects.get(id=again.task).error, again.error, len(again.attempts)) == ("", None, 1)
    assert again.attempts[0].error == ERROR
    assert started().origin == job_id
    [entry] = AuditEntry.objects.all()
    assert (entry.action, entry.reason, entry.details["edited"]) == ("requeue", "fixed", True)


def test_a_job_cannot_be_requeued_with_what_is_no_json():
    with pytest.raises(InvalidInput, match="kwargs"):
        requeue(find(failed()), Actor("ann"), kwargs={"a": object()})
