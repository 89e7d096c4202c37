"""Schedules that a project declares beside its functions, or in its settings."""

import re
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tasks_app.jobs import queues
from tasks_app.schedules import verbs
from tasks_app.tasks_backend.backend import of_alias
from tasks_app.tasks_backend.schedules import put_declared
from taskstore.types.schedules import PlannedJob, SchedulePlan, ScheduleState

from . import tested

pytestmark = pytest.mark.django_db

NIGHTLY, NESTED = (f"@{tested.__name__}.{name}" for name in ("nightly", "nested"))


@pytest.fixture(autouse=True)
def of_settings(settings):
    """Sets what OPTIONS say of schedules."""

    def declare(**schedules):
        by_path = {f"{tested.__name__}.{name}": given for name, given in schedules.items()}
        options = {"modules": [tested.__name__], "schedules": by_path}
        settings.TASKS = {
            "default": {
                "BACKEND": "tasks_app.tasks_backend.TaskStoreBackend",
                "QUEUES": ["default", "mail"],
                "OPTIONS": options,
            }
        }

    declare()
    settings.TIME_ZONE = "Europe/Berlin"
    return declare


def put():
    return put_declared(of_alias("default"))


def test_what_a_task_declares_is_put_once(of_settings):
    assert put() == [f"{NIGHTLY}: 0 3 * * * (Europe/Berlin)"]
    assert put() == []
    [found] = verbs.schedules()
    assert found.job
    assert (found.name, found.state) == (NIGHTLY, ScheduleState.ON)
    assert (found.job.function, found.job.queue, found.job.priority) == (NIGHTLY[1:], "mail", 4)
    assert found.job.options.max_attempts == 2
    added = verbs.run_now(NIGHTLY)
    assert added
    assert queues.job_of(added).function == NIGHTLY[1:]


def test_settings_declare_arguments_too(of_settings):
    runs = {"catch_up": "latest", "overlap": "wait", "expires": 60_000, "unique": "nested"}
    of_settings(nested={"cron": "@monthly", "kwargs": {"depth": 2}, "zone": "UTC", **runs})
    assert put()[1:] == [f"{NESTED}: @monthly (UTC)"]
    [job] = [each.job for each in verbs.schedules() if each.name == NESTED]
    assert job
    assert job.kwargs == {"depth": 2}
    assert (job.overlap, job.expires_ms, job.unique) == ("wait", 60_000, "nested")
    of_settings(nested="every 30s")
    assert put() == [f"{NESTED}: every 30s (Europe/Berlin)"]


def test_what_nobody_declares_any_more_goes_and_what_is_paused_stays_paused(of_settings):
    of_settings(nested="@daily")
    other = SchedulePlan(cron="@daily", job=PlannedJob(function="elsewhere", queue="others"))
    for name in ("by hand", "@elsewhere"):
        verbs.put(name, other)
    put()
    verbs.pause(NIGHTLY)
    of_settings()
    assert put() == [f"{NESTED}: deleted, as no task declares it"]
    assert {each.name: each.state for each in verbs.schedules()} == {
        "by hand": ScheduleState.ON,
        "@elsewhere": ScheduleState.ON,  # Of the queues of another project.
        NIGHTLY: ScheduleState.PAUSED,
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"nested": "daily"}, "the schedule of tests.task_framework.tested.nested: cron: must be five cron fields"),
        ({"nested": {"cron": "@daily", "zone": "Mars"}}, "the schedule of tests.task_framework.tested.nested: zone: "),
        ({"nested": {"cron": "@daily", "at": 3}}, '["tests.task_framework.tested.nested"] must be a cron expression'),
        ({"nested": {"cron": "@daily", "catch_up": "some"}}, 'catch_up must be one of skip, latest, all, not "some"'),
        ({"nested": {"cron": "@daily", "overlap": 3}}, "overlap must be one of skip, wait, allow, not 3"),
        ({"nested": {"cron": "@daily", "expires": 0}}, "expires"),
        ({"nothing": "@daily"}, "tested.nothing is not a task"),
    ],
)
def test_a_wrong_declaration_is_named_and_nothing_is_put(of_settings, given, said):
    of_settings(**given)
    with pytest.raises(CommandError, match=re.escape(said)):
        call_command("work", "--schedules", "--burst")
    assert verbs.schedules() == []


def test_the_command_puts_them_before_it_works(monkeypatch):
    command = "tasks_app.management.commands.work"
    monkeypatch.setattr(f"{command}.JobWorker.run", lambda self, **_: None)
    monkeypatch.setattr(f"{command}.show_log", lambda: None)  # Which is for good.
    said = StringIO()
    call_command("work", "--schedules", "--burst", stdout=said)
    assert said.getvalue().startswith(f"{NIGHTLY}: 0 3 * * * (Europe/Berlin)\n")
