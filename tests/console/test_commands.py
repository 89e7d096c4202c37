"""Commands: their projects, lists, runs and outputs, for those who look."""

import pytest
from django.utils.html import escape

from tasks_app.models import Task
from taskstore.types.command_record import CommandStatus, LiveOutput, Output, live_labels, output_group
from taskstore.types.tasks import Change, NewTask

from ..command_lists.commands import submitted
from .commands import BOB, command_of, completed, ended, running_list

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("commands_are_on")]

HOSTILE = '<script>alert("x")</script>'
PROJECT = "commands/project?project=default"


def writes(task: Task, command_id: str, **written) -> None:
    """The worker tells what a command of the list has written so far."""
    live = LiveOutput(list=task.labels["list"], task=task.origin, command=command_id, at=1_700_000_000, **written)
    labels = live_labels(live, command_of(command_id))
    Task.objects.commit(owner=BOB, adds=[NewTask(group=output_group("default"), data=live.encode(), labels=labels)])


# ---- Projects


def text_of(client, path, status=200):
    response = client.get(f"/console/{path}")
    assert response.status_code == status
    return response.content.decode()


def test_a_server_that_takes_no_commands_says_how_to_switch_them_on(submitter, settings):
    settings.TASKSTORE_COMMANDS = False
    assert "python3 manage.py up --commands" in text_of(submitter, "commands")
    submitted(1)
    text = text_of(submitter, PROJECT)
    assert "Commands are off on this server" in text
    assert "Submit" not in text


def test_a_fresh_store_says_what_a_command_is_and_how_to_submit_one(submitter, viewer):
    text = text_of(submitter, "commands")
    assert "No commands yet" in text
    assert "curl http://testserver/commands/default" in text
    assert "--scope commands" in text
    assert 'href="/console/commands/submit"' in text
    assert 'href="/console/commands/submit"' not in text_of(viewer, "commands")


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("project=a/b", "must not be empty or contain /"),
        ("project=", "must not be empty or contain /"),
        ("project=default&status=lost", "one of new, new_stashed"),
        ("project=default&after=x", "must be a position in the list"),
        ("project=default&text=" + "x" * 256, "at most 255 characters"),
    ],
)
def test_a_project_says_what_makes_no_sense(submitter, query, told):
    assert told in text_of(submitter, f"commands/project?{query}", 400)


# ---- A project


@pytest.mark.parametrize("status", sorted(set(CommandStatus)))
def test_each_status_has_a_list_of_what_lies_there(submitter, status):
    if status in (CommandStatus.OPEN_STASHED, CommandStatus.OPEN, CommandStatus.RUNNING, CommandStatus.CLOSED):
        running_list("1_0")
        text = text_of(submitter, f"{PROJECT}&status={status}")
        assert ('id="list-' in text) == (status is CommandStatus.RUNNING)
    else:
        task = ended("1_0", status, cmd="echo there")
        text = text_of(submitter, f"{PROJECT}&status={status}")
        assert f'id="command-{task.id}"' in text
        assert "echo there" in text


# ---- A list


def test_a_list_that_a_worker_gave_back_says_why(submitter):
    task = running_list("1_0", "2_0", "3_0", done=1)
    why = "worker ann can't run commands: the disk of /home is full"
    Task.objects.commit(owner=task.owner, updates=[Change(id=task.id, error=why, release=True)])
    shown = f'<code class="error">{escape(why)}</code>'
    listed = text_of(submitter, f"{PROJECT}&status=open")
    assert shown in listed
    assert '2<span class="narrow-word"> commands</span>' in listed  # Those that are left.
    assert shown in text_of(submitter, f"commands/list/{task.origin}")


def test_any_id_of_its_task_leads_to_a_list_and_its_task_leads_back(submitter):
    task = running_list("1_0")
    assert task.id != task.origin
    assert "List <bdi>1448978609" in text_of(submitter, f"commands/list/{task.origin}")
    assert f'href="/console/commands/list/{task.origin}"' in text_of(submitter, f"task/{task.id}")


def test_a_list_that_is_gone_leads_to_its_project(submitter):
    task = running_list("1_0")
    Task.objects.commit(owner=BOB, deletes=[task.id])
    assert 'href="/console/commands/project?project=default"' in text_of(submitter, f"commands/list/{task.id}", 404)
    part = submitter.get(f"/console/commands/list/{task.id}", headers={"HX-Request-Type": "partial"})
    assert (part.status_code, "The list has finished or was split up" in part.content.decode()) == (200, True)
    assert "There is no list with this id" in text_of(submitter, "commands/list/999", 404)
    assert "There is no list with this id" in text_of(submitter, "commands/list/99999999999999999999", 404)


# ---- A command


def test_a_command_tells_all_of_its_run(submitter):
    completed(
        "7_0", cmd="make film", worker="render-1", exit_code=0, duration_ms=61_000, out=Output.of(b"frame 1\nframe 2")
    )
    text = text_of(submitter, "commands/command?project=default&id=7_0")
    for part in ("make film", "completed", "render-1", "1 min 1 s", "frame 1\nframe 2", "No output."):
        assert part in text
    assert "every 1s" not in text


def test_earlier_runs_keep_what_they_wrote(submitter):
    ended("7_0", CommandStatus.FAILED_ARCHIVE, exit_code=3, err=Output.of(b"x" * 9_000 + b"first time"))
    ended("7_1", CommandStatus.FAILED_COUNT, exit_code=4, err=Output.of(b"second time"))
    newest = text_of(submitter, "commands/command?project=default&id=7")
    assert "second time" in newest
    assert "first time" not in newest
    assert "/console/commands/command?project=default&amp;id=7_0" in newest
    assert "first time" in text_of(submitter, "commands/command?project=default&id=7_0")


def test_a_command_that_was_never_run_says_so(submitter):
    ended("1_0", CommandStatus.NEW)
    assert "This command has not run yet" in text_of(submitter, "commands/command?project=default&id=1_0")
    assert "has no command with this id" in text_of(submitter, "commands/command?project=default&id=2_0", 404)
    assert "must be the id of a command" in text_of(submitter, "commands/command?project=default", 400)


def test_an_output_that_is_too_long_for_a_page_is_cut_in_the_middle(submitter):
    completed("1_0", out=Output.of(b"first\n" + b"x" * 200_000 + b"\nlast"))
    text = text_of(submitter, "commands/command?project=default&id=1_0")
    assert "not shown on this page" in text
    assert ("first" in text, "\nlast</pre>" in text, len(text) < 190_000) == (True, True, True)
    answer = submitter.get("/console/commands/output?project=default&id=1_0&stream=out")
    assert answer.content == b"first\n" + b"x" * 200_000 + b"\nlast"


def test_binary_output_is_shown_as_hex_and_can_be_saved(submitter):
    written = bytes(range(256))
    completed("1_0", out=Output.of(written))
    text = text_of(submitter, "commands/command?project=default&id=1_0")
    assert "binary" in text
    assert "00 01 02 03" in text
    answer = submitter.get("/console/commands/output?project=default&id=1_0&stream=out")
    assert answer.content == written
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"].startswith("attachment")


@pytest.mark.parametrize(
    ("written", "shown"),
    [("café".encode("latin-1"), "caf�"), ("€".encode() * 50_000, "€</pre>"), (b"\x1b[31mred\r\n", "␛[31mred\n")],
)
def test_text_that_is_not_all_utf_8_or_is_cut_within_a_letter_is_shown_as_text(submitter, written, shown):
    completed("1_0", out=Output.of(written))
    assert shown in text_of(submitter, "commands/command?project=default&id=1_0")


@pytest.mark.parametrize(("query", "told"), [("stream=both", "must be out or err"), ("", "must be out or err")])
def test_a_stream_that_is_none_is_named(submitter, query, told):
    completed("1_0")
    assert told in text_of(submitter, f"commands/output?project=default&id=1_0&{query}", 400)


# ---- Who sees what


def test_who_may_not_see_payloads_sees_neither_lines_nor_outputs(viewer):
    completed("1_0", cmd="echo secret-line", out=Output.of(b"secret-out"), err=Output.of(b"secret-err"))
    task = running_list("2_0", cmd="echo secret-line")
    writes(task, "2_0", out=Output.of(b"secret-tail"))
    for path in (
        PROJECT, f"{PROJECT}&status=completed", f"commands/list/{task.id}",
        "commands/command?project=default&id=1_0", "commands/command?project=default&id=2_0",
    ):  # fmt: skip
        assert "secret" not in text_of(viewer, path)
    assert "your role does not allow you to see" in text_of(viewer, f"{PROJECT}&text=secret", 400)


# ---- From elsewhere
