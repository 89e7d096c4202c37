"""Jobs: the list, the page of one, and what a person does to those that are finished."""

import html
import json
import re
from dataclasses import replace

import pytest

from tasks_app.bulk import Requeue, Selection
from tasks_app.jobs import queues
from tasks_app.models import AuditEntry, Task
from tasks_app.reading.search.finding import find as find_tasks
from tasks_app.reading.search.grammar import parse
from taskstore.types.job_record import JobError, JobRecord, JobStatus, new_task
from taskstore.types.tasks import NewTask

from ..jobs_store.jobs import ERROR, enqueued, failed, find, one_of_each, started, succeeded
from ..people import make_user, signed_in
from .store import change_all
from .test_commands import text_of

pytestmark = pytest.mark.django_db

HOSTILE = '<script>alert("x")</script>'


def test_the_list_has_each_job_with_its_status_and_the_tabs_count_them(operator):
    jobs = one_of_each()
    text = text_of(operator, "jobs")
    assert all(f'id="job-{job_id}"' in text for job_id in jobs.values())
    assert text.count('<span class="tab-count">1</span>') == 6
    assert "KeyError: &#x27;to&#x27;" in text
    assert 'data-hx-trigger="every 5s"' in text


@pytest.mark.parametrize("status", JobStatus)
def test_the_list_is_filtered_by_what_the_address_says(operator, status):
    jobs, other = one_of_each(), enqueued("mail.count", queue="other")
    text = text_of(operator, f"jobs?status={status}&queue=default&function=mail.send")
    assert [job_id for job_id in (*jobs.values(), other) if f'id="job-{job_id}"' in text] == [jobs[status]]
    assert f'id="job-{other}"' in text_of(operator, "jobs?function=mail.count")


@pytest.mark.parametrize(
    ("query", "status", "told"),
    [
        ("queue=a/b", 400, "must not be empty or contain /"),
        ("status=lost", 400, "one of scheduled, pending"),
        ("after=x", 400, "must be a position in the list"),
        ("queue=none", 200, "No matching jobs"),
    ],
)
def test_the_list_says_what_makes_no_sense_and_what_matches_nothing(operator, query, status, told):
    assert told in text_of(operator, f"jobs?{query}", status)


def test_the_list_is_filtered_by_label_worker_and_time(operator):
    for number in range(3):
        queues.enqueue(JobRecord(function="mail.send", args=(number,)), labels={"customer": str(number)})
    text = text_of(operator, "jobs?label=customer:1")
    assert len(re.findall(r'id="job-\d+"', text)) == 1
    assert "customer=" in text
    assert '<code class="data">1</code>' in text
    held = started(records_it=True)
    assert len(re.findall(r'id="job-\d+"', text_of(operator, "jobs?since=1h"))) == 3
    assert re.findall(r'id="job-(\d+)"', text_of(operator, f"jobs?worker={held.owner}")) == [str(held.origin)]
    assert "must be a client id, or the name" in text_of(operator, "jobs?worker=nobody", 400)
    assert "must be one of 1h, 24h, 7d" in text_of(operator, "jobs?since=2h", 400)
    assert operator.get("/console/jobs?label=").url == "/console/jobs"


@pytest.mark.parametrize("status", ["", *JobStatus])
@pytest.mark.parametrize("queue", ["", "queue=default&"])
@pytest.mark.parametrize("more", ["function=mail.send", "since=24h"])
def test_what_is_done_to_all_of_a_list_is_done_to_what_it_shows(operator, status, queue, more):
    """The list and the search that stands for it mean the same jobs."""
    one_of_each()
    queues.enqueue(JobRecord(function="mail.send"))
    queues.enqueue(JobRecord(function="mail.send"), queue="default-2")
    queues.enqueue(JobRecord(function="b"))
    for group in ("jobs/a/b", "jobs/", "jobs/default", "jobs/a//failed"):
        Task.objects.commit(owner=1, adds=[NewTask(group=group, data=b"no job")])
    for end in ("failed", "succeeded"):  # Whatever their times say.
        later = replace(new_task(JobRecord(function="mail.send")), group=f"jobs/later/{end}", timespec_ms=-3_600_000)
        Task.objects.commit(owner=1, adds=[later])
    text = text_of(operator, f"jobs?{queue}{more}" + (f"&status={status}" if status else ""))
    shown = set(map(int, re.findall(r'name="id" value="(\d+)"', text)))
    found = re.search(r'type="hidden" name="q" value="([^"]*)"', text)
    if found is None:  # Then nothing can be done to all.
        assert "data-select-all" not in text
        return
    assert set(find_tasks(parse(html.unescape(found[1]))).ids) == shown


def test_the_times_of_functions_come_from_what_has_ended(viewer):
    for _ in range(3):
        succeeded()
    failed()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text_of(viewer, "jobs/times")))
    assert re.search(r"mail\.send 4 1 ", text)


def test_a_job_is_enqueued_from_a_form_that_knows_the_last_arguments(operator, viewer):
    failed(args=["ann"], kwargs={"copies": 2})
    form = text_of(operator, "jobs/add?function=mail.send")
    assert "&quot;ann&quot;" in form
    assert "&quot;copies&quot;: 2" in form
    fields = {"function": "mail.send", "arguments": '["bob"]', "named_arguments": "", "queue": "mail", "labels": "a=b"}
    answer = operator.post("/console/jobs/add", fields | {"priority": "3", "delay_s": "0"})
    job = find(int(answer.url.rpartition("/")[2]))
    assert (list(job.args), dict(job.labels), job.queue, job.priority) == (["bob"], {"a": "b"}, "mail", 3)
    assert AuditEntry.objects.get(action="add").selection == f"job {job.id}"
    answer = operator.post("/console/jobs/add", fields | {"arguments": "x", "queue": "a/b"})
    assert answer.status_code == 422
    assert "ust be a JSON list" in answer.content.decode()
    assert viewer.get("/console/jobs/add").status_code == 403


def test_a_form_that_was_sent_with_empty_fields_leads_to_a_short_address(operator):
    answer = operator.get("/console/jobs?queue=&function=mail.send")
    assert (answer.status_code, answer["Location"]) == (302, "/console/jobs?function=mail.send")


def test_a_page_tells_all_of_a_failed_job(operator):
    job_id = failed(args=["ann"], kwargs={"copies": 2**70})
    text = text_of(operator, f"jobs/{job_id}")
    for part in ("mail.send", "Traceback (most recent call last)", "KeyError", "&quot;ann&quot;", str(2**70),
                 "Failed on", "node-1", "pid 4711", "1.5 s", f"/console/jobs/{job_id}/requeue"):  # fmt: skip
        assert part in text
    assert "every 2s" not in text


def test_any_id_of_its_task_leads_to_it_and_its_task_leads_back(operator):
    job_id = enqueued()
    task = started()
    answer = operator.get(f"/console/jobs/{task.id}")
    assert (answer.status_code, answer["Location"]) == (302, f"/console/jobs/{job_id}")
    assert f'href="/console/jobs/{job_id}"' in text_of(operator, f"task/{job_id}")
    assert f'href="/console/task/{task.id}"' in text_of(operator, f"jobs/{job_id}")


def test_what_is_no_job_says_why(operator):
    [task] = Task.objects.commit(owner=1, adds=[NewTask(group="jobs/mail", data=b"{}")])
    assert "function is required" in text_of(operator, f"jobs/{task.id}", 404)
    assert "There is no job with this id" in text_of(operator, "jobs/999", 404)


def test_who_may_not_see_payloads_sees_what_ran_but_nothing_of_what_it_was_given(viewer):
    error = JobError(type="KeyError", message="short", traceback="secret-trace")
    job_id = failed(args=["secret-arg"], error=error)
    done = succeeded(queue="other", result="secret-result", log="secret-log")
    for text in (text_of(viewer, f"jobs/{job_id}"), text_of(viewer, f"jobs/{done}"), text_of(viewer, "jobs")):
        assert "secret" not in text
        assert "/requeue" not in text
    assert "have permission to see task data" in text_of(viewer, f"jobs/{job_id}")


def test_an_operator_requeues_with_other_parameters_after_a_look_at_the_difference(operator):
    job_id = failed(args=[1], kwargs={"a": 2})
    path = f"/console/jobs/{job_id}/requeue"
    assert "&quot;a&quot;: 2" in text_of(operator, f"jobs/{job_id}/requeue")
    asked = {"args": "[1, null]", "kwargs": '{"a": 2}', "reason": "fixed"}
    review = operator.post(path, asked).content.decode()
    assert '<span class="after">+ null</span>' in review
    assert "Keyword arguments" not in review
    answer = operator.post(path, {**asked, "confirmed": "1"})
    assert (answer.status_code, answer["Location"]) == (302, f"/console/jobs/{job_id}")
    job = find(job_id)
    assert (job.status, job.args, job.kwargs) == (JobStatus.PENDING, [1, None], {"a": 2})
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.action, entry.reason, entry.details["edited"]) == ("olaf", "requeue", "fixed", True)
    assert operator.post(path, {**asked, "confirmed": "1"}).status_code == 409


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"args": "{}", "kwargs": "{}"}, "a JSON list"),
        ({"args": "[", "kwargs": "{}"}, "be parsed"),
        ({"args": "[]", "kwargs": "[]"}, "a JSON object"),
        ({"args": "[NaN]", "kwargs": "{}"}, "Must be valid JSON"),
    ],
)
def test_parameters_that_are_none_are_named_beside_their_field(operator, fields, told):
    job_id = failed()
    answer = operator.post(f"/console/jobs/{job_id}/requeue", {**fields, "confirmed": "1"})
    assert (answer.status_code, told in answer.content.decode()) == (422, True)
    assert find(job_id).status is JobStatus.FAILED


def test_an_operator_who_may_not_see_payloads_requeues_with_the_parameters_as_they_are():
    client = signed_in(make_user("otto", "operator"))
    job_id = failed(args=["secret-arg"])
    assert "secret" not in text_of(client, f"jobs/{job_id}/requeue")
    client.post(f"/console/jobs/{job_id}/requeue", {"args": "[]", "confirmed": "1"})
    assert find(job_id).args == ["secret-arg"]
    assert AuditEntry.objects.get().details["edited"] is False


def test_a_finished_job_is_deleted_after_a_question(operator):
    job_id = succeeded()
    assert "undo this" in text_of(operator, f"jobs/{job_id}/delete")
    answer = operator.post(f"/console/jobs/{job_id}/delete", {"reason": "done"})
    assert (answer.status_code, answer["Location"]) == (302, "/console/jobs")
    assert find(job_id) is None
    assert AuditEntry.objects.get().reason == "done"
    assert "deleted by olaf" in text_of(operator, f"jobs/{job_id}", 404)
    assert operator.post(f"/console/jobs/{enqueued()}/delete").status_code == 409


def test_failed_jobs_that_are_requeued_in_bulk_wait_for_workers_again():
    job_id = failed(args=[1])
    change_all(Requeue, Selection(group="jobs/default/failed"))
    job = find(job_id)
    assert (job.status, job.args, Task.objects.get(id=job.task).error) == (JobStatus.PENDING, [1], "")
    assert started().origin == job_id


def test_a_record_that_is_large_is_shown_whole_on_its_page(operator, monkeypatch):
    job_id = enqueued(args=["a" * 300_000])
    assert "mail.send" in text_of(operator, "jobs")
    assert "a" * 60_000 in text_of(operator, f"jobs/{job_id}")
    assert json.loads(bytes(Task.objects.get(origin=job_id).data))["args"] == ["a" * 300_000]
    assert ERROR.line not in text_of(operator, f"jobs/{job_id}")
