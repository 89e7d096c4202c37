"""What may be planned: by every way in which a task appears now or later, in every protected group, with every scope.

Whoever may not add a task directly may not plan it either, nor plan what would plan it.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tasks_app import bulk, schedules
from tasks_app.access import accounts, tokens
from tasks_app.access.policy import actor_of, scope_of
from tasks_app.access.rights import refresh
from tasks_app.bulk import Asked, Purge, Selection
from tasks_app.control import batches as control
from tasks_app.core.actors import Actor
from tasks_app.database import dialect_of
from tasks_app.grpc_api.servicer import update
from tasks_app.models import Batch, BatchPlan, RightsHolder, Scope, Task, Token
from tasks_app.schedules import running
from tasks_app.writer.housekeeping import close_batches
from taskstore.errors import Forbidden, InvalidInput
from taskstore.masstasker.masstasker_pb2 import Task as Message
from taskstore.masstasker.masstasker_pb2 import UpdateRequest
from taskstore.types.batches import BatchesRequest
from taskstore.types.tasks import Change, NewTask

from .people import make_user
from .rest_api.api import ANN, Api, answered

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("commands_are_on")]

COMMANDS, SECRET = "commands/zz/new", "secret"
REACH = ("mail", "dead", "schedules")  # Of the tokens that are limited to some groups.


def schedule_of(**plan: Any) -> dict[str, Any]:
    data = json.dumps({"cron": "every 1s", "due": 1, **plan})
    return {"group": "schedules", "data": data, "labels": {"name": "planted"}}


# What is added, the group that nobody without the right may reach by it, and the groups that the token is limited to.
TARGETS: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "a command": ({"group": COMMANDS}, COMMANDS, ()),
    "a schedule of commands": (schedule_of(task={"group": COMMANDS}), COMMANDS, ()),
    "a task out of reach": ({"group": SECRET}, SECRET, REACH),
    "a schedule of tasks out of reach": (schedule_of(task={"group": SECRET}), SECRET, REACH),
    "a schedule of jobs out of reach": (schedule_of(job={"function": "a.b", "queue": "x"}), "jobs/x", REACH),
    "a schedule without a queue": (schedule_of(job={"function": "a.b", "queue": None}), "jobs/default", REACH),
}
SCOPES = (Scope.WORK, Scope.OPERATE, Scope.COMMANDS)


def post(path: str, **body: Any) -> Callable[[Api, dict[str, Any]], tuple[int, Any]]:
    """Send this body, in which ADD stands for what is to be added."""

    def send(api: Api, add: dict[str, Any]) -> tuple[int, Any]:
        return api.post(path, {"clientid": ANN, **json.loads(json.dumps(body).replace('"ADD"', json.dumps(add)))})

    return send


def moved(api: Api, add: dict[str, Any]) -> tuple[int, Any]:
    [task] = Task.objects.commit(owner=0, adds=[NewTask(group="mail")])
    return api.post("/update", {"clientid": ANN, "adds": [{**add, "id": task.id}], "deletes": [task.id]})


def imported(api: Api, add: dict[str, Any]) -> tuple[int, Any]:
    return api.send("/import", json.dumps(add), "application/x-ndjson")


def by_grpc(api: Api, add: dict[str, Any]) -> tuple[int, Any]:
    message = Message(group=add["group"], labels=add.get("labels", {}))
    message.data.value = add.get("data", "").encode()
    try:
        async_to_sync(update)(UpdateRequest(created=[message]), api.token)
    except Forbidden:
        return 403, None
    return 200, None


NESTED = {"adds": [{"group": "mail"}], "then": {"adds": [{"group": "mail"}], "on_failure": ["ADD"]}}
MEMBER = {"group": "mail"}
WAYS: dict[str, Callable[[Api, dict[str, Any]], tuple[int, Any]]] = {
    "add": post("/update", adds=["ADD"]),
    "move": moved,
    "import": imported,
    "gRPC": by_grpc,
    "batch": post("/batches", adds=["ADD"]),
    "then at once": post("/batches", then=["ADD"]),
    "then on hold": post("/batches", hold=True, then=["ADD"]),
    "then later": post("/batches", adds=[MEMBER], then=["ADD"]),
    "on failure": post("/batches", adds=[MEMBER], on_failure=["ADD"]),
    "then of then": post("/batches", adds=[MEMBER], then={"adds": [MEMBER], "then": ["ADD"]}),
    "deep": post("/batches", adds=[MEMBER], then={"adds": [MEMBER], "then": NESTED}),
    "first of a plan": post("/batches", adds=[MEMBER], then={"adds": ["ADD"], "then": [MEMBER]}),
}


def planted() -> bool:
    """Whether there is anything that is or becomes what was to be added."""
    groups = set(Task.objects.values_list("group", flat=True)) - {"mail"}
    return bool(groups) or BatchPlan.objects.exists()


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("way", WAYS)
def test_nobody_plans_what_they_may_not_add(way, target, scope):
    add, group, reach = TARGETS[target]
    status, answer = WAYS[way](Api(scope, reach), add)
    is_allowed = group == COMMANDS and scope == Scope.COMMANDS
    assert planted() == is_allowed, answer
    assert (status == 403) != is_allowed, answer


@pytest.mark.parametrize("scope", [Scope.OPERATE])
@pytest.mark.parametrize("target", TARGETS)
def test_no_requeue_takes_a_task_back_to_where_one_may_not_add(target, scope):
    add, _, reach = TARGETS[target]
    new = NewTask(group=add["group"], data=add.get("data", "").encode(), labels=add.get("labels", {}))
    Task.objects.commit(owner=0, adds=[new])
    [claimed] = Task.objects.claim(add["group"], owner=1)
    [dead] = Task.objects.commit(owner=1, updates=[Change(id=claimed.id, group="dead", error="no", release=True)])
    api = Api(scope, reach)
    seen = bulk.preview(Selection(group="dead"))
    body = {"verb": "requeue", "group": "dead", "expected": 1}
    api.post("/bulk", {**body, "bound": seen.selection.bound, "as_of": seen.selection.as_of_ms})
    assert [task.id for task in Task.objects.all()] == [dead.id]


@pytest.mark.parametrize("target", ["a command", "a schedule of commands"])
def test_no_undo_brings_back_what_one_may_not_add(target):
    add, *_ = TARGETS[target]
    Task.objects.commit(owner=0, adds=[NewTask(group=add["group"], data=add.get("data", "").encode())])
    seen = bulk.preview(Selection(group=add["group"]))
    asked = Asked(action=Purge(), selection=seen.selection, expected=1, typed=add["group"])
    operation = bulk.start(asked, Actor("token:Ann"))
    Api(Scope.OPERATE).post(f"/operations/{operation.pk}/undo", {})
    assert not Task.objects.exists()


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize(("group", "reach"), [(COMMANDS, ()), (SECRET, ("mail",))])
def test_no_schedule_is_put_that_adds_what_one_may_not_add(scope, group, reach):
    plan = {"cron": "@hourly", "task": {"group": group}}
    status, _ = answered(Api(scope, reach).http.generic("PUT", "/schedules/s", json.dumps(plan)))
    assert (status, planted()) == (403, False)


def test_nobody_adds_commands_to_what_another_batch_adds():
    batch, _ = Task.objects.create_batch(owner=1, hold=True)
    body = {"clientid": ANN, "commands": [{"cmd": "true"}], "after": batch.id}
    assert Api(Scope.WORK).post("/commands/zz", body)[0] == 403
    assert not planted()
    assert Api(Scope.COMMANDS).post("/commands/zz", body)[0] == 201
    assert BatchPlan.objects.get().holder == "token:Ann"


# ---- Rights that were there, and are lost


def a_batch(api: Api, **more: Any) -> dict[str, Any]:
    status, answer = api.post("/batches", {"clientid": ANN, "adds": [MEMBER], **more})
    assert status in (200, 201)
    return {**answer["batch"], "task": answer["tasks"][0]["id"]}


def end(task_id: int) -> None:
    Task.objects.commit(owner=ANN, deletes=[task_id])


def groups() -> list[str]:
    return sorted(Task.objects.values_list("group", flat=True))


def housekeep() -> None:
    dialect = dialect_of("default")
    dialect.drive(close_batches(dialect))


def told(batch: dict[str, Any]) -> Any:
    return shown(batch["id"])


def shown(batch_id: int) -> Any:
    return control.batch_of(batch_id)


def test_what_a_revoked_token_has_planned_is_held_and_goes_on_with_a_new_token_of_its_name():
    api = Api(Scope.COMMANDS)
    batch = a_batch(api, then=[{"group": COMMANDS}], on_failure=[{"group": "mail"}])
    tokens.revoke(api.token)
    assert (told(batch).state, told(batch).lost_rights) == ("held", True)
    assert 'no token "Ann" is valid any more' in told(batch).problem
    end(batch["task"])
    housekeep()
    assert (groups(), told(batch).state, told(batch).closed_at_ms) == ([], "held", None)
    tokens.create("Ann", Scope.WORK)
    housekeep()
    assert (groups(), told(batch).state, told(batch).lost_rights) == ([], "held", True)
    assert "token:Ann may not add commands" in told(batch).problem
    tokens.create("Ann", Scope.COMMANDS)
    housekeep()
    assert (groups(), told(batch).state, told(batch).problem) == ([COMMANDS], "succeeded", "")


def test_a_rotation_of_the_token_changes_nothing():
    api = Api(Scope.COMMANDS)
    batch = a_batch(api, then=[{"group": COMMANDS}])
    tokens.create("Ann", Scope.COMMANDS)
    tokens.revoke(api.token)
    end(batch["task"])
    assert (groups(), told(batch).state) == ([COMMANDS], "succeeded")


def test_what_comes_on_failure_waits_for_rights_too():
    api = Api(Scope.WORK)
    batch = a_batch(api, on_failure=[{"group": "alarm"}])
    tokens.revoke(api.token)
    Task.objects.commit(owner=ANN, updates=[Change(id=batch["task"], group="dead", error="no")])
    assert (groups(), told(batch).state) == (["dead"], "held")
    boss = Api(Scope.OPERATE)
    assert boss.post(f"/batches/{batch['id']}/release", {})[0] == 200
    assert groups() == ["alarm", "dead"]
    Api(Scope.OPERATE).post(f"/batches/{batch['id']}/release", {})
    assert groups() == ["alarm", "dead"]


def actor(name: str, scope: Scope, *reach: str) -> Actor:
    return actor_of(tokens.create(name, scope, reach)[0])


def test_an_operator_takes_a_batch_over_with_their_own_rights():
    api = Api(Scope.COMMANDS)
    batch = a_batch(api, then={"adds": [{"group": COMMANDS}], "then": [{"group": COMMANDS}]}, hold=True)
    tokens.revoke(api.token)
    end(batch["task"])
    with pytest.raises(Forbidden, match="Only an operator can take the batch over"):
        control.release(batch["id"], actor("w", Scope.WORK))
    with pytest.raises(Forbidden, match=r"You can't take the batch over: .*needs a token with the scope commands"):
        control.release(batch["id"], actor("boss", Scope.OPERATE))
    assert (told(batch).hold, set(BatchPlan.objects.values_list("holder", flat=True))) == (True, {"token:Ann"})
    control.release(batch["id"], actor_of(make_user("ada", "admin")))
    assert (groups(), told(batch).state) == ([COMMANDS], "succeeded")
    assert set(BatchPlan.objects.values_list("holder", flat=True)) == {"ada"}


def test_an_operator_takes_over_what_a_narrower_token_of_the_name_may_not_add():
    batch = a_batch(Api(Scope.WORK, ("mail", "end")), then=[{"group": "end"}])
    Token.objects.update(groups=["mail"])
    refresh()
    end(batch["task"])
    assert 'token:Ann: This token has no access to the group "end".' in told(batch).problem
    assert told(batch).lost_rights
    assert control.batches_in(BatchesRequest()).batches[0].lost_rights
    control.release(batch["id"], actor("boss", Scope.OPERATE))
    assert (groups(), told(batch).state, told(batch).lost_rights) == (["end"], "succeeded", False)


def test_a_holder_of_whom_nothing_is_known_has_lost_the_rights_until_an_operator_takes_over():
    batch = a_batch(Api(Scope.WORK), then=[{"group": "end"}])
    RightsHolder.objects.all().delete()
    end(batch["task"])
    assert (told(batch).problem, told(batch).lost_rights) == ("token:Ann is not known any more", True)
    control.release(batch["id"], actor("boss", Scope.OPERATE))
    assert (groups(), told(batch).state) == (["end"], "succeeded")


def test_what_the_server_does_not_allow_is_no_loss_of_rights(settings):
    batch = a_batch(Api(Scope.COMMANDS), then=[{"group": COMMANDS}])
    settings.TASKSTORE_COMMANDS = False
    end(batch["task"])
    assert "shell commands are off on this server" in told(batch).problem
    assert not told(batch).lost_rights
    settings.TASKSTORE_COMMANDS = True
    housekeep()
    assert (groups(), told(batch).state) == ([COMMANDS], "succeeded")


def test_only_the_parts_that_are_held_are_taken_over():
    api = Api(Scope.COMMANDS)
    worker = tokens.create("w", Scope.WORK)[0]
    batch, [task] = Task.objects.create_batch(
        owner=1, adds=[NewTask(group="mail")], then=NewTask(group="end"), scope=scope_of(worker)
    )
    api.post("/commands/zz", {"clientid": ANN, "commands": [{"cmd": "true"}], "after": batch.id})
    tokens.revoke(api.token)
    control.release(batch.id, actor_of(make_user("ada", "admin")))
    assert sorted(BatchPlan.objects.values_list("holder", flat=True)) == ["ada", "token:w"]
    end(task.id)
    assert groups() == [COMMANDS, "end"]


@pytest.mark.parametrize("failed_ends", [True, False])
def test_what_comes_on_failure_is_owed_until_it_can_be_added(failed_ends):
    api = Api(Scope.WORK, ("mail", "end", "alarm"))
    batch = a_batch(api, then=[{"group": "end"}], on_failure=[{"group": "alarm"}], failed_ends=failed_ends)
    Token.objects.update(groups=["mail", "end"])
    refresh()
    [dead] = Task.objects.commit(owner=ANN, updates=[Change(id=batch["task"], group="dead", error="no")])
    [back] = Task.objects.commit(owner=ANN, updates=[Change(id=dead.id, group="mail", error="")])
    end(back.id)
    housekeep()
    assert (groups(), told(batch).state) == ([], "held")
    assert "alarm" in told(batch).problem
    Token.objects.update(groups=["mail", "end", "alarm"])
    refresh()
    housekeep()
    assert (groups(), told(batch).state) == (["alarm", "end"], "succeeded")


def test_what_is_owed_does_not_release_a_held_batch():
    api = Api(Scope.WORK)
    batch = a_batch(api, then=[{"group": "end"}], on_failure=[{"group": "alarm"}], hold=True)
    tokens.revoke(api.token)
    [dead] = Task.objects.commit(owner=ANN, updates=[Change(id=batch["task"], group="dead", error="no")])
    end(dead.id)
    tokens.create("Ann", Scope.WORK)
    housekeep()
    assert (groups(), told(batch).state, told(batch).hold) == (["alarm"], "held", True)


def test_nobody_is_held_up_by_the_rights_of_those_who_plan_nothing():
    api = Api(Scope.WORK)
    batch = a_batch(api)
    tokens.revoke(api.token)
    end(batch["task"])
    assert told(batch).state == "succeeded"


def test_what_is_planned_later_has_the_rights_of_whoever_planned_it():
    api = Api(Scope.COMMANDS)
    batch, [task] = Task.objects.create_batch(owner=1, adds=[NewTask(group="mail")], then=NewTask(group="end"))
    body = {"clientid": ANN, "commands": [{"cmd": "true"}], "after": batch.id}
    assert api.post("/commands/zz", body)[0] == 201
    tokens.revoke(api.token)
    end(task.id)
    assert (groups(), shown(batch.id).state) == ([], "held")
    tokens.create("Ann", Scope.COMMANDS)
    housekeep()
    assert groups() == [COMMANDS, "end"]


def test_a_closed_account_holds_what_it_has_planned():
    ada = make_user("ada", "admin")
    batch, [task] = Task.objects.create_batch(
        owner=1, adds=[NewTask(group="mail")], then=NewTask(group="end"), scope=scope_of(ada)
    )
    make_user("bob", "admin")
    accounts.close(ada)
    end(task.id)
    assert 'the account "ada" is closed' in shown(batch.id).problem
    accounts.open_again(ada)
    housekeep()
    assert groups() == ["end"]


def a_schedule(api: Api) -> None:
    plan = {"cron": "every 1s", "catch_up": "latest", "task": {"group": "mail"}}
    assert answered(api.http.generic("PUT", "/schedules/s", json.dumps(plan)))[0] == 200


def due() -> None:
    for task in Task.objects.claim("schedules", owner=1, limit=10):
        running.settle(task)


def made_due() -> None:
    [task] = Task.objects.filter(group="schedules")
    record = json.loads(bytes(task.data)) | {"due": 1_000}
    Task.objects.commit(owner=0, updates=[Change(id=task.id, data=json.dumps(record).encode(), release=True)])


def test_a_schedule_of_a_revoked_token_is_held_until_an_operator_takes_it_over():
    api = Api(Scope.OPERATE)
    a_schedule(api)
    tokens.revoke(api.token)
    made_due()
    due()
    assert groups() == ["schedules"]
    held: Any = schedules.schedules()[0]
    assert held.paused.by == "store:rights"
    assert 'no token "Ann" is valid' in held.paused.reason
    schedules.resume("s", actor_of(make_user("ada", "admin")))
    due()
    assert groups() == ["mail", "schedules"]
    [task] = Task.objects.filter(group="schedules")
    assert task.labels["rights_of"] == "ada"


def test_a_schedule_is_held_by_a_narrower_token_and_does_not_flap():
    api = Api(Scope.OPERATE)
    a_schedule(api)
    Token.objects.update(groups=["schedules"])
    for _ in range(3):
        schedules.keep_rights({})
    [task] = Task.objects.filter(group="schedules")
    assert schedules.schedules()[0].state == "paused"
    for _ in range(3):
        schedules.keep_rights({})
    assert Task.objects.get().id == task.id


def test_an_operators_pause_of_a_held_schedule_stays_when_the_rights_are_back():
    api = Api(Scope.OPERATE)
    a_schedule(api)
    tokens.revoke(api.token)
    schedules.keep_rights({})
    paused: Any = schedules.pause("s", Actor("ada"))
    assert paused.paused.by == "ada"
    tokens.create("Ann", Scope.OPERATE)
    schedules.keep_rights({})
    assert schedules.schedules()[0].state == "paused"


def test_a_paused_schedule_whose_rights_are_gone_is_taken_over_when_it_is_resumed():
    api = Api(Scope.OPERATE)
    a_schedule(api)
    schedules.pause("s", Actor("ada"))
    tokens.revoke(api.token)
    schedules.resume("s", actor_of(make_user("ada", "admin")))
    schedules.keep_rights({})
    assert schedules.schedules()[0].state == "on"
    assert Task.objects.get().labels["rights_of"] == "ada"


def test_the_undo_of_a_purge_leaves_a_schedule_its_rights():
    a_schedule(Api(Scope.OPERATE))
    boss = actor("boss", Scope.OPERATE)
    seen = bulk.preview(Selection(group="schedules"))
    asked = Asked(action=Purge(), selection=seen.selection, expected=1, typed="schedules")
    bulk.undo(bulk.start(asked, boss), boss)
    assert Task.objects.get().labels["rights_of"] == "token:Ann"


def test_an_undo_that_may_restore_nothing_leaves_it_to_others():
    add, *_ = TARGETS["a schedule of commands"]
    Api(Scope.COMMANDS).post("/update", {"clientid": ANN, "adds": [add]})
    boss = actor("boss", Scope.OPERATE)
    seen = bulk.preview(Selection(group="schedules"))
    asked = Asked(action=Purge(), selection=seen.selection, expected=1, typed="schedules")
    purged = bulk.start(asked, boss)
    bulk.undo(purged, boss)
    assert not Task.objects.exists()
    bulk.undo(purged, actor_of(make_user("ada", "admin")))
    assert Task.objects.get().labels["rights_of"] == "token:Ann"


def test_no_program_gets_the_name_of_a_servers_token():
    with pytest.raises(InvalidInput, match='must not begin with "this machine"'):
        tokens.create("this machine x", Scope.WORK)


@pytest.mark.parametrize("has_holder", [True, False])
def test_a_schedule_of_commands_waits_until_they_are_on_again(settings, has_holder):
    add, *_ = TARGETS["a schedule of commands"]
    if has_holder:
        Api(Scope.COMMANDS).post("/update", {"clientid": ANN, "adds": [add]})
    else:
        data = add["data"].encode()
        Task.objects.commit(owner=0, adds=[NewTask(group="schedules", data=data, labels=add["labels"])])
    settings.TASKSTORE_COMMANDS = False
    schedules.keep_rights({})
    assert schedules.schedules()[0].state == "on"  # Another server may allow them, so it is held only when it is due.
    due()
    held: Any = schedules.schedules()[0]
    assert held.paused.by == "store:rights"
    assert "shell commands are off on this server" in held.paused.reason
    schedules.keep_rights({})
    assert schedules.schedules()[0].state == "paused"
    settings.TASKSTORE_COMMANDS = True
    schedules.keep_rights({})
    assert schedules.schedules()[0].state == "on"


def test_each_schedule_is_read_once_and_no_more_of_it_than_a_record_may_have():
    api = Api(Scope.WORK)
    a_schedule(Api(Scope.OPERATE))
    api.post("/update", {"clientid": ANN, "adds": [{"group": "schedules", "data": "x" * 1_000_000}]})
    known: Any = {}
    with CaptureQueriesContext(connection) as first:
        schedules.keep_rights(known)
    assert [planned and planned.group for _, planned in sorted(known.items())] == ["mail", None]
    with CaptureQueriesContext(connection) as second:
        schedules.keep_rights(known)
    reads = [sum("data" in query["sql"] for query in each) for each in (first, second)]
    assert reads == [1, 0]
    operator = Actor("ada").operator()
    Task.objects.commit(owner=0, deletes=Task.objects.values_list("id", flat=True), operator=operator)
    schedules.keep_rights(known)
    assert known == {}


def test_a_schedule_goes_on_by_itself_when_its_rights_are_back():
    api = Api(Scope.OPERATE)
    a_schedule(api)
    tokens.revoke(api.token)
    schedules.keep_rights({})
    assert schedules.schedules()[0].state == "paused"
    tokens.create("Ann", Scope.OPERATE)
    schedules.keep_rights({})
    assert schedules.schedules()[0].state == "on"


def test_a_schedule_has_the_rights_of_whoever_wrote_it_whatever_they_say():
    add = {"group": "schedules", "data": "{}", "labels": {"name": "s", "rights_of": "ada"}}
    _, answer = Api(Scope.WORK).post("/update", {"clientid": ANN, "adds": [add]})
    [task] = answer["tasks"]
    assert task["labels"] == {"name": "s", "rights_of": "token:Ann"}
    change = {"id": task["id"], "keep": True, "labels": {"name": "s"}}
    _, answer = Api(Scope.WORK).post("/update", {"clientid": ANN, "updates": [change]})
    assert answer["tasks"][0]["labels"]["rights_of"] == "token:Ann"


def test_what_is_known_of_rights_follows_tokens_and_accounts():
    a_batch(Api(Scope.WORK, ("mail", "end")), then=[{"group": "end"}])
    [known] = RightsHolder.objects.all()
    assert (known.name, json.loads(known.groups), known.commands, known.lost) == (
        "token:Ann", ["mail", "end"], 0, "",
    )  # fmt: skip
    assert Batch.objects.counted().get().told().problem == ""
