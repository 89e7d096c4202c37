"""A project over REST: out of one store, and into another."""

import json

import pytest

from tasks_app.models import AuditEntry, Scope, Task
from taskstore.types.command_record import CommandStatus
from tests.command_lists.commands import commands_in, submitted

from .api import Api, answered

pytestmark = pytest.mark.django_db


@pytest.fixture
def api(settings):
    settings.TASKSTORE_COMMANDS = True
    return Api(Scope.COMMANDS)


def line(id="5_0", **fields):
    return json.dumps({"status": "new", "command": {"id": id, "cmd": "true", **fields}})


def test_what_is_exported_can_be_imported_elsewhere(api):
    made = submitted(3, "nightly")
    response = api.http.get("/commands/nightly/export")
    assert response["Content-Type"] == "application/x-ndjson"
    body = response.getvalue()
    assert [json.loads(each)["command"]["id"] for each in body.splitlines()] == [command.id for command in made]
    answer = {"commands": 3, "lists": 0, "there_already": 0}
    assert api.send("/commands/daily/import", body, "application/x-ndjson") == (200, answer)
    assert commands_in("daily", CommandStatus.NEW) == made
    again = {"commands": 0, "lists": 0, "there_already": 3}
    assert api.send("/commands/daily/import", body) == (200, again)
    assert [(entry.action, entry.done) for entry in AuditEntry.objects.order_by("id")] == [("import", 3), ("import", 0)]


def test_an_import_takes_the_permission_and_a_server_that_has_it_on(api, settings):
    assert Api(Scope.OPERATE).send("/commands/nightly/import", line())[0] == 403
    settings.TASKSTORE_COMMANDS = False
    status, answer = api.send("/commands/nightly/import", line())
    assert status == 403
    assert "TASKSTORE_COMMANDS" in answer["detail"]
    assert not Task.objects.exists()


def test_a_token_for_other_groups_reaches_no_part_of_a_project(settings):
    settings.TASKSTORE_COMMANDS = True
    submitted(1, "nightly")
    part = Api(Scope.COMMANDS, ("commands/nightly/new",))
    assert answered(part.http.get("/commands/nightly/export"))[0] == 403
    assert part.send("/commands/nightly/import", line())[0] == 403
    whole = Api(Scope.COMMANDS, ("commands/nightly/*",))
    assert whole.http.get("/commands/nightly/export").status_code == 200
    assert whole.send("/commands/nightly/import", line())[0] == 200
    assert whole.send("/commands/daily/import", line())[0] == 403
