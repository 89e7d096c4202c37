"""The pages of commands in Chromium: they follow what workers do, and keep what somebody has selected or typed."""

import pytest
from msgspec.structs import replace
from playwright.sync_api import expect

from tasks_app.commands import make_lists, process_closed
from tasks_app.models import Task
from taskstore.types.command_record import (
    Command,
    CommandList,
    CommandStatus,
    LiveOutput,
    Output,
    live_labels,
    output_group,
)
from taskstore.types.tasks import NOBODY, Change, NewTask

from ..command_lists.commands import close, commands_in
from ..jobs_store.jobs import enqueued, finished, started
from ..people import make_user
from .browsing import Person
from .commands import BOB, command_of, ended, running_list

pytestmark = [pytest.mark.browser, pytest.mark.once]

PATIENCE_MS = 30_000


@pytest.fixture
def person(chromium, live_server, settings) -> Person:
    settings.TASKSTORE_COMMANDS = True
    settings.TASKSTORE_COMMAND_LISTS = "*=50/1h/0s"
    chromium.set_default_timeout(PATIENCE_MS)
    return Person(chromium, live_server.url, make_user("suse", "viewer", "see payloads", "commands"))


def writes(list_task: Task, command_id: str, text: str) -> Task:
    live = LiveOutput(list="1448978609", task=list_task.origin, command=command_id, at=1, out=Output.of(text.encode()))
    labels = live_labels(live, command_of(command_id))
    [task] = Task.objects.commit(
        owner=NOBODY, adds=[NewTask(group=output_group("default"), data=live.encode(), labels=labels)]
    )
    return task


def test_lines_are_submitted_run_and_seen_to_their_end(person):
    page = person.page
    person.go("/console/commands")
    page.keyboard.press("n")
    page.get_by_label("Project").fill("renders")
    page.get_by_label("Commands", exact=True).fill("make a\nmake b")
    person.button("Submit").click()
    expect(page.get_by_text("Submitted 2 commands.")).to_be_visible()
    new = page.locator("[data-step=new] strong")
    expect(new).to_have_text("2")
    make_lists("renders")
    expect(new).to_have_text("0")
    expect(page.locator("[data-step=open] .tile-note")).to_have_text("in 1 list")
    close("renders", lambda command: command)
    expect(page.locator("[data-step=closed] strong")).to_have_text("2")


def test_the_page_of_a_command_follows_what_it_writes(person):
    page, task = person.page, running_list("1_0")
    person.go("/console/commands/command?project=default&id=1_0")
    expect(page.get_by_text("is running other commands first")).to_be_visible()
    first = writes(task, "1_0", "frame 1")
    expect(page.get_by_label("stdout", exact=True).last).to_have_text("frame 1")
    Task.objects.commit(owner=NOBODY, deletes=[first.id])
    second = writes(task, "1_0", "frame 1\nframe 2")
    expect(page.get_by_label("stdout", exact=True).last).to_have_text("frame 1\nframe 2")
    made = CommandList.decode(bytes(task.data))
    run = ended("9_0", CommandStatus.COMPLETED, exit_code=0, out=Output.of(b"all frames"))
    closed = Change(id=task.id, group="commands/default/closed", data=ran(made, run).encode())
    Task.objects.commit(owner=BOB, updates=[closed])
    Task.objects.commit(owner=NOBODY, deletes=[second.id])
    process_closed("default")
    expect(page.get_by_label("stdout", exact=True).last).to_have_text("all frames")
    expect(page.locator(".page-head .state")).to_have_text("completed")


def test_failed_commands_are_selected_and_run_once_more_by_keyboard_and_dialog(person):
    page = person.page
    for number in range(3):
        ended(f"{number}_0", CommandStatus.FAILED_COUNT, cmd=f"make {number}")
    person.go("/console/commands/project?project=default&status=failed_count")
    expect(page.get_by_text("Select commands")).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_text("1 selected")).to_be_visible()
    person.ask("Retry…")
    expect(person.dialog.get_by_role("heading")).to_have_text("Retry 1 command in default?")
    expect(person.link("Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    page.get_by_label("All 3 failed count commands").check()
    person.ask("Retry…")
    person.button("Retry 3 commands").click()
    expect(page.get_by_text("Retried commands: 3.")).to_be_visible()
    assert len(commands_in("default", CommandStatus.NEW)) == 3


def test_running_lists_and_results_come_and_go_by_themselves(person):
    page = person.page
    ended("1_0", CommandStatus.COMPLETED, cmd="make a")
    person.go("/console/commands/project?project=default")
    expect(page.locator("#results tbody tr")).to_have_count(1)
    task = running_list("2_0")
    expect(page.locator("#lists tbody tr")).to_have_count(1)
    Task.objects.commit(owner=BOB, deletes=[task.id])
    ended("2_0", CommandStatus.COMPLETED, cmd="make b")
    expect(page.locator("#results tbody tr")).to_have_count(2)
    expect(page.locator("#lists tbody tr")).to_have_count(0)


def test_what_is_typed_and_selected_stays_while_numbers_change(person):
    page = person.page
    ended("1_0", CommandStatus.COMPLETED)
    person.go("/console/commands/project?project=default&status=completed")
    person.rows().first.check()
    page.get_by_label("Search by command line").fill("half a wo")
    ended("2_0", CommandStatus.NEW)
    expect(page.locator("[data-step=new] strong")).to_have_text("1")
    expect(page.get_by_label("Search by command line")).to_have_value("half a wo")
    expect(person.rows().first).to_be_checked()


def ran(made: CommandList, task: Task) -> CommandList:
    """The list with the run of that task for its only command."""
    run = Command.decode(bytes(task.data)).run
    [command] = made.commands
    return replace(made, commands=(replace(command, run=run),), worker="w_2", started=1, finished=2)


# ---- The page of a job in Chromium: it follows the job, and what somebody has closed stays closed


def test_it_follows_a_job_to_its_end_and_runs_it_again(chromium, live_server):
    person = Person(chromium, live_server.url, make_user("olaf", "admin"))
    job_id = enqueued(args=["ann"])
    task = started()
    page = person.page
    person.go(f"/console/jobs/{job_id}")
    parameters = page.locator("#parameters details").first
    parameters.locator("summary").click()
    expect(parameters).not_to_have_attribute("open", "")
    finished(task, result={"sent": 1})
    expect(page.get_by_role("heading", name="Result")).to_be_visible()
    expect(parameters).not_to_have_attribute("open", "")
    page.keyboard.press("r")
    page.get_by_label("Positional arguments").fill('["bob"]')
    page.get_by_role("button", name="Review").click()
    expect(page.locator(".diff .after")).to_have_text('+ "bob"')
    page.get_by_role("button", name="Requeue").click()
    expect(page.get_by_text(f"Requeued job {job_id}.")).to_be_visible()
    expect(page.locator("#parameters")).to_contain_text('"bob"')
