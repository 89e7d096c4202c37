"""Groups of shell commands through gRPC: changed by those with the right alone. See tests/test_command_rights.py."""

import grpc
import pytest

from tasks_app.models import Scope

from ..console.store import add, ids
from .client import message, outcome, ref

NEW, OPEN = "commands/default/new", "commands/default/open"
WORDS = {True: "this needs a token with the scope commands", False: "start it with `up --commands`"}

# What changes commands: by its name, the scope that the call needs else, and the call itself.
CHANGES = {
    "create": (Scope.WORK, lambda client, task: client.create(NEW)),
    "delete": (Scope.WORK, lambda client, task: client.update(deleted=[task.id])),
    "replace": (
        Scope.WORK,
        lambda client, task: client.update(created=[message("Task", id=task.id, group="mail")], deleted=[task.id]),
    ),
    "claim": (Scope.WORK, lambda client, task: client.query(NEW, own_for_s=60)),
    "change one": (Scope.OPERATE, lambda client, task: client.bulk_set(ref(id=task.id), error="x")),
    "change a group": (Scope.OPERATE, lambda client, task: client.bulk_set(ref(group=NEW), error="x")),
    "move there": (Scope.OPERATE, lambda client, task: client.bulk_set(ref(group="mail"), group=OPEN)),
    "move away": (Scope.OPERATE, lambda client, task: client.bulk_set(ref(group=NEW), group="mail")),
}


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("name", CHANGES)
def test_commands_are_changed_by_nobody_without_the_right(connect, settings, name, is_on):
    settings.TASKSTORE_COMMANDS = is_on
    [task], _ = add(NEW, labels={"team": "red"}), add("mail")
    before = ids()
    scope, change = CHANGES[name]
    with pytest.raises(grpc.RpcError) as refused:
        change(connect(scope), task)
    code, text = outcome(refused.value)
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert "commands/default/" in text
    assert WORDS[is_on] in text
    assert ids() == before


@pytest.mark.parametrize("name", [name for name, (scope, _) in CHANGES.items() if scope is Scope.WORK])
def test_who_has_the_right_changes_them(connect, settings, name):
    settings.TASKSTORE_COMMANDS = True
    [task] = add(NEW)
    before = ids()
    CHANGES[name][1](connect(Scope.COMMANDS), task)
    assert ids() != before


@pytest.mark.parametrize("ref_of", [ref(group=NEW), ref(labels={"team": "red"})])
def test_operators_delete_commands_that_somebody_has_planted(connect, settings, ref_of):
    settings.TASKSTORE_COMMANDS = True
    add(NEW, labels={"team": "red"})
    connect(Scope.OPERATE).update(deleted=[ref_of])
    assert ids() == set()
