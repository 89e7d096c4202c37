"""Jobs over REST: enqueue, find, list, delete, requeue."""

import pytest

from tasks_app.models import AuditEntry, Scope

from ..jobs_store.jobs import begun, enqueued, one_of_each, succeeded
from .api import Api

pytestmark = pytest.mark.django_db


def deleted(api, job_id):
    response = api.http.delete(f"/jobs/{job_id}")
    return response.status_code, response.json()


def test_a_job_is_enqueued_and_found(api):
    body = {"function": "mail.send", "args": ["ann", None, 2**80], "kwargs": {"cc": None}, "queue": "mail",
            "priority": 5, "options": {"max_attempts": 3, "timeout_ms": 60_000}}  # fmt: skip
    status, job = api.post("/jobs", body)
    assert status == 200
    assert (job["status"], job["queue"], job["priority"], job["args"], job["kwargs"]) == (
        "pending", "mail", 5, ["ann", None, 2**80], {"cc": None},
    )  # fmt: skip
    assert (job["options"]["max_attempts"], job["options"]["timeout_ms"], job["options"]["on_lost"]) == (
        3, 60_000, None,
    )  # fmt: skip
    assert api.get(f"/jobs/{job['id']}") == (200, job)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["function"]),
        ({"function": "", "queue": "a/b"}, ["function", "queue"]),
        ({"function": "a", "args": {}, "kwargs": []}, ["args", "kwargs"]),
        ({"function": "a", "args": ["\ud800"]}, ["args[0]"]),
        ({"function": "a", "options": {"max_attempts": 0, "on_lost": "cry", "x": 1}},
         ["options.max_attempts", "options.on_lost", "options.x"]),
        ({"function": "a", "priority": 101, "timespec": "now"}, ["priority", "timespec"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(api, body, fields):
    status, answer = api.post("/jobs", body)
    assert (status, sorted(answer["errors"])) == (400, fields)


def test_a_list_goes_on_where_it_ended(api):
    jobs = one_of_each()
    seen, after = [], ""
    while after is not None:
        _, page = api.get(f"/jobs?limit=2{f'&after={after}' if after else ''}")
        seen += [job["id"] for job in page["jobs"]]
        after = page["after"]
    assert sorted(seen) == sorted(jobs.values())
    assert [job["id"] for job in api.get("/jobs?status=failed&queue=default&function=mail.send")[1]["jobs"]] == [
        jobs["failed"]
    ]


@pytest.mark.parametrize(
    ("query", "field"),
    [("status=lost", "status"), ("queue=a/b", "queue"), ("after=x", "after"), ("limit=0", "limit"), ("q=a", "q")],
)
def test_a_list_names_what_makes_no_sense(api, query, field):
    status, answer = api.get(f"/jobs?{query}")
    assert (status, list(answer["errors"])) == (400, [field])


def test_only_what_is_finished_is_deleted_and_it_says_why(api):
    job_id = begun()
    status, answer = deleted(api, job_id)
    assert (status, answer["code"]) == (409, "unfinished")
    assert f"Job {job_id} is started" in answer["detail"]
    done = succeeded(queue="other")
    assert deleted(api, done)[0] == 200
    status, answer = api.get(f"/jobs/{done}")
    assert (status, "deleted" in answer["detail"]) == (404, True)
    assert not AuditEntry.objects.exists()


def test_a_job_is_requeued_with_arguments_that_are_text(api):
    status, answer = Api(Scope.OPERATE).post(f"/jobs/{succeeded()}/requeue", {"args": ["\ud800"]})
    assert (status, list(answer["errors"])) == (400, ["args"])


def test_a_task_that_is_no_job_says_so(api):
    task = api.add("jobs/default", data="{}")
    status, answer = api.get(f"/jobs/{task['id']}")
    assert (status, "function is required" in answer["detail"]) == (404, True)
    task = api.add()
    assert api.get(f"/jobs/{task['id']}") == (404, {"detail": f"task {task['id']} is in the group {task['group']}"})
    api.committed(deletes=[task["id"]])
    assert api.get(f"/jobs/{task['id']}") == (404, {"detail": f"task {task['id']} was deleted"})


def test_a_token_for_some_groups_has_the_jobs_of_their_queues_only():
    job_id = enqueued(queue="mail")
    others = Api(groups=("jobs/other", "jobs/other/*"))
    assert others.get(f"/jobs/{job_id}")[0] == 404
    assert others.get("/jobs")[1]["jobs"] == []
    assert others.post("/jobs", {"function": "a", "queue": "mail"})[0] == 403
    assert others.post("/jobs", {"function": "a", "queue": "other"})[0] == 200
