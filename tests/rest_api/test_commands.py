"""Shell commands over REST: submitted, looked at, parked, run again."""

import time

import pytest

from tasks_app.models import AuditEntry, Scope, Task
from taskstore.types.command_record import CommandStatus

from ..command_lists.commands import commands_in, submitted
from ..command_lists.stages import completed, heard, is_in, open_list, running_list, writes
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


def test_stashed_commands_are_parked(ann):
    _, answer = ann.post("/commands/nightly", SUBMIT | {"stashed": True})
    assert answer["commands"][0]["status"] == "new_stashed"
    assert len(commands_in("nightly", CommandStatus.NEW_STASHED)) == 1


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


@pytest.mark.parametrize("scope", [Scope.READ, Scope.WORK, Scope.OPERATE])
def test_it_takes_the_scope_commands(scope):
    api = Api(scope)
    assert api.get("/commands/nightly")[0] == 200
    for path, body in (("", SUBMIT), ("/retry", {}), ("/stash", {}), ("/unstash", {}), ("/archive", {})):
        assert api.post(f"/commands/nightly{path}", body)[0] == 403
    assert not Task.objects.exists()


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


def test_a_status_tells_how_far_a_project_is(ann):
    completed(duration_ms=2_000)
    submitted(3)
    task, made = running_list()
    heard()
    task = writes(task, made, 1)
    _, seen = ann.get("/commands/default")
    assert {name: count for name, count in seen["counts"].items() if count} == {"new": 3, "running": 1, "completed": 1}
    assert seen["lists"] == {"open": 0, "open_stashed": 0, "running": 1, "closed": 0}
    [running] = seen["running"]
    assert (running["task"], running["worker"], running["commands"], running["done"]) == (task.id, "bob", 2, 1)
    assert seen["forecast_s"] == pytest.approx(8)
    assert (seen["durations"]["count"], seen["durations"]["mean_ms"], seen["fails"]) == (1, 2_000, 0)
    [project] = ann.get("/commands")[1]["projects"]
    assert (project["project"], project["counts"], project["lists"]) == ("default", seen["counts"], seen["lists"])


# ---- Lists


def test_a_list_is_seen_with_its_commands_and_what_they_write(ann):
    task, made = running_list()
    task = writes(task, made, 1)
    [seen] = ann.get("/commands/default/lists?status=running")[1]["lists"]
    assert (seen["task"], seen["name"], seen["commands"], seen["expected_duration"]) == (task.id, made.name, 2, 60)
    for task_id in (seen["task"], seen["origin"]):
        _, whole = ann.get(f"/commands/default/lists/{task_id}")
        assert (whole["list"]["task"], whole["project"]) == (task.id, "default")
        assert [each["cmd"] for each in whole["commands"]] == ["echo 1"]
        assert [(each["command"], each["out"]["text"]) for each in whole["live"]] == [(made.commands[1].id, "so far")]
    assert ann.get(f"/commands/other/lists/{task.id}")[0] == 404


def test_lists_go_on_where_they_ended(ann):
    there_are = {open_list()[0].id for _ in range(3)}
    seen, after = [], ""
    while after is not None:
        _, page = ann.get(f"/commands/default/lists?limit=2{f'&after={after}' if after else ''}")
        seen += [each["task"] for each in page["lists"]]
        after = page["after"]
    assert seen == sorted(there_are, reverse=True)


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


def test_results_are_found_by_status_and_text(ann):
    _, good = completed(out=b"fine")
    _, bad = is_in(CommandStatus.FAILED_TIME, cmd="make it")
    assert [each["id"] for each in ann.get("/commands/default/results")[1]["commands"]] == [bad.id, good.id]
    [seen] = ann.get("/commands/default/results?status=completed&text=FINE")[1]["commands"]
    assert (seen["id"], seen["whole"], seen["run"]["out"]["text"], seen["run"]["exit_code"]) == (
        good.id,
        True,
        "fine",
        0,
    )
    [seen] = ann.get("/commands/default/results?text=make")[1]["commands"]
    assert (seen["id"], seen["run"]) == (bad.id, None)


def test_a_command_is_found_with_its_runs(ann):
    _, made = completed(out=b"x" * 9_000)
    [in_page] = ann.get("/commands/default/results")[1]["commands"]
    assert not in_page["whole"]
    for name in (made.id, made.first_id):
        _, whole = ann.get(f"/commands/default/command/{name}")
        assert (whole["newest"]["id"], len(whole["newest"]["run"]["out"]["text"])) == (made.id, 9_000)
        assert (whole["earlier"], whole["tail"]) == ([], None)
    assert ann.get("/commands/default/command/17_0") == (
        404, {"detail": "No command 17_0; it may have finished."},
    )  # fmt: skip


def test_a_running_command_has_a_tail(ann):
    task, made = running_list()
    writes(task, made)
    _, whole = ann.get(f"/commands/default/command/{made.commands[0].id}")
    assert (whole["newest"]["status"], whole["tail"]["out"]["text"]) == ("running", "so far")


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


def test_finished_commands_run_again(ann):
    task, _ = completed()
    is_in(CommandStatus.FAILED_COUNT)
    assert ann.post("/commands/default/retry", {"status": "failed_count"}) == (200, {"changed": 1})
    assert ann.post("/commands/default/retry", {"ids": [task.id], "reason": "why not"}) == (200, {"changed": 1})
    assert len(commands_in("default", CommandStatus.NEW)) == 2
    assert ann.post("/commands/default/retry", {}) == (200, {"changed": 0})
    assert [entry.reason for entry in AuditEntry.objects.order_by("id")] == ["", "why not", ""]


def test_what_waits_is_parked_and_goes_on(ann):
    submitted(2)
    task, _ = open_list()
    assert ann.post("/commands/default/stash", {"ids": [task.id]}) == (200, {"changed": 1})
    assert ann.post("/commands/default/stash", {}) == (200, {"changed": 2})
    counts = ann.get("/commands/default")[1]["counts"]
    assert (counts["new_stashed"], counts["open_stashed"]) == (2, 2)
    assert ann.post("/commands/default/unstash", {}) == (200, {"changed": 3})


def test_what_is_completed_is_put_away(ann):
    completed()
    assert ann.post("/commands/default/archive", {}) == (200, {"changed": 1})
    assert len(commands_in("default", CommandStatus.COMPLETED_ARCHIVE)) == 1


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
