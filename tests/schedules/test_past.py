"""What became of the last due times of a schedule, and why, noted as it happens."""

import pytest

from tasks_app import schedules
from tasks_app.access import tokens
from tasks_app.access.policy import actor_of
from tasks_app.core.actors import Actor
from tasks_app.models import DueTime, Scope, Task
from tasks_app.schedules import PlannedTask, SchedulePlan, past
from taskstore.types.schedules import CatchUp, Overlap
from taskstore.types.tasks import Change

from .schedules import HOUR_MS, added, due_of, look, task_of

NO_SERVER = "no server was running"


def put(*, catch_up=CatchUp.SKIP, cron="@hourly", actor=None, **asked):
    task = PlannedTask(group="mail", **asked)
    made, _ = schedules.put("digest", SchedulePlan(cron=cron, catch_up=catch_up, task=task), actor or Actor("olaf"))
    return made


def advance(clock, hours, late_ms=1):
    clock.set(clock.now_ms // HOUR_MS * HOUR_MS + hours * HOUR_MS + late_ms)


def pass_hours(clock, hours):
    for _ in range(hours):
        advance(clock, 1)
        look()


def told(made):
    """Outcome, why and result of each, the oldest first."""
    return [(each.outcome, each.why, each.result) for each in reversed(schedules.last_of([made.origin])[made.origin])]


def test_what_it_adds_is_noted_with_how_that_goes_on(clock):
    made = put()
    pass_hours(clock, 4)
    claimed = Task.objects.claim("mail", owner=7, duration_ms=HOUR_MS, limit=3)
    done, failing, running = claimed
    Task.objects.commit(owner=7, deletes=[done.id])
    Task.objects.commit(owner=7, updates=[Change(id=failing.id, group="dead", error="broken", release=True)])
    results = {done.origin: "succeeded", failing.origin: "failed", running.origin: "running"}
    found = schedules.last_of([made.origin])[made.origin]
    assert {each.origin: each.result for each in found if each.origin in results} == results
    assert [each.result for each in found if each.origin not in results] == ["waiting"]
    assert {each.outcome for each in found} == {"added"}
    [newest, *_] = schedules.last_of([made.origin])[made.origin]
    assert newest.due_ms == clock.now_ms - 1


def test_what_is_not_added_because_the_last_one_runs_says_so(clock):
    made = put(overlap=Overlap.SKIP)
    pass_hours(clock, 2)
    assert told(made) == [("added", "", "waiting"), ("skipped", "the last one had not ended", "")]
    [skipped, _] = schedules.last_of([made.origin])[made.origin]
    assert skipped.origin == added()[0].origin


def test_what_waits_for_the_end_of_the_last_is_added_in_its_place(clock):
    made = put(overlap=Overlap.WAIT)
    pass_hours(clock, 2)
    assert told(made)[-1] == ("skipped", "the last one had not ended: it is added afterwards", "")
    [task] = added()
    Task.objects.commit(owner=7, deletes=[task.id])
    clock.advance(60_000)
    look()
    assert told(made) == [("added", "", "succeeded"), ("added", "", "waiting")]


def test_of_those_that_wait_for_the_end_of_the_last_only_the_latest_is_added(clock):
    made = put(overlap=Overlap.WAIT)
    pass_hours(clock, 3)
    waits = ("skipped", "the last one had not ended: it is added afterwards", "")
    assert told(made)[1:] == [("skipped", "a later due time had come", ""), waits]
    made = put(overlap=Overlap.WAIT, expires_ms=90_000)
    clock.advance(100_000)
    look()
    assert told(made)[-1] == ("expired", "its time was over before the last one had ended", "")


@pytest.mark.parametrize(
    ("overlap", "text"), [("wait", ": it is added afterwards"), ("skip", "the schedule was changed")]
)
def test_what_waits_for_the_end_of_the_last_waits_on_when_the_plan_is_changed(clock, overlap, text):
    made = put(overlap=Overlap.WAIT)
    pass_hours(clock, 2)
    put(overlap=Overlap(overlap), priority=3)
    clock.advance(1_000)
    look()
    assert text in told(made)[-1][1]
    Task.objects.commit(owner=7, deletes=[added()[0].id])
    clock.advance(60_000)
    look()
    assert len(added()) == (overlap == "wait")


@pytest.mark.parametrize(
    ("catch_up", "outcomes"), [("skip", ["missed"] * 4), ("latest", ["missed"] * 3 + ["added"]), ("all", ["added"] * 4)]
)
def test_what_passed_while_no_server_ran_says_so(clock, catch_up, outcomes):
    made = put(catch_up=CatchUp(catch_up))
    clock.set(due_of(made) + 3 * HOUR_MS + 120_000)
    look()
    found = told(made)
    assert [outcome for outcome, *_ in found] == outcomes
    assert {why for outcome, why, _ in found if outcome == "missed"} <= {NO_SERVER}


def test_what_came_too_late_or_waited_for_too_long_has_expired(clock):
    made = put(expires_ms=90_000)
    pass_hours(clock, 1)
    clock.advance(100_000)
    look()
    assert told(made) == [("expired", "no worker had begun it in time", "")]
    again = put(expires_ms=90_000, catch_up=CatchUp.LATEST)
    advance(clock, 1, late_ms=100_000)
    look()
    assert told(again)[-1] == ("expired", "its time was over when a server came", "")


def test_what_passed_during_a_pause_says_by_whom_and_why(clock):
    made = put()
    schedules.pause("digest", Actor("ann", reason="deploy"))
    advance(clock, 3)
    look()
    assert told(made) == []
    schedules.resume("digest", Actor("olaf"))
    assert told(made) == [("paused", "by ann: deploy", "")] * 3


def test_one_that_is_broken_says_why(clock):
    made = put()
    advance(clock, 1)
    Task.objects.commit(owner=0, updates=[Change(id=task_of(made).id, data=b"{", timespec_ms=clock.now_ms)])
    look()
    [(outcome, why, _)] = told(made)
    assert outcome == "failed"
    assert "invalid schedule" in why


def test_a_schedule_without_rights_says_so(clock):
    token, _ = tokens.create("importer", Scope.OPERATE)
    made = put(actor=actor_of(token))
    tokens.revoke(token)
    pass_hours(clock, 1)
    [(outcome, why, _)] = told(made)
    assert outcome == "failed"
    assert 'no token "importer" is valid any more' in why


def test_a_key_that_is_taken_says_so(clock):
    made = put(unique="digest")
    pass_hours(clock, 2)
    assert told(made)[-1] == ("skipped", "another task holds its unique key", "")


def test_those_of_a_purged_schedule_are_forgotten(clock):
    kept, _ = schedules.put("kept", SchedulePlan(cron="@hourly", task=PlannedTask(group="mail")), Actor("olaf"))
    made = put()
    pass_hours(clock, 1)
    schedules.keep_rights({})
    assert {each.schedule for each in DueTime.objects.all()} == {kept.origin, made.origin}
    [purged] = Task.objects.get_queryset().of_chains([made.origin])
    Task.objects.commit(owner=0, deletes=[purged.id])
    schedules.keep_rights({})
    assert {each.schedule for each in DueTime.objects.all()} == {kept.origin}


def test_the_last_fifty_are_kept_and_none_of_a_deleted_one(clock):
    made = put(cron="every 1s")
    for _ in range(53):
        clock.advance(1_000)
        look()
    found = schedules.last_of([made.origin])[made.origin]
    assert len(found) == past.KEPT == DueTime.objects.count()
    assert found == sorted(found, key=lambda each: -each.due_ms)
    clock.advance(10_000)
    look()
    assert told(made)[-2:] == [("missed", "a later due time had come", ""), ("added", "", "waiting")]
    assert task_of(schedules.schedule("digest")).origin == made.origin
    schedules.delete("digest", Actor("olaf"))
    assert not DueTime.objects.exists()
