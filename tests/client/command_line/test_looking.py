"""Commands that show what there is."""

import pytest

from tasks_app.models import Client, Task
from taskstore import Change, NewTask

pytestmark = pytest.mark.once


def test_groups_are_listed_and_counted(command, ann):
    ann.commit(adds=[NewTask(group="mail"), NewTask(group="mail", timespec_ms=-60_000), NewTask(group="reports")])
    assert command("groups").words == ["mail", "reports"]
    assert command("groups", "--json").records == ["mail", "reports"]
    told = command("stats")
    assert [line.split()[:5] for line in told.words] == [
        ["group", "ready", "claimed", "expired", "scheduled"],
        ["mail", "1", "0", "0", "1"],
        ["reports", "1", "0", "0", "0"],
        ["all", "2", "0", "0", "1"],
    ]
    [record] = command("stats", "re*", "--json").records
    assert (record["group"], record["ready"], record["paused"]) == ("reports", 1, False)
    assert command("stats", "nothing").code == 1


def test_tasks_are_listed_with_what_they_bear(command, ann):
    ann.add("mail", "first", labels={"tier": "gold"}, priority=5)
    ann.add("mail", b"\xff", error="smtp 550")
    [first, second] = command("ls", "mail").words[1:]
    assert first.endswith("tier=gold first")
    assert second.endswith("smtp 550 (1 B, no text)")
    assert len(command("ls", "mail", "--label", "tier=gold").words) == 2
    assert command("ls", "mail", "--state", "retrying", "--json").records[0]["data_base64"] == "/w=="
    assert command("search", "group:mail", "error:550", "--json").records[0]["error"] == "smtp 550"
    assert len(command("search", "group:mail", "-error:550", "--limit", "5").words) == 2
    assert len(command("search", "-label.Tier2:gold", "group:mail").words) == 3
    told = command("ls", "mail", "--limit", "1")
    assert (len(told.words), told.err) == (2, "limited to 1: --limit 0 shows all\n")


def test_a_task_is_shown_by_any_id_that_it_had(command, ann):
    old = ann.add("mail", '{"to": "ann"}')
    [new] = ann.claim("mail")
    told = command("show", str(old.id))
    assert told.err == f"{old.id} is now {new.id}\n"
    assert "owner 1" in told.words
    assert '  "to": "ann"' in told.out.splitlines()
    ann.delete(new)
    gone = command("show", str(old.id))
    assert (gone.code, gone.out) == (1, "")
    assert gone.err == f"taskstore: task {old.id} has ended: deleted by client 1, now\n"
    [added, claimed] = command("history", str(new.id), "--json").records
    assert (added["id"], added["ended"]["how"], claimed["ended"]["how"]) == (old.id, "claimed", "deleted")
    assert f"claimed, now {new.id}" in command("history", str(old.id)).out
    assert command("show", "999999").code == 1


def test_what_a_terminal_would_obey_is_escaped(command, ann):
    task = ann.add("a\x1b[31m", "\x1b]0;title\x07\nline", error="\u202e")
    for told in (command("groups"), command("ls", task.group), command("show", str(task.id)), command("stats")):
        assert not {"\x1b", "\x07", "\u202e"} & {*told.out}
    assert "\\x1b]0;title\\x07\nline" in command("show", str(task.id)).out


def test_workers_are_listed(command, ann):
    ann.heartbeat("ann", groups=["mail"])
    [line] = command("workers").words[1:]
    assert line.startswith("ann 1 ")
    assert " live " in line
    for age_ms, pulse in ((40_000, "late"), (200_000, "lost")):
        Client.objects.update(seen_at_ms=Task.objects.now_ms() - age_ms)
        assert f" {pulse} " in command("workers").words[1]
    assert command("workers", "--json").records[0]["groups"] == ["mail"]


def test_numbers_are_watched(command, ann):
    [task] = ann.commit(adds=[NewTask(group="mail")])
    ann.commit(updates=[Change(id=task.id, error="no")])
    first, second = command("watch", "--times", "2", "--every", "1ms", "--json").records
    assert first["groups"][0]["failed"] == second["groups"][0]["failed"] == 1
    assert "mail" in command("watch", "--times", "1").out


@pytest.mark.parametrize("arguments", [("ls", "mail"), ("search", "group:mail"), ("history", "7")])
def test_nothing_there_is_exit_code_1(command, arguments):
    told = command(*arguments)
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith("taskstore: ")


LISTS = [
    ["ls", "mail"],
    ["ls", "mail", "--state", "failed"],
    ["search", "group:mail"],
    ["groups"],
    ["stats"],
    ["stats", "mail"],
    ["workers"],
    ["operations"],
    ["job", "list"],
    ["schedule", "list"],
    ["commands", "projects"],
    ["commands", "lists"],
    ["commands", "results"],
]


@pytest.mark.parametrize("arguments", LISTS, ids=" ".join)
def test_an_empty_list_is_no_lines_of_json_and_no_failure(command, settings, arguments):
    settings.TASKSTORE_COMMANDS = True
    told = command(*arguments, "--json")
    assert (told.code, told.out, told.err) == (0, "", "")
    told = command(*arguments)
    assert (told.code, told.out, told.err.count("\n")) == (1, "", 1)
