"""Schedules over the API: what is answered, what is refused, and to whom."""

import json

import pytest

from tasks_app.models import Scope, Task
from tests.rest_api.api import Api, answered

from .schedules import put, task_of

PLAN = {"cron": "@hourly", "task": {"group": "mail", "data": "hello"}}


@pytest.fixture
def operator(db):
    return Api(Scope.OPERATE)


def send(api, method, path, body=None):
    return answered(api.http.generic(method, path, json.dumps(body) if body is not None else ""))


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
