"""Commands that change many tasks by operations of the server."""

import pytest

from tasks_app import bulk
from tasks_app.client import Client, NewTask


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("tasks_app.client.command_line.changing.LOOK_EVERY_S", 0.01)


def test_it_shows_what_it_would_do_and_asks(command, ann, typing):
    ann.commit(adds=[NewTask(group="mail", error="no") for _ in range(3)])
    ann.claim("mail")
    asked = ("requeue", "group:mail", "state:failed", "--reason", "a test")
    typing("n\n")
    told = command(*asked)
    assert (told.code, told.err) == (1, "go on? [y/N] taskstore: nothing was changed\n")
    assert told.words[:4] == [
        "requeue group:mail state:failed",
        "tasks 3 in mail",
        "ready 2",
        "claimed 1 by workers: they are skipped",
    ]
    typing("y\n")
    told = command(*asked)
    assert told.code == 0
    assert told.words[-3:] == [
        "done 2, skipped 1, failed 0",
        "skipped, claimed by a worker: 1",
        f"to take it back: undo {ann.operations().operations[0].id}",
    ]
    assert ann.stats().groups[0].failed == 1
    assert ann.operations().operations[0].reason == "a test"
    typing("")
    assert command("requeue", "group:mail", "state:failed", stdin="").code == 1


def test_tasks_are_moved_by_their_ids(command, ann):
    first, _, third = (ann.add("mail", str(number)) for number in range(3))
    asked = ("move", str(first.id), str(third.id), "--to", "reports", "--yes")
    assert command(*asked).code == 2
    [operation] = command(*asked, "--create", "--json").records
    assert (operation["verb"], operation["done"], operation["state"]) == ("move", 2, "done")
    assert [task.data for task in ann.group("reports")] == [b"0", b"2"]
    assert command("operations").words[1].startswith(f"{operation['id']} move 2 selected tasks done 2 of 2")


def test_the_purge_of_a_group_wants_its_name_and_is_undone(command, ann, typing):
    ann.commit(adds=[NewTask(group="mail", data=b"kept")] * 3)
    told = command("purge", "group:mail", "--yes")
    assert (told.code, told.err) == (2, "taskstore: nobody can be asked here: say --yes and --type 'mail'\n")
    typing("mial\n")
    assert command("purge", "group:mail", "--yes").code == 1
    assert ann.stats().groups[0].ready == 3
    typing("mail\n")
    assert command("purge", "group:mail", "--yes").code == 0
    assert ann.groups() == []
    number = ann.operations().operations[0].id
    assert command("undo", str(number), "--reason", "a mistake").words[0] == "done 3, skipped 0, failed 0"
    assert [task.data for task in ann.group("mail")] == [b"kept"] * 3
    again = command("undo", str(number))
    assert (again.code, "undone before" in again.err) == (1, True)


def test_one_that_goes_on_is_left_or_cancelled(command, ann, monkeypatch):
    ann.commit(adds=[NewTask(group="mail")] * 3)
    # Nobody runs it on here: as if it took long.
    monkeypatch.setattr(bulk.starting, "AT_ONCE_S", 0)
    monkeypatch.setattr(bulk.pace, "MOST", 2)
    asked = ("purge", "group:mail", "--yes", "--type", "mail")
    with monkeypatch.context() as patch:
        patch.setattr(Client, "operation", interrupt)
        told = command(*asked)
    [operation] = ann.operations().operations
    left = f"operation {operation.id} goes on at the server: `cancel {operation.id}` ends it"
    assert (told.code, left in told.err) == (130, True)
    told = command("cancel", str(operation.id))
    assert (told.code, ann.operation(operation.id).state) == (0, "cancelled")
    told = command("cancel", str(operation.id))
    assert (told.code, told.err) == (1, f"taskstore: operation {operation.id} has ended: it is cancelled\n")


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_group_is_paused_and_goes_on(command, ann):
    ann.add("mail")
    assert command("pause", "mail", "--reason", "no route").words == ["mail is paused by token:Ann, now: no route"]
    assert command("stats").words[1].endswith("paused")
    assert command("claim", "mail").code == 1
    assert command("resume", "mail", "--json").records == [{"group": "mail", "paused": None}]
    assert command("claim", "mail").code == 0
