"""Schedules over the API: what is answered, what is refused, and to whom."""

import json

import pytest

from tasks_app.models import AuditEntry, Scope, Task
from tests.rest_api.api import Api, answered

from .schedules import added, put, task_of

PLAN = {"cron": "@hourly", "task": {"group": "mail", "data": "hello"}}


@pytest.fixture
def operator(db):
    return Api(Scope.OPERATE)


def send(api, method, path, body=None):
    return answered(api.http.generic(method, path, json.dumps(body) if body is not None else ""))


def test_it_is_made_changed_listed_and_deleted_by_its_name(operator, clock):
    status, made = send(operator, "PUT", "/schedules/digest", PLAN)
    assert (status, made["name"], made["state"], made["cron"], made["zone"]) == (200, "digest", "on", "@hourly", "UTC")
    assert (made["in_words"], made["catch_up"], made["last"]) == ("At the start of every hour", "skip", None)
    assert made["next"] == clock.now_ms // 3_600_000 * 3_600_000 + 3_600_000
    assert operator.get("/schedules/digest") == (200, made)
    _, changed = send(operator, "PUT", "/schedules/digest", {**PLAN, "cron": "@daily", "reason": "less"})
    assert (changed["origin"], changed["cron"]) == (made["origin"], "@daily")
    assert operator.get("/schedules") == (200, [changed])
    assert send(operator, "DELETE", "/schedules/digest") == (200, changed)
    assert operator.get("/schedules") == (200, [])
    trail = list(AuditEntry.objects.order_by("id").values_list("actor", "action", "reason"))
    assert trail == [
        ("token:Ann", "put schedule", ""), ("token:Ann", "put schedule", "less"), ("token:Ann", "delete schedule", ""),
    ]  # fmt: skip


def test_the_arguments_of_a_job_are_kept_as_they_are(operator):
    job = {"function": "reports.build", "args": [None, 2**70], "kwargs": {"to": None}, "queue": "slow"}
    _, made = send(operator, "PUT", "/schedules/report", {"cron": "@daily", "job": job, "zone": None})
    assert (made["job"]["args"], made["job"]["kwargs"]) == ([None, 2**70], {"to": None})
    operator.post("/schedules/report/run", {})
    [task] = added("jobs/slow")
    assert json.loads(bytes(task.data))["kwargs"] == {"to": None}


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"cron": "0 0 30 2 *"}, ["cron"]),
        ({"cron": "nonsense", "zone": "Moon/Base"}, ["zone", "cron"]),
        ({"cron": None}, ["cron"]),
        ({"catch_up": "some"}, ["catch_up"]),
        ({"task": None}, ["task"]),
        ({"job": {"function": "f"}}, ["job"]),
        ({"task": {}}, ["task.group"]),
        ({"task": {"group": "schedules"}}, ["task.group"]),
        ({"task": {"group": "mail", "priority": 101}}, ["task.priority"]),
        ({"task": {"group": "mail", "labels": {"due": "x"}}}, ["task.labels.due"]),
        ({"task": {"group": "mail", "data": "x" * 70_000}}, ["task.data"]),
        ({"task": None, "job": {"function": "", "queue": "a/b"}}, ["job.function", "job.queue"]),
        ({"task": None, "job": {"function": "f", "options": {"max_attempts": 0}}}, ["job.options.max_attempts"]),
        ({"task": None, "job": {"function": "f", "options": {"memory_bytes": 7}}}, ["job.options.memory_bytes"]),
        ({"task": None, "job": {"function": "f", "kwargs": [1]}}, ["job.kwargs"]),
        ({"due": 7}, ["due"]),
    ],
)
def test_what_makes_no_sense_is_named(operator, change, fields):
    status, answer = send(operator, "PUT", "/schedules/digest", {**PLAN, **change})
    assert (status, sorted(answer["errors"])) == (400, sorted(fields))
    assert not Task.objects.exists()


def test_a_broken_one_says_why(operator):
    broken = put()
    operator.committed(clientid=task_of(broken).owner, deletes=[broken.id])
    operator.add("schedules", data="{}", labels={"name": "digest"})
    _, [answer] = operator.get("/schedules")
    assert (answer["state"], answer["next"], "cron" in answer) == ("broken", None, False)
    assert "cron: is required" in answer["error"]
    assert operator.post("/schedules/digest/pause", {})[0] == 400


def test_a_token_for_other_groups_neither_sees_nor_makes_it(db):
    put()
    kim = Api(Scope.OPERATE, ("pay/*",))
    assert kim.get("/schedules") == (200, [])
    assert kim.get("/schedules/digest")[0] == 404
    assert send(kim, "DELETE", "/schedules/digest")[0] == 404
    assert send(kim, "PUT", "/schedules/other", PLAN)[0] == 403
    status, answer = send(kim, "PUT", "/schedules/digest", {**PLAN, "task": {"group": "pay/all"}})
    assert (status, answer["task"]["group"]) == (200, "pay/all")
    assert kim.get("/schedules/digest")[1]["task"]["group"] == "pay/all"
    assert send(kim, "PUT", "/schedules/payday", {**PLAN, "task": {"group": "pay/all"}})[0] == 200
