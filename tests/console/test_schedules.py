"""The page of the schedules, and what is done there."""

import re

import msgspec
import pytest

from tasks_app import schedules
from tasks_app.alerts.diagnosis import elsewhere
from tasks_app.alerts.kinds import Kind
from tasks_app.core.actors import Actor
from tasks_app.models import AuditEntry, Task
from tasks_app.schedules import PlannedJob, PlannedTask, SchedulePlan
from taskstore.types.jobs import OptionsRequest
from taskstore.types.schedules import CatchUp, Overlap, ScheduleState
from taskstore.types.tasks import NewTask

from ..people import make_user, signed_in
from ..schedules.schedules import HOUR_MS, added, due_of, look, now, put, record_of

pytestmark = pytest.mark.django_db

TIMES = {"cron": "30 2 * * *", "zone": "Europe/Berlin", "catch_up": "latest"}
RUNS = {"overlap": "default", "expires_s": "", "unique": ""}
TASK = {**TIMES, **RUNS, "adds": "task", "group": "mail", "content": "a\r\nb", "labels": "tier=gold", "priority": "-5"}
JOB = {
    **TIMES, "overlap": "wait", "expires_s": "90.5", "unique": "key",
    "adds": "job", "function": "reports.build", "arguments": "[1, null]", "named_arguments": '{"to": null}',
    "queue": "slow", "max_attempts": "3", "timeout_s": "90",
}  # fmt: skip


@pytest.fixture(autouse=True)
def clock(clock):
    """Five minutes past an hour."""
    clock.set(clock.now_ms // HOUR_MS * HOUR_MS + 300_000)
    return clock


def text(answer):
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", answer.content.decode()))


def test_it_says_what_is_added_when_and_what_was_last(viewer, clock):
    due_ms = due_of(put())
    clock.advance(due_ms - clock.now_ms)
    look()
    clock.advance(5_000)
    [task] = added()
    answer = viewer.get("/console/schedules")
    assert "digest task in mail on At the start of every hour @hourly" in text(answer)
    assert f'<a href="/console/task/{task.origin}" aria-label="Last task of digest">' in answer.content.decode()
    assert "5 s ago all in 59 min" in text(answer)
    [address] = re.findall('href="([^"]*)"[^>]*aria-label="All tasks of digest"', answer.content.decode())
    assert address == "/console/search?q=label.schedule%3Adigest"


def test_it_shows_a_viewer_neither_data_nor_arguments_nor_actions(viewer, clock):
    put()
    schedules.put(
        "report", SchedulePlan(cron="@daily", job=PlannedJob(function="reports.build", args=("s3cret",))), Actor("x")
    )
    page = viewer.get("/console/schedules").content.decode()
    assert "reports.<wbr>build" in page
    assert not any(each in page for each in ("hello", "s3cret", "Delete", "New schedule"))


def test_it_says_why_one_is_broken_here_and_on_the_overview(operator):
    Task.objects.commit(owner=0, adds=[NewTask(group="schedules", data=b"{}", labels={"name": "<b>old"})])
    look()
    page = operator.get("/console/schedules").content.decode()
    assert "&lt;b&gt;old" in page
    assert "<b>old" not in page
    assert "cron: is required" in page
    [notice] = elsewhere([])
    assert (notice.kind, notice.of.words) == (Kind.BROKEN, "<b>old")
    assert "broken: it adds nothing until it is repaired." in text(operator.get("/console/"))
    assert operator.post("/console/schedules/<b>old/edit", TASK).status_code == 302
    assert (now("<b>old").state, elsewhere([])) == (ScheduleState.ON, [])


def test_a_task_is_scheduled_and_changed_by_the_form(operator):
    assert "Create schedule" in text(operator.get("/console/schedules/add"))
    assert operator.post("/console/schedules/add", {"name": "nightly", **TASK}).status_code == 302
    record = record_of(now("nightly"))
    task = record.plan.adds
    assert (record.cron, record.zone, record.catch_up) == ("30 2 * * *", "Europe/Berlin", "latest")
    assert task == schedules.PlannedTask(group="mail", data="a\nb", labels={"tier": "gold"}, priority=-5)
    assert 'value="30 2 * * *"' in operator.get("/console/schedules/nightly/edit").content.decode()
    assert operator.post("/console/schedules/nightly/edit", {**TASK, "cron": "@daily"}).status_code == 302
    assert record_of(now("nightly")).plan == SchedulePlan(
        cron="@daily", zone="Europe/Berlin", catch_up=CatchUp.LATEST, task=record.task
    )


def test_a_job_is_scheduled_by_the_form_and_keeps_what_the_form_has_not(operator):
    assert operator.post("/console/schedules/add", {"name": "report", **JOB}).status_code == 302
    job = record_of(now("report")).adds
    assert isinstance(job, PlannedJob)
    assert (job.args, job.kwargs, job.queue) == ((1, None), {"to": None}, "slow")
    assert (job.options.max_attempts, job.options.timeout_ms) == (3, 90_000)
    assert (job.overlap, job.expires_ms, job.unique) == ("wait", 90_500, "key")
    options = OptionsRequest(max_lost=9)
    schedules.put("report", SchedulePlan(cron="@daily", job=PlannedJob(function="f", options=options)), Actor("x"))
    operator.post("/console/schedules/report/edit", JOB)
    after = record_of(now("report")).adds
    assert isinstance(after, PlannedJob)
    assert (after.options.max_lost, after.options.max_attempts) == (9, 3)


def fields_of(answer):
    """What the form of a page sends when nobody touches it: browsers end each line alike."""
    values = {field.html_name: field.value() for field in answer.context["form"] if field.value() is not None}
    return {
        name: value.replace("\r\n", "\n").replace("\n", "\r\n") if isinstance(value, str) else value
        for name, value in values.items()
    }


@pytest.mark.parametrize(
    "adds",
    [
        {"task": PlannedTask(group="mail", data="a\r\nb", labels={"tier": " gold\nor silver "}, priority=3)},
        {"task": PlannedTask(group="mail", data="a\0b", labels={"a": "b"})},
        {"task": PlannedTask(group="mail", data="a\r\n\nb\n")},
        {"job": PlannedJob(function="f", options=OptionsRequest(timeout_ms=90_500))},
        {"job": PlannedJob(function="f", options=OptionsRequest(timeout_ms=5))},
        {"job": PlannedJob(function="f", overlap=Overlap.ALLOW, expires_ms=1_500, unique="a b ")},
        {"job": PlannedJob(function="f", args=(None, 2**70), options=OptionsRequest(timeout_ms=90_000))},
    ],
)
def test_what_the_form_does_not_show_it_does_not_change(operator, adds):
    before = SchedulePlan(cron="@daily", **adds)
    schedules.put("digest", before, Actor("x"))
    fields = fields_of(operator.get("/console/schedules/digest/edit"))
    answer = operator.post("/console/schedules/digest/edit", {**fields, "cron": "@hourly"})
    assert answer.status_code == 302, text(answer)
    assert record_of(now()).plan == msgspec.structs.replace(before, cron="@hourly")


def test_of_two_who_edit_one_schedule_the_second_is_told(operator):
    put()
    first, second = [fields_of(operator.get("/console/schedules/digest/edit")) for _ in range(2)]
    assert operator.post("/console/schedules/digest/edit", {**first, "cron": "@weekly"}).status_code == 302
    answer = operator.post("/console/schedules/digest/edit", {**second, "priority": "7"})
    assert answer.status_code == 422
    assert "Someone has changed this schedule since you opened the form" in answer.content.decode()
    assert (record_of(now()).cron, record_of(now()).adds.priority) == ("@weekly", 0)


def test_who_may_not_see_data_changes_all_but_that(clock):
    put()
    olaf = signed_in(make_user("otto", "operator"))
    page = olaf.get("/console/schedules/digest/edit").content.decode()
    assert "hello" not in page
    assert "your role does not allow you to see it" in page
    assert olaf.post("/console/schedules/digest/edit", {**TASK, "content": "other"}).status_code == 302
    record = record_of(now())
    assert record.cron == "30 2 * * *"
    assert record.adds.new_task().data == b"hello"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"cron": "nightly"}, "five cron fields"),
        ({"cron": "0 0 30 2 *"}, "date that exists: there is no day 30 in month 2"),
        ({"zone": "Moon/Base"}, "the name of a time zone"),
        ({"group": ""}, "Must not be empty"),
        ({"group": "schedules"}, "a group other than"),
        ({"labels": "due=x"}, "the schedule sets this label"),
        ({"labels": "nonsense"}, "one label per line"),
        ({"priority": "x"}, "a whole number"),
        ({"adds": "job"}, "Must be the dotted path of a function"),
        ({"adds": "job", "function": "f", "queue": "a/b"}, "ust not be empty or contain /"),
        ({"adds": "job", "function": "f", "arguments": "{}"}, "a JSON list"),
        ({"overlap": "sometimes"}, "Select a valid choice"),
        ({"expires_s": "0"}, "ust be a number between 0.001"),
        ({"unique": "x" * 256}, "at most 255 characters"),
        ({"name": "a/b"}, "printable characters, without /"),
        ({"name": "digest"}, "A schedule with this name already exists"),
    ],
)
def test_what_makes_no_sense_is_told_beside_its_field(operator, change, told):
    put()
    answer = operator.post("/console/schedules/add", {"name": "nightly", **TASK, **change})
    assert answer.status_code == 422
    assert told in answer.content.decode()
    assert [each.name for each in schedules.schedules()] == ["digest"]


def test_it_is_paused_resumed_run_and_deleted_from_the_page(operator, clock):
    put()
    assert "The schedule adds nothing until someone resumes it" in text(operator.get("/console/schedules/digest/pause"))
    operator.post("/console/schedules/digest/pause", {"reason": "moving"})
    assert "paused by olaf now : moving" in text(operator.get("/console/schedules"))
    operator.post("/console/schedules/digest/resume")
    assert now().state is ScheduleState.ON
    operator.post("/console/schedules/digest/run")
    assert len(added()) == 1
    part = operator.get("/console/schedules/digest/delete", headers={"HX-Request-Type": "partial"})
    assert "<html" not in part.content.decode()
    operator.post("/console/schedules/digest/delete", {"reason": "no use"})
    assert schedules.schedules() == []
    assert AuditEntry.objects.get(action="delete schedule").reason == "no use"
    assert operator.post("/console/schedules/digest/delete").status_code == 404


def test_its_page_says_what_became_of_its_due_times_and_why(viewer, clock):
    due_ms = due_of(put())
    clock.advance(due_ms - clock.now_ms)
    look()
    clock.advance(2 * HOUR_MS + 120_000)
    look()
    page = viewer.get("/console/schedules/digest/runs")
    shown = text(page)
    assert shown.index("Missed : due") < shown.index("Last due times")
    assert "no server was running" in shown
    assert "waiting —" in shown
    html = page.content.decode()
    assert html.count("<li data-look=") == 3
    assert f"/console/task/{added()[0].origin}" in html
    assert "missed" in text(viewer.get("/console/schedules"))
    assert viewer.get("/console/schedules/nothing/runs").status_code == 404
