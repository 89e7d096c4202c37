"""Runs of a schedule that meet: one that has not ended, a key that is taken, one that is not worth running any more."""

import pytest

from tasks_app import schedules
from tasks_app.core.actors import Actor
from tasks_app.models import EndedTask, Task
from tasks_app.schedules import PlannedJob, PlannedTask, SchedulePlan
from taskstore.errors import InvalidInput
from taskstore.types.schedules import CatchUp, Overlap
from taskstore.types.tasks import Change, NewTask

from .schedules import HOUR_MS, added, due_of, look, record_of, there

JOBS = "jobs/default"


def put(*, job=False, catch_up=CatchUp.SKIP, **asked):
    work = {"job": PlannedJob(function="a.b", **asked)} if job else {"task": PlannedTask(group="mail", **asked)}
    made, _ = schedules.put("digest", SchedulePlan(cron="@hourly", catch_up=catch_up, **work), Actor("olaf"))
    return made


def pass_hours(clock, hours):
    """One due time after the other, each looked at when it is due."""
    for _ in range(hours):
        clock.set(clock.now_ms // HOUR_MS * HOUR_MS + HOUR_MS + 1)
        look()


def claimed(group=JOBS):
    [task] = Task.objects.claim(group, owner=7, duration_ms=100 * HOUR_MS)
    return task


@pytest.mark.parametrize(("job", "overlap", "number"), [
    (True, None, 1), (False, None, 3), (True, Overlap.ALLOW, 3), (False, Overlap.SKIP, 1), (False, Overlap.WAIT, 1),
])  # fmt: skip
def test_jobs_do_not_pile_up_and_plain_tasks_may(clock, job, overlap, number):
    put(job=job, overlap=overlap)
    pass_hours(clock, 3)
    assert len(added(JOBS if job else "mail")) == number


def test_a_skipped_run_is_added_at_the_next_due_time_after_the_end(clock):
    put(job=True)
    pass_hours(clock, 2)
    held = claimed()
    Task.objects.commit(owner=7, updates=[Change(id=held.id, group="jobs/default/failed", error="broken")])
    assert added(JOBS) == []
    pass_hours(clock, 1)
    assert len(added(JOBS)) == 1


def test_what_waits_for_the_end_comes_once_and_soon(clock):
    put(overlap=Overlap.WAIT)
    pass_hours(clock, 1)
    held = claimed("mail")
    pass_hours(clock, 3)
    assert len(added()) == 1
    waits = record_of(schedules.schedule("digest")).waits
    Task.objects.commit(owner=7, deletes=[held.id])
    clock.advance(60_000)
    assert look() == 1
    [late] = added()
    assert late.labels["due"] == f"{schedules.record.iso(waits)}"
    assert record_of(schedules.schedule("digest")).waits == 0
    clock.advance(60_000)
    assert look() == 0  # Not before the next due time.


def test_a_dead_letter_holds_back_nothing(clock):
    put(overlap=Overlap.SKIP)
    pass_hours(clock, 1)
    held = claimed("mail")
    Task.objects.commit(owner=7, updates=[Change(id=held.id, group="dead", error="broken", release=True)])
    pass_hours(clock, 1)
    assert len(added()) == 1


def test_of_what_was_missed_only_the_latest_is_added_where_runs_may_not_overlap(clock):
    made = put(overlap=Overlap.SKIP, catch_up=CatchUp.ALL)
    clock.set(due_of(made) + 5 * HOUR_MS + 1)
    look()
    [task] = added()
    assert task.labels["due"] == schedules.record.iso(due_of(made) + 5 * HOUR_MS)


def test_nothing_is_added_while_its_key_is_taken(clock):
    put(unique="digest")
    Task.objects.commit(owner=7, adds=[NewTask(group="mail", unique="digest")])
    pass_hours(clock, 2)
    assert len(added()) == 1
    assert there(schedules.schedule("digest")).last is None


def test_it_is_not_run_while_its_key_is_taken(clock):
    put(unique="digest")
    Task.objects.commit(owner=7, adds=[NewTask(group="mail", unique="digest")])
    with pytest.raises(InvalidInput, match='another task holds the unique key "digest"'):
        schedules.run_now("digest", Actor("olaf"))
    assert there(schedules.schedule("digest")).last is None


@pytest.mark.parametrize("job", [False, True])
def test_what_waits_for_too_long_is_cancelled(clock, job):
    put(job=job, expires_ms=90_000, overlap=Overlap.ALLOW)
    pass_hours(clock, 1)
    clock.advance(89_000)
    look()
    assert len(added(JOBS if job else "mail")) == 1
    clock.advance(1_000)
    assert look() == 1
    assert added(JOBS if job else "mail") == []
    ended = EndedTask.objects.filter(ending="cancelled").get()
    assert (ended.operator, ended.reason) == ("schedule digest", "it has expired")
    assert [task.error for task in added("jobs/default/cancelled")] == [
        "cancelled by schedule digest: it has expired"
    ] * job


def test_what_has_begun_never_expires(clock):
    put(expires_ms=60_000)
    pass_hours(clock, 1)
    held = claimed("mail")
    pass_hours(clock, 1)
    clock.advance(60_000)
    look()
    assert [task.id for task in added()] == [held.id]


def test_what_is_late_for_longer_than_it_is_worth_is_not_added(clock):
    made = put(expires_ms=1_000, catch_up=CatchUp.LATEST)
    clock.set(due_of(made) + 30_000)
    look()
    assert added() == []


@pytest.mark.parametrize(
    ("asked", "field"), [({"unique": "x" * 256}, "task.unique"), ({"unique": "\0"}, "task.unique")]
)
def test_what_makes_no_sense_is_named(clock, asked, field):
    with pytest.raises(InvalidInput) as refused:
        put(**asked)
    assert list(refused.value.fields) == [field]
