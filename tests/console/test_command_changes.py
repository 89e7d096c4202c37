"""What people do to commands: submit, park, retry and archive them, and open a list again."""

import re

import pytest

from tasks_app.models import AuditEntry, Task
from taskstore.types.command_record import CommandStatus
from taskstore.types.tasks import State

from ..command_lists.commands import commands_in
from .commands import command_of, completed, ended, running_list

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("commands_are_on")]

PAGE = "/console/commands/project?project=default"
ALL = {"project": "default", "all": "1", "expected": "1"}
LINES = {"project": "default", "lines": "true"}
COMMAND_ACTIONS = ("retry", "stash", "unstash", "archive")


def asked(client, query):
    answer = client.get(f"/console/commands/confirm?{query}")
    assert answer.status_code == 200
    return " ".join(re.sub(r"<[^>]+>", "", answer.content.decode().split('id="dialog-title"')[1]).split())


# ---- Submit


def test_lines_are_submitted_in_their_order_and_the_audit_knows(submitter):
    fields = {"project": "renders", "lines": "make a\r\n\r\n  make b\r\n", "expected": "5", "max_fails": "2"}
    answer = submitter.post("/console/commands/submit", {**fields, "until": "2030-01-01T00:00"})
    assert (answer.status_code, answer["Location"]) == (302, "/console/commands/project?project=renders")
    [one, other] = sorted(commands_in("renders", CommandStatus.NEW), key=lambda command: command.id)
    assert (one.cmd, other.cmd) == ("make a", "  make b")
    assert (one.expected_duration, one.max_fails, one.until) == (5, 2, 1_893_456_000)
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.action, entry.selection, entry.done) == ("suse", "submit", "commands of renders", 2)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"lines": ""}, "This field is required"),
        ({"lines": " \r\n "}, "between 1 and 1000 commands, not 0"),
        ({"lines": "true\r\n\r\n" + "x" * 70_000}, "ine 3: must have at most 65536 bytes"),
        ({"lines": "true\r\nfalse\x00"}, "Null characters are not allowed"),
        ({"lines": "true\r\nfal\rse"}, "ine 2: must be one command line"),
        ({"lines": "true\n" * 1_001}, "between 1 and 1000 commands, not 1001"),
        ({"project": "a/b"}, "ust not be empty or contain /"),
        ({"project": ""}, "This field is required"),
        ({"project": "x" * 201}, "at most 200 characters"),
        ({"expected": "soon"}, "a whole number between 1"),
        ({"expected": "0"}, "a whole number between 1"),
        ({"max_fails": "-1"}, "a whole number between 1"),
        ({"max_fails": "1001"}, "and 1000"),
        ({"until": "tomorrow"}, "UTC time such as 2026-01-31T14:00"),
        ({"until": "0001-01-01T00:00"}, "between 1 and"),
    ],
)
def test_what_can_not_be_submitted_is_named_beside_its_field(submitter, fields, told):
    answer = submitter.post("/console/commands/submit", {**LINES, **fields})
    assert (answer.status_code, told in answer.content.decode()) == (422, True)
    assert not Task.objects.exists()
    assert not AuditEntry.objects.exists()


# ---- Cancel one


def test_one_command_of_a_running_list_is_cancelled_and_its_page_says_so(submitter):
    running_list("1_0", "2_0")
    where = "project=default&id=1_0"
    assert (
        "goes on with the other commands of its list"
        in submitter.get(f"/console/commands/cancel?{where}").content.decode()
    )
    answer = submitter.post("/console/commands/cancel", {"project": "default", "id": "1_0", "reason": "wrong file"})
    assert (answer.status_code, answer["Location"]) == (302, f"/console/commands/command?{where}")
    page = submitter.get(answer["Location"]).content.decode()
    assert "This command was cancelled before it ended" in page
    assert "Cancel…" not in page
    assert "Cancel…" in submitter.get("/console/commands/command?project=default&id=2_0").content.decode()
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.action, entry.reason, entry.done) == ("suse", "cancel", "wrong file", 1)


def test_what_has_ended_is_not_cancelled(submitter):
    completed("1_0")
    answer = submitter.post("/console/commands/cancel", {"project": "default", "id": "1_0"})
    assert (answer.status_code, "Nothing to cancel" in answer.content.decode()) == (422, True)
    assert submitter.get("/console/commands/cancel?project=default&id=9_0").status_code == 404
    assert not AuditEntry.objects.exists()


# ---- Many at once


def test_the_question_has_the_number_and_says_what_is_done(submitter):
    for number in range(3):
        ended(f"{number}_0", CommandStatus.FAILED_COUNT)
    ended("3_0", CommandStatus.FAILED_TIME)
    text = asked(submitter, "verb=retry&project=default&all=1")
    assert text.count("Retry 4 commands") == 2
    assert "run its line in a shell again" in text
    assert "Retry 3 commands" in asked(submitter, "verb=retry&project=default&all=1&status=failed_count")
    assert "Nothing to archive" in asked(submitter, "verb=archive&project=default&all=1")


def test_only_what_is_selected_is_run_once_more(submitter):
    one, _ = completed("1_0", cmd="make a"), completed("2_0", cmd="make b")
    fields = {"project": "default", "status": "completed", "id": one.id, "expected": "1"}
    submitter.post("/console/commands/retry", fields)
    assert [command.cmd for command in commands_in("default", CommandStatus.NEW)] == ["make a"]
    assert [command.cmd for command in commands_in("default", CommandStatus.COMPLETED)] == ["make b"]


def test_far_more_than_was_agreed_to_is_not_done(submitter):
    for number in range(12):
        ended(f"{number}_0", CommandStatus.FAILED_COUNT)
    answer = submitter.post("/console/commands/retry", {**ALL, "status": "failed_count", "expected": "1"})
    assert (
        answer.status_code,
        "The selection changed from 1 to 12 commands. Review and confirm." in answer.content.decode(),
    ) == (422, True)
    assert commands_in("default", CommandStatus.NEW) == []


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("verb=burn&project=default&all=1", "one of retry, stash, unstash, archive"),
        ("verb=retry&project=a/b&all=1", "ust not be empty or contain /"),
        ("verb=retry&project=default", "at least one selected task"),
        ("verb=retry&project=default&id=x", "a whole number"),
        ("verb=retry&project=default&all=1&status=lost", "one of new"),
    ],
)
def test_a_question_that_makes_no_sense_is_named(submitter, query, told):
    answer = submitter.get(f"/console/commands/confirm?{query}")
    assert (answer.status_code, told in answer.content.decode()) == (400, True)


# ---- A list


def test_a_running_list_is_opened_again_after_a_question(submitter):
    task = running_list("1_0", "2_0")
    question = submitter.get(f"/console/commands/list/{task.id}/reopen").content.decode()
    assert "run all 2 commands from the start" in question
    submitter.post(f"/console/commands/list/{task.id}/reopen", {"reason": "node 7 burns"})
    [reopened] = Task.objects.filter(group="commands/default/open")
    assert reopened.state(Task.objects.now_ms()) is State.READY
    [entry] = AuditEntry.objects.all()
    assert (entry.actor, entry.action, entry.reason) == ("suse", "reopen", "node 7 burns")
    answer = submitter.post(f"/console/commands/list/{reopened.id}/reopen")
    assert (answer.status_code, "ust be a running list" in answer.content.decode()) == (422, True)
    assert "Nothing to reopen" in submitter.get(f"/console/commands/list/{reopened.id}/reopen").content.decode()
    assert submitter.post("/console/commands/list/999/reopen").status_code == 404


# ---- Who may


def test_nothing_is_changed_on_a_server_that_takes_no_commands(submitter, settings):
    completed("1_0")
    task = running_list("2_0")
    settings.TASKSTORE_COMMANDS = False
    before = set(Task.objects.values_list("id", flat=True))
    pages = [f"commands/{verb}" for verb in (*COMMAND_ACTIONS, "submit")] + [f"commands/list/{task.id}/reopen"]
    for page in pages:
        answer = submitter.post(f"/console/{page}", ALL | LINES)
        assert (answer.status_code, "--commands" in answer.content.decode()) == (403, True)
    assert set(Task.objects.values_list("id", flat=True)) == before


def test_who_may_operate_may_not_change_commands(operator):
    completed("7_0")
    task = running_list("2_0")
    for path in (PAGE, f"{PAGE}&status=completed", f"/console/commands/list/{task.id}",
                 "/console/commands/command?project=default&id=7_0"):  # fmt: skip
        text = operator.get(path).content.decode()
        assert not re.search(r"/console/commands/(confirm|submit)|/reopen", text)
        assert 'name="id"' not in text
    assert command_of("7_0").cmd in operator.get(f"{PAGE}&status=completed").content.decode()
