"""Who may change groups of shell commands, through each way in: those with the right, once it is switched on.

The calls of gRPC are in tests/grpc_api/test_command_rights.py.
"""

import ast
import hashlib
import json
from typing import Any

import pytest

from lab.testing import PROJECT
from tasks_app import bulk, schedules
from tasks_app.access.policy import Action, may, may_command
from tasks_app.bulk import Asked, Purge, Selection
from tasks_app.core.actors import Actor
from tasks_app.core.operations import GroupScope
from tasks_app.models import Scope, Task
from tasks_app.schedules import running

from .admin.pages import TASKS, fields_of
from .console.store import add, claim, ids
from .console.test_editing import opened
from .people import SUBMITTERS, make_user, one_of_each_role, signed_in
from .rest_api.api import ANN, Api, answered

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("commands_are_on")]

OPEN, NEW = "commands/default/open", "commands/default/new"
NO_SCOPE = "this needs a token with the scope commands"
NO_ROLE = "this needs the role commands or admin"
SWITCHED_OFF = "start it with `up --commands` or `serve --commands`, or set TASKSTORE_COMMANDS=1"


@pytest.fixture
def worker():
    return Api(Scope.WORK)


@pytest.fixture
def operator():
    return Api(Scope.OPERATE)


@pytest.fixture
def submitter():
    return Api(Scope.COMMANDS)


@pytest.fixture
def person():
    return signed_in(make_user("olaf", "operator", "see payloads"))


@pytest.fixture
def right_person():
    return signed_in(make_user("oda", "operator", "see payloads", "commands"))


def is_forbidden(answer, *words):
    """Whether a program was told that it may not, where, and what is missing; and nothing was changed."""
    status, body = answer
    assert status == 403
    return all(word in body["detail"] for word in (words or ("commands/default/", NO_SCOPE)))


def changes(task, lease):
    """What changes groups of commands over REST: an address and a body each."""
    return {
        "add": ("/update", {"clientid": ANN, "adds": [{"group": NEW}]}),
        "change": ("/update", {"clientid": ANN, "updates": [{"id": task.id, "data": "rm"}]}),
        "delete": ("/update", {"clientid": ANN, "deletes": [task.id]}),
        "move away": ("/update", {"clientid": ANN, "adds": [{"group": "mail", "id": task.id}], "deletes": [task.id]}),
        "renew": ("/update", {"clientid": 2624, "updates": [{"id": lease.id, "keep": True, "timespec": -60_000}]}),
        "claim": ("/claim", {"clientid": ANN, "group": OPEN}),
        "claim, and wait": ("/claim", {"clientid": ANN, "group": OPEN, "wait": 1_000}),
        "claim from several": ("/claim", {"clientid": ANN, "groups": ["mail", OPEN]}),
        "import": ("/import", {"group": NEW}),
        "import into": (f"/import?group={NEW}", {"group": "mail"}),
    }


@pytest.mark.parametrize("name", changes(Task(id=0), Task(id=0)))
def test_a_worker_changes_no_commands(worker, submitter, name):
    [task], _ = add(NEW), add(OPEN)
    [lease] = claim(OPEN)
    add(OPEN)
    before = ids()
    path, body = changes(task, lease)[name]
    assert is_forbidden(worker.post(path, body))
    assert ids() == before
    status, answer = submitter.post(path, body)
    assert (status, answer.get("error")) == (200, None)
    assert ids() != before


@pytest.mark.parametrize("name", changes(Task(id=0), Task(id=0)))
def test_nobody_changes_commands_where_they_are_switched_off(submitter, settings, name):
    settings.TASKSTORE_COMMANDS = False
    [task], _ = add(NEW), add(OPEN)
    [lease] = claim(OPEN)
    before = ids()
    assert is_forbidden(submitter.post(*changes(task, lease)[name]), "commands/default/", SWITCHED_OFF)
    assert ids() == before


def test_a_commit_that_names_one_command_among_others_does_nothing(worker):
    [task], [mail] = add(NEW), add("mail")
    assert is_forbidden(worker.post("/update", {"clientid": ANN, "deletes": [mail.id, task.id]}))
    assert ids() == {task.id, mail.id}


def test_the_groups_of_a_token_hold_for_commands_too():
    kim = Api(Scope.COMMANDS, ("commands/kim/*",))
    [task] = add(NEW)
    status, answer = kim.post("/update", {"clientid": ANN, "deletes": [task.id]})
    assert (status, answer["error"]["deletes"]) == (200, [task.id])
    assert kim.post("/update", {"clientid": ANN, "adds": [{"group": NEW}]})[0] == 403
    assert kim.post("/update", {"clientid": ANN, "adds": [{"group": "commands/kim/new"}]})[0] == 200


# ---- Operators' verbs over REST


def of_bulk(operator, verb, group, **more):
    seen = bulk.preview(Selection(group=group))
    bound = {"bound": seen.selection.bound, "as_of": seen.selection.as_of_ms}
    return operator.post(
        "/bulk", {"verb": verb, "group": group, "expected": seen.count, "typed": group, **bound, **more}
    )


def answered_with(answer):
    status, body = answer
    assert status < 300
    return body


@pytest.mark.parametrize("verb", ["requeue", "cancel"])
def test_no_operation_on_many_tasks_changes_commands(operator, verb):
    add(NEW, count=2)
    before = ids()
    assert is_forbidden(operator.post("/bulk/preview", {"verb": verb, "group": NEW}))
    assert is_forbidden(of_bulk(operator, verb, NEW))
    assert ids() == before


def test_an_operator_deletes_commands_that_somebody_has_planted(operator, monkeypatch):
    monkeypatch.setattr(bulk.starting, "AT_ONCE_S", 60)
    add(NEW, count=2)
    answered_with(of_bulk(operator, "purge", NEW))
    assert ids() == set()


def test_an_operation_on_several_groups_leaves_commands_alone(operator, monkeypatch):
    monkeypatch.setattr(bulk.starting, "AT_ONCE_S", 60)
    [command], [mail] = add(NEW, error="it failed"), add("mail", error="it failed")
    preview = answered_with(operator.post("/bulk/preview", {"verb": "requeue", "q": "group:*"}))
    seen = {name: preview[name] for name in ("bound", "as_of")}
    body = {"verb": "requeue", "q": "group:*", "expected": 2, **seen}
    operation = answered_with(operator.post("/bulk", body))
    assert command.id in ids()
    assert (operation["done"], operation["skipped"]) == (1, 1)
    assert mail.id not in ids()


# ---- Schedules


PLAN: dict[str, Any] = {"cron": "@hourly", "task": {"group": NEW, "data": "{}"}}


def test_schedules_that_add_commands_are_made_by_nobody_without_the_right(operator):
    assert is_forbidden(answered(operator.http.generic("PUT", "/schedules/digest", json.dumps(PLAN))))
    assert ids() == set()


def test_an_operator_deletes_a_schedule_that_adds_commands(operator):
    a_schedule()
    assert answered(operator.http.generic("DELETE", "/schedules/digest", ""))[0] == 200
    assert ids() == set()


@pytest.mark.parametrize("verb", ["run", "pause", "resume"])
def test_schedules_that_add_commands_are_changed_by_nobody_without_the_right(operator, verb):
    a_schedule()
    before = ids()
    assert is_forbidden(answered(operator.http.generic("POST", f"/schedules/digest/{verb}", "{}")))
    assert ids() == before


@pytest.mark.parametrize("way", ["add", "change", "move", "move as it is"])
def test_no_task_is_made_a_schedule_that_adds_commands(worker, way):
    """A schedule is a task, which somebody may write with any other way in."""
    data = json.dumps({"cron": "every 1s", "due": 1, "task": {"group": NEW}}).replace("commands", "\\u0063ommands")
    [harmless] = add("schedules", data=b"{}")
    [drafted] = add("mail", data=data.encode())
    updates: dict[str, dict[str, Any]] = {
        "add": {"adds": [{"group": "schedules", "data": data}]},
        "change": {"updates": [{"id": harmless.id, "data": data}]},
        "move": {"adds": [{"group": "schedules", "data": data, "id": drafted.id}], "deletes": [drafted.id]},
        "move as it is": {"adds": [{"group": "schedules", "id": drafted.id, "keep": True}], "deletes": [drafted.id]},
    }
    assert is_forbidden(worker.post("/update", {"clientid": ANN, **updates[way]}))
    assert ids() == {harmless.id, drafted.id}


@pytest.mark.parametrize("depth", [400, 100_000])
def test_no_task_is_made_a_schedule_by_data_that_is_too_deep_to_be_looked_into(worker, depth):
    """Where the stack has more room left, as in a server's scheduler, it might be understood."""
    deep = "[" * depth + "]" * depth
    data = f'{{"task": {deep}, "cron": "every 1s", "due": 1, "task": {{"group": "{NEW}"}}}}'
    assert is_forbidden(
        worker.post("/update", {"clientid": ANN, "adds": [{"group": "schedules", "data": data}]}), "commands/"
    )
    assert ids() == set()


def test_a_schedule_adds_no_commands_where_they_are_switched_off(settings):
    settings.TASKSTORE_COMMANDS = False
    late = json.dumps(PLAN | {"cron": "every 1s", "catch_up": "latest", "due": 1_000}).encode()
    add("schedules", data=late, labels={"name": "digest"})
    running.settle(claim("schedules")[0])
    assert not Task.objects.group(NEW, owned=True)
    [schedule] = schedules.schedules()
    assert schedule.paused
    assert SWITCHED_OFF in schedule.paused.reason


def a_schedule():
    plan = schedules.SchedulePlan(cron="@hourly", task=schedules.PlannedTask(group=NEW))
    return schedules.put("digest", plan, Actor("ada"))[0]


# ---- The console and Django's admin


def on_pages(client, task, lease):
    """What changes groups of commands in the console: an address and what is sent."""
    bound = {"expected": "1", "bound": str(Task.objects.newest_id()), "as_of": str(Task.objects.now_ms())}
    schedule = {"cron": "@daily", "zone": "UTC", "catch_up": "skip", "adds": "task", "group": NEW}
    line = json.dumps({"group": NEW})
    return {
        "add": ("add", {"group": NEW, "delay": "0", "unit": "seconds", "priority": "0"}),
        "import": ("import", {"text": line, "digest": hashlib.sha256(f"\n{line}".encode()).hexdigest()}),
        "edit": (f"task/{task.id}/edit", opened(client, task) | {"content": "rm", "confirmed": "1"}),
        "give back": (f"task/{lease.id}/give-back", {}),
        "requeue": ("requeue", {"id": task.id, **bound}),
        "move": ("move", {"id": task.id, "to": "mail", "create": "1", **bound}),
        "edit many": ("edit", {"id": task.id, "set_error": "1", "error": "x", **bound}),
        "schedule": ("schedules/add", {"name": "digest", **schedule}),
    }


@pytest.mark.parametrize("page", ["add", "import", "edit", "give back", "requeue", "move", "edit many", "schedule"])
def test_on_pages_nobody_changes_commands_without_the_right(person, right_person, page):
    [task], _ = add(NEW, error="it failed"), add(OPEN)
    [lease] = claim(OPEN)
    before = ids()
    assert person.get("/console/confirm", {"verb": "move", "id": task.id}).status_code == 403
    address, fields = on_pages(person, task, lease)[page]
    answer = person.post(f"/console/{address}", fields)
    assert answer.status_code == 403
    assert "commands/default/" in answer.content.decode()
    assert NO_ROLE in answer.content.decode()
    assert ids() == before
    assert right_person.post(f"/console/{address}", fields).status_code == 302
    assert ids() != before


@pytest.mark.parametrize("page", ["pause", "resume"])
def test_on_pages_nobody_pauses_commands_without_the_right(person, right_person, page):
    add(NEW)
    assert person.post(f"/console/{page}", {"name": NEW}).status_code == 403
    assert right_person.post(f"/console/{page}", {"name": NEW}).status_code == 302


def test_on_pages_operators_delete_what_somebody_has_planted(person):
    [task] = add(NEW)
    a_schedule()
    bound = {"expected": "1", "bound": str(Task.objects.newest_id()), "as_of": str(Task.objects.now_ms())}
    assert person.get("/console/confirm", {"verb": "purge", "id": task.id}).status_code == 200
    assert person.post("/console/purge", {"id": task.id, **bound}).status_code == 302
    assert person.post("/console/schedules/digest/delete", {}).status_code == 302
    assert ids() == set()


@pytest.mark.parametrize("verb", ["pause", "run", "resume"])
def test_on_pages_nobody_changes_schedules_of_commands_without_the_right(person, right_person, verb):
    a_schedule()
    assert person.post(f"/console/schedules/digest/{verb}", {}).status_code == 403
    assert right_person.post(f"/console/schedules/digest/{verb}", {}).status_code == 302


def test_on_pages_nobody_takes_back_what_was_done_to_commands_without_the_right(person, right_person):
    add(NEW, count=2)
    seen = bulk.preview(Selection(group=NEW))
    purged = bulk.start(Asked(action=Purge(), selection=seen.selection, expected=2, typed=NEW), Actor("ada"))
    assert person.post(f"/console/operations/{purged.pk}/undo", {}).status_code == 403
    assert ids() == set()
    assert right_person.post(f"/console/operations/{purged.pk}/undo", {}).status_code == 302
    assert len(ids()) == 2


def test_in_the_admin_nobody_changes_commands_without_the_right(person, right_person):
    [task] = add(NEW, error="it failed")
    before, address = ids(), f"{TASKS}{task.id}/change/"
    for client, status in ((person, 403), (right_person, 302)):
        assert client.post(address, {**fields_of(client, address), "content": "rm"}).status_code == status
        assert (ids() == before) is (status == 403)


@pytest.mark.parametrize("way", ["requeue", "move"])
def test_where_the_admin_leads_to_nobody_changes_commands_without_the_right(person, right_person, way):
    [task] = add(NEW, error="it failed")
    for client, status in ((person, 403), (right_person, 200)):
        answer = client.post(TASKS, {"action": way, "_selected_action": [task.id]})
        assert client.get(answer.url).status_code == status
    assert ids() == {task.id}


# ---- Who has the right


def test_the_right_is_that_of_a_role_beside_another_one(settings):
    people = one_of_each_role()
    assert {role for role, user in people.items() if may_command(user)} == SUBMITTERS
    settings.TASKSTORE_COMMANDS = False
    assert not any(map(may_command, people.values()))


def test_the_right_is_that_of_one_scope(db):
    tokens = [Api(scope).token for scope in Scope]
    assert [token.scope for token in tokens if may_command(token)] == [Scope.COMMANDS]
    assert may(Api(Scope.COMMANDS).token, Action.WORK)


def test_what_only_resembles_these_groups_is_not_forbidden():
    scope = GroupScope(no_commands_because="it is off")
    names = ("commands/", "commands/a", "commands", "command/a", "jobs/commands/", "")
    assert [name for name in names if scope.why_forbidden(name)] == ["commands/", "commands/a"]


WAYS_IN = ("admin", "bulk", "console", "grpc_api", "rest_api")


@pytest.mark.once
@pytest.mark.parametrize("way", WAYS_IN)
def test_every_change_through_a_way_in_says_for_whom(way):
    """A commit or a claim without a scope would do what nobody may; so would one with the groups of a token alone."""
    calls = [
        (path.name, node.lineno)
        for path in (PROJECT / "tasks_app" / way).rglob("*.py")
        for node in every_but_tried(ast.parse(path.read_text()))
        if is_unheld(node)
    ]
    assert calls == []


def every_but_tried(tree):
    """All nodes but those of an operation that is only looked at."""
    if isinstance(tree, ast.Call) and getattr(tree.func, "id", "") == "validate":
        return
    yield tree
    for child in ast.iter_child_nodes(tree):
        yield from every_but_tried(child)


def is_unheld(node):
    if isinstance(node, ast.Attribute) and node.attr == "group_scope":
        return True
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    verbs = ("commit", "acommit", "claim", "aclaim", "Commit", "Update", "Claim", "Query", "undo", "give_back")
    is_asked = {"scope"}.isdisjoint(keyword.arg for keyword in node.keywords)
    return name in verbs and is_asked and bool(node.keywords)
