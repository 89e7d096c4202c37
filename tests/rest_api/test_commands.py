"""Shell commands over REST: submitted, looked at, parked, run again."""

import time
from base64 import b64encode

import pytest

from tasks_app.models import AuditEntry, Scope, Task
from taskstore.types.command_record import CommandStatus

from ..command_lists.commands import commands_in, submitted
from ..command_lists.stages import running_list
from .api import Api

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("commands_are_on")]

SUBMIT = {"commands": [{"cmd": "echo 'A'; sleep 2; echo 'B'"}]}


@pytest.fixture
def ann(db):
    return Api(Scope.COMMANDS)


# ---- Submit


def test_commands_are_submitted_in_their_order(ann):
    now = int(time.time())
    status, answer = ann.post("/commands/nightly", {"commands": [{"cmd": "b"}, {"cmd": "a", "until": 2_000_000_000,
                              "expected_duration": 5, "max_fails": 1}]})  # fmt: skip
    first, second = answer["commands"]
    assert (status, first["cmd"], first["status"], first["project"]) == (201, "b", "new", "nightly")
    assert (first["expected_duration"], first["max_fails"], first["fails"], first["run"]) == (60, 3, 0, None)
    assert abs(first["until"] - now - 7 * 86_400) < 600
    assert (second["until"], second["expected_duration"], second["max_fails"]) == (2_000_000_000, 5, 1)
    assert first["id"] < second["id"]
    assert first["first"] + "_0" == first["id"]
    assert [each.cmd for each in commands_in("nightly", CommandStatus.NEW)] == ["b", "a"]


def test_a_request_that_is_sent_again_submits_once(ann):
    body = SUBMIT | {"key": "one"}
    first = ann.post("/commands/nightly", body)
    assert first[0] == 201
    assert ann.post("/commands/nightly", body) == first
    assert ann.post("/commands/nightly", body | {"stashed": True})[0] == 409
    assert Task.objects.count() == 1


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["commands"]),
        ({"commands": []}, ["commands"]),
        ({"commands": [{"cmd": "true"}] * 1_001}, ["commands"]),
        ({"commands": ["true"]}, ["commands[0]"]),
        ({"commands": [{"cmd": ""}, {}, {"cmd": 1}]}, ["commands[0].cmd", "commands[1].cmd", "commands[2].cmd"]),
        ({"commands": [{"cmd": "a\nb"}, {"cmd": "a\0"}]}, ["commands[0].cmd", "commands[1].cmd"]),
        ({"commands": [{"cmd": "\ud800"}]}, ["commands[0].cmd"]),
        ({"commands": [{"cmd_base64": "!"}, {"cmd": "x", "cmd_base64": "6Q=="}, {"cmd_base64": "CukK"}]},
         ["commands[0].cmd_base64", "commands[1].cmd_base64", "commands[2].cmd_base64"]),
        ({"commands": [{"cmd_base64": b64encode(b"\xe9" * 65_537).decode()}]}, ["commands[0].cmd_base64"]),
        ({"commands": [{"cmd": "x" * 70_000}]}, ["commands[0].cmd"]),
        ({"commands": [{"cmd": "a", "until": -1, "expected_duration": 0, "max_fails": 2**63}]},
         ["commands[0].expected_duration", "commands[0].max_fails", "commands[0].until"]),
        ({"commands": [{"cmd": "a", "until": "now", "expected_duration": 1.5, "max_fails": True, "x": 1}]},
         ["commands[0].expected_duration", "commands[0].max_fails", "commands[0].until", "commands[0].x"]),
        (SUBMIT | {"stashed": 1, "clientid": "a", "key": 1, "x": 1}, ["clientid", "key", "stashed", "x"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(ann, body, fields):
    status, answer = ann.post("/commands/nightly", body)
    assert (status, sorted(answer["errors"])) == (400, fields)
    assert not Task.objects.exists()


def test_what_is_no_project_is_named(ann):
    for name in ("x" * 201, "a%00b"):
        for path in ("", "/lists", "/results", "/command/1"):
            status, answer = ann.get(f"/commands/{name}{path}")
            assert (status, list(answer["errors"])) == (400, ["project"])
        for path, body in (("", SUBMIT), ("/retry", {}), ("/stash", {}), ("/unstash", {}), ("/archive", {})):
            status, answer = ann.post(f"/commands/{name}{path}", body)
            assert (status, list(answer["errors"])) == (400, ["project"])


# ---- Who may


def test_a_server_that_takes_no_commands_says_how_it_would(ann, settings):
    settings.TASKSTORE_COMMANDS = False
    for path, body in (("", SUBMIT), ("/retry", {}), ("/stash", {}), ("/unstash", {}), ("/archive", {})):
        status, answer = ann.post(f"/commands/nightly{path}", body)
        assert (status, "--commands" in answer["detail"]) == (403, True)
    assert ann.get("/commands/nightly")[0] == 200


def test_a_token_for_some_groups_has_their_projects_only(ann):
    task, _ = running_list("nightly")
    [command] = submitted(1, "nightly")
    others = Api(Scope.COMMANDS, groups=("commands/other/*",))
    assert others.get("/commands") == (200, {"projects": []})
    assert others.get("/commands/nightly/lists")[1]["lists"] == []
    assert others.get(f"/commands/nightly/lists/{task.id}")[0] == 404
    assert others.get(f"/commands/nightly/command/{command.id}")[0] == 404
    assert others.get("/commands/nightly/results?status=new")[1]["commands"] == []
    for path, body in (("", SUBMIT), (f"/lists/{task.id}/reopen", {}), ("/retry", {}), ("/stash", {})):
        assert others.post(f"/commands/nightly{path}", body)[0] == 403
    assert others.post("/commands/other", SUBMIT)[0] == 201


# ---- Status


# ---- Lists


def test_a_list_whose_worker_is_dead_is_opened_once(ann):
    task, _ = running_list()
    path = f"/commands/default/lists/{task.id}/reopen"
    assert ann.post(path, {"reason": "node-1 burnt"}) == (200, {"changed": 1})
    [seen] = ann.get("/commands/default/lists")[1]["lists"]
    assert seen["status"] == "open"
    assert ann.post(path, {}) == (404, {"detail": f"No list {task.id}; it may have finished."})
    assert ann.post(f"/commands/default/lists/{seen['task']}/reopen", {}) == (200, {"changed": 0})
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.action, entry.reason) == ("token:Ann", "reopen", "node-1 burnt")


# ---- Results


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/lists?status=new", "status"),
        ("/lists?after=x", "after"),
        ("/lists?limit=201", "limit"),
        ("/lists?q=a", "q"),
        ("/lists/x", "task"),
        ("/results?status=open", "status"),
        ("/results?after=1", "after"),
        ("/results?limit=0", "limit"),
        ("?x=1", "x"),
        ("/command/1?x=1", "x"),
    ],
)
def test_a_question_that_makes_no_sense_is_told_why(ann, path, field):
    status, answer = ann.get(f"/commands/default{path}")
    assert (status, list(answer["errors"])) == (400, [field])


# ---- Many at once


@pytest.mark.parametrize(
    ("verb", "body", "fields"),
    [
        ("stash", {"ids": []}, ["ids"]),
        ("unstash", {"ids": ["a"], "x": 1}, ["ids[0]", "x"]),
        ("archive", {"ids": list(range(10_001))}, ["ids"]),
        ("archive", {"status": "completed"}, ["status"]),
        ("retry", {"status": "new"}, ["status"]),
        ("retry", {"status": "lost"}, ["status"]),
        ("stash", {"reason": "x" * 1_001}, ["reason"]),
        ("lists/1/reopen", {"reason": "x" * 1_001, "ids": [1]}, ["ids", "reason"]),
    ],
)
def test_a_change_that_makes_no_sense_is_told_why(ann, verb, body, fields):
    status, answer = ann.post(f"/commands/default/{verb}", body)
    assert (status, sorted(answer["errors"])) == (400, fields)
