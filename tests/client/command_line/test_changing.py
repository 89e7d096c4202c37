"""Commands that change many tasks by operations of the server."""

import pytest

from tasks_app import bulk
from tasks_app.access import tokens
from tasks_app.models import AuditEntry, BulkOperation, Scope
from taskstore import Client, NewTask

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("taskstore.cli.change.LOOK_EVERY_S", 0.01)


def test_it_shows_what_it_would_do_and_asks(command, ann, served, typing):
    ann.commit(adds=[NewTask(group="mail", error="no") for _ in range(3)])
    ann.claim("mail")
    asked = ("requeue", "group:mail", "error:no", "--reason", "a test")
    typing("n\n")
    told = command(*asked)
    assert (told.code, told.err) == (1, "continue? [y/N] taskstore: nothing was changed\n")
    assert told.words[:4] == [
        "requeue group:mail error:no",
        "tasks 3 in mail",
        "claimed 1 by workers: they are skipped",
        "retrying 2",
    ]
    typing("y\n")
    told = command(*asked)
    assert told.code == 0
    assert told.words[-3:] == [
        "done 2, skipped 1, failed 0",
        "skipped, claimed by a worker: 1",
        f"to undo it: taskstore undo {ann.operations().operations[0].id} --url {served.url} --token TOKEN",
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


def test_tasks_are_edited(command, ann, typing):
    gold = ann.add("mail", "kept", labels={"tier": "gold"})
    other = ann.add("mail", error="smtp 550")
    typing("y\n")
    told = command(
        "edit", "group:mail", "label.tier:gold", "--priority", "50", "--error", "x" * 201, "--reason", "paid"
    )
    assert told.code == 0
    assert told.words[:5] == [
        "edit group:mail label.tier:gold",
        f"error {'x' * 200}...",
        "priority 50",
        "tasks 1 in mail",
        "ready 1",
    ]
    edited, same = sorted(ann.group("mail"), key=lambda task: task.origin)
    assert (edited.data, edited.labels, edited.priority, edited.error) == (b"kept", gold.labels, 50, "x" * 201)
    assert (same.id, same.priority) == (other.id, 0)
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.action, entry.done, entry.reason) == ("token:Ann", "edit", 1, "paid")
    told = command("edit", str(edited.id), str(other.id), "--error", "", "--yes")
    assert (told.code, told.words[1]) == (0, "error (none)")
    assert [(task.error, task.priority) for task in ann.group("mail")] in ([("", 50), ("", 0)], [("", 0), ("", 50)])
    command("undo", str(ann.operations().operations[0].id))
    assert {(task.error, task.priority) for task in ann.group("mail")} == {("x" * 201, 50), ("smtp 550", 0)}


def test_a_token_for_other_groups_edits_nothing(command, ann):
    task = ann.add("mail")
    secret = tokens.create("Bob", Scope.OPERATE, groups=["pay/*"])[1]
    told = command("edit", str(task.id), "--priority", "1", "--yes", token=secret)
    unknown = f"task {task.id} does not exist, or its history has expired"
    assert (told.code, told.err) == (1, f"taskstore: {unknown}, so nothing was changed\n")
    assert ann.task(task.id).priority == 0


def test_it_asks_about_what_it_shows_also_with_json(command, ann, typing):
    ann.add("mail")
    typing("n\n")
    told = command("move", "group:mail", "--to", "later", "--create", "--json")
    assert (told.code, told.out) == (1, "")
    assert [" ".join(line.split()) for line in told.err.splitlines()][:3] == [
        "move group:mail",
        "to later",
        "tasks 1 in mail",
    ]
    typing("y\n")
    told = command("move", "group:mail", "--to", "later", "--create", "--json")
    assert (told.code, [record["verb"] for record in told.records]) == (0, ["move"])


def test_tasks_are_requeued_for_later(command, ann):
    ann.add("mail")
    told = command("requeue", "group:mail", "--at", "2099-01-01", "--spread-minutes", "9", "--yes")
    assert told.code == 0
    assert told.words[1:3] == ["available at 2099-01-01 00:00:00 UTC", "spread over 9 min"]
    assert [task.available_at_ms for task in ann.group("mail", owned=True)] == [4_070_908_800_000]


@pytest.mark.parametrize(
    ("code", "arguments", "words"),
    [
        (2, ("purge", " ", "--yes"), "q: must select tasks"),
        (2, ("purge", "nonsense", "--yes"), "q: nonsense: specify where to search"),
        (2, ("requeue", "group:mail"), "confirmation needs a terminal: use --yes"),
        (2, ("edit", "group:mail", "--yes"), "nothing to change: give --error TEXT or --priority N, or both"),
        (2, ("edit", "group:mail", "--priority", "101", "--yes"), "must be between -100 and 100, not 101"),
        (2, ("edit", "group:mail", "--priority", "high", "--yes"), "must be a whole number, not high"),
        (
            2,
            ("edit", "group:mail", "--error", "x" * 100_001, "--yes"),
            "error: must have at most 100000 characters, not 100001",
        ),
        (2, ("edit", "group:mail", "--error", "\udcff", "--yes"), "error: must be valid UTF-8 text"),
        (
            2,
            ("edit", "group:mail", "--error", "x", "--reason", "x" * 1_001, "--yes"),
            "reason: must have at most 1000 characters",
        ),
        (
            2,
            ("requeue", "group:mail", "--spread-minutes", "43201", "--yes"),
            "spread_minutes: must be a whole number between 0",
        ),
        (1, ("edit", "group:nowhere", "--priority", "1", "--yes"), "no matching tasks"),
        (1, ("edit", "999999", "--priority", "1", "--yes"), "task 999999 does not exist, or its history"),
        (1, ("undo", "7"), "operation 7 does not exist: `taskstore operations --url"),
        (1, ("stop", "7"), "operation 7 does not exist: `taskstore operations --url"),
        (2, ("stop", "9" * 30), f"must be between 1 and {2**63 - 1}, not 999"),
    ],
)
def test_what_can_not_be_done_changes_nothing(command, ann, code, arguments, words):
    task = ann.add("mail")
    told = command(*arguments)
    assert told.code == code
    assert words in told.err
    assert not BulkOperation.objects.exists()
    assert ann.task(task.id)


def test_the_purge_of_a_group_wants_its_name_and_is_undone(command, ann, typing):
    ann.commit(adds=[NewTask(group="mail", data=b"kept")] * 3)
    told = command("purge", "group:mail", "--yes")
    assert (told.code, told.err) == (2, "taskstore: confirmation needs a terminal: use --yes and --type 'mail'\n")
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
    assert (again.code, again.err) == (1, f"taskstore: operation {number}: it was already undone\n")


def test_one_that_goes_on_is_left_or_stopped(command, ann, served, monkeypatch):
    ann.commit(adds=[NewTask(group="mail")] * 3)
    # Nobody runs it on here: as if it took long.
    monkeypatch.setattr(bulk.starting, "AT_ONCE_S", 0)
    monkeypatch.setattr(bulk.running, "MOST", 2)
    asked = ("purge", "group:mail", "--yes", "--type", "mail")
    with monkeypatch.context() as patch:
        patch.setattr(Client, "operation", interrupt)
        told = command(*asked)
    [operation] = ann.operations().operations
    here = f"--url {served.url} --token TOKEN"
    left = f"operation {operation.id} continues on the server: `taskstore stop {operation.id} {here}` stops it"
    assert (told.code, left in told.err) == (130, True)
    told = command("stop", str(operation.id))
    assert (told.code, ann.operation(operation.id).state) == (0, "cancelled")
    assert told.words[0] == "done 2, skipped 0, failed 0 (cancelled)"
    assert ann.operation(operation.id).cancelled_by == "token:Ann"
    told = command("stop", str(operation.id))
    assert (told.code, told.err) == (1, f"taskstore: operation {operation.id} has already ended: it is cancelled\n")


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_group_is_paused_and_goes_on(command, ann):
    ann.add("mail")
    assert command("pause", "mail", "--reason", "no route").words == [
        "mail is paused (by token:Ann, now). Reason: no route"
    ]
    assert command("stats").words[1].endswith("paused")
    assert command("claim", "mail").code == 1
    assert command("resume", "mail", "--json").records == [{"group": "mail", "paused": None}]
    assert command("claim", "mail").code == 0


def dead_letter(ann, group="mail"):
    task = ann.add(group)
    return ann.move(task, f"{group}/failed", error="boom")


def test_a_group_is_limited(command, ann):
    ann.commit(adds=[NewTask(group="mail") for _ in range(2)])
    assert command("limits", "list").code == 1
    assert (
        command("limits", "set", "mail", "--running", "1", "--rate", "9/1min").out == "mail: 1 running and 9 per 60 s\n"
    )
    ann.claim("mail")
    assert command("limits", "show", "mail").words == [
        "limit of mail",
        "running 1",
        "rate 9 per 60 s",
        "held back 1 of 1 running",
        "value leased claimed held back",
        "— 1 1 1 of 1 running",
    ]
    assert "1 of 1 running" in command("stats").out
    assert command("limits", "list").words[1] == "mail 1 9 per 60 s"
    assert command("limits", "remove", "mail").out == "removed the limit of mail\n"
    assert command("limits", "remove", "mail").err.startswith("taskstore: mail has no limits of its own")
    for wrong, why in (
        ((), "give --running, --rate or both"),
        (("--rate", "9"), "must be a number of tasks and a time, such as 100/1s, not 9"),
        (("--rate", "0/1s"), "rate.claims: must be between 1 and 10000, not 0"),
        (("--running", "-1"), "must be between 1 and"),
    ):
        told = command("limits", "set", "mail", *wrong)
        assert (told.code, why in told.err) == (2, True), told.err


def test_dead_letters_go_back_and_the_question_says_where_to(command, ann, typing):
    dead_letter(ann)
    typing("y\n")
    told = command("requeue", "group:mail/failed")
    assert told.code == 0
    assert "available in mail (1)" in told.words
    assert [(task.group, task.error, task.labels) for task in ann.group("mail")] == [("mail", "", {})]
