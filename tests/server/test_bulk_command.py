"""`manage.py bulk`, as whoever types it notices."""

import io
import json
import re

import pytest
from django.core.management import call_command

from tasks_app import bulk
from tasks_app.models import AuditEntry, BulkOperation, Task
from taskstore_project.users_name import users_name

from ..console.store import add, claim, fail


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def command(db, capsys, monkeypatch):
    """Its exit code and all that it wrote, when this is typed into it; None: no terminal."""
    monkeypatch.setattr(bulk.starting, "AT_ONCE_S", 0)  # So that it has something to follow.
    monkeypatch.setattr(bulk.pace, "MOST", 2)
    monkeypatch.setattr("taskstore_project.management.commands.bulk.TELL_EVERY_S", 0)

    def run(*arguments, typed=None):
        monkeypatch.setattr("sys.stdin", io.StringIO() if typed is None else Terminal(typed))
        try:
            call_command("bulk", *arguments)
            code: object = 0
        except SystemExit as ended:
            code = ended.code
        told = capsys.readouterr()
        return code, told.out + told.err

    return run


def test_it_works_beside_a_running_server_and_without_one(store):
    with store.up() as server:
        asked = {"clientid": 1, "adds": [{"group": "mail", "data": "kept"}] * 300}
        server.ask("POST", "/update", store.token, json=asked)
        done = store.manage("bulk", "purge", "group:mail", "--yes", "--type", "mail", "--reason", "a test")
        assert (done.returncode, done.stderr) == (0, "")
        assert "done 300, skipped 0, failed 0\nto take it back within 7 days: bulk undo 1" in done.stdout
        assert server.ask("GET", "/groups", store.token).json() == []
        operation = server.ask("GET", "/operations/1", store.token).json()
        assert operation["by"] == f"{users_name()} (command line)"
        assert (operation["done"], operation["reason"]) == (300, "a test")
        assert server.end() == 0
    undone = store.manage("bulk", "undo", "1", "--json")
    assert (undone.returncode, json.loads(undone.stdout)["done"]) == (0, 300)


def test_it_shows_what_it_would_do_and_asks(command):
    for task in add(count=5):
        fail(task)
    claim()
    asked = ("requeue", "group:mail", "state:failed", "--reason", "a test", "--by", "olaf")
    code, told = command(*asked, typed="n\n")
    assert (code, BulkOperation.objects.count()) == (1, 0)
    assert told.startswith("requeue all tasks that meet group:mail state:failed:\n")
    assert re.search(r"tasks +5  in mail\n  ready +4\n  claimed +1 +by workers: they are skipped\nfor example \d", told)
    assert told.endswith("nothing was changed\n")
    code, told = command(*asked, typed="y\n")
    assert code == 0
    assert re.search(r"operation \d+: 2 of 5\n", told)
    assert "done 4, skipped 1, failed 0\n  skipped, claimed by a worker: 1\n" in told
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.action, entry.done, entry.reason) == ("olaf (command line)", "requeue", 4, "a test")


def test_a_purge_of_a_group_needs_its_name(command):
    add(count=3)
    assert command("purge", "group:mail", typed="mial\n")[0] == 1
    assert command("purge", "group:mail", "--yes", typed="\n")[0] == 1
    code, told = command("purge", "group:mail", "--yes")
    assert (code, told.splitlines()[-1]) == (2, "taskstore: nobody can be asked here: say --yes and --type 'mail'")
    assert Task.objects.get_queryset().count() == 3
    code, _ = command("purge", "group:mail", typed="mail\n")
    assert (code, Task.objects.get_queryset().count()) == (0, 0)


def test_each_verb_has_its_options(command):
    add()
    assert command("move", "group:*", "--to", "new", "--yes")[0] == 2
    assert command("move", "group:*", "--to", "new", "--create", "--yes")[0] == 0
    assert command("edit", "group:*", "--error", "known", "--priority", "3", "--yes")[0] == 0
    code, told = command("requeue", "group:*", "--at", "2099-01-01", "--spread-minutes", "9", "--yes")
    assert code == 0
    assert told.splitlines()[0].endswith(", available at 2099-01-01 00:00:00 UTC, spread over 9 minutes:")
    [task] = Task.objects.get_queryset()
    assert (task.group, task.priority, task.error, task.available_at_ms) == ("new", 3, "", 4_070_908_800_000)
    code, told = command("list")
    assert code == 0
    assert [line.split()[1] for line in told.splitlines()] == ["verb", "requeue", "edit", "move"]


def test_it_is_undone_and_cancelled_once(command):
    add(count=3)
    command("purge", "group:mail", "--yes", "--type", "mail")
    [purge] = BulkOperation.objects.all()
    code, told = command("cancel", str(purge.pk))
    assert (code, told) == (1, f"taskstore: operation {purge.pk} has ended: it is done\n")
    assert command("undo", str(purge.pk))[0] == 0
    code, told = command("undo", str(purge.pk))
    assert code == 1
    assert "it was undone before" in told
    seen = bulk.preview(bulk.Selection(group="mail"))
    begun = bulk.start(bulk.Asked(verb=bulk.Verb.PURGE, selection=seen.selection, expected=3, by="olaf", typed="mail"))
    code, told = command("cancel", str(begun.pk), "--by", "ada")
    assert code == 0
    assert "done 2, skipped 0, failed 0 (cancelled)" in told
    assert BulkOperation.objects.get(pk=begun.pk).cancelled_by == "ada (command line)"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("purge", " ", "--yes"), "say which tasks are meant"),
        (("purge", "nonsense", "--yes"), "q: nonsense: say where to look"),
        (("requeue", "group:mail"), "nobody can be asked here: say --yes"),
        (("edit", "group:mail", "--yes"), "there is nothing to change else"),
        (("undo", "7"), "there is no operation 7: see `bulk list`"),
        (("cancel", "9" * 30), "there is no operation"),
    ],
)
def test_what_is_typed_wrongly_changes_nothing(command, arguments, words):
    add()
    code, told = command(*arguments)
    assert code == 2
    assert words in told
    assert not BulkOperation.objects.exists()


def test_nothing_to_do_is_no_mistake(command):
    code, told = command("purge", "group:mail", "--yes")
    assert (code, told) == (0, "no task meets it: nothing is to be done\n")
