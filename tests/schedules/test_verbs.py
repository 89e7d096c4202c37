"""Making, changing, stopping and deleting schedules, and the trail of it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from tasks_app import schedules
from tasks_app.core.actors import Actor
from tasks_app.core.operations import GroupScope
from tasks_app.models import AuditEntry, Task
from tasks_app.schedules import verbs
from taskstore.errors import InvalidInput
from taskstore.types.schedules import ScheduleState

from .schedules import HOUR_MS, added, due_of, look, now, pause_of, plan, put, record_of, there


def test_another_one_of_the_name_takes_its_place(clock):
    first = put()
    put(cron="30 * * * *", group="reports")
    [after] = schedules.schedules()
    assert (after.origin, record_of(after).group, record_of(after).cron) == (first.origin, "reports", "30 * * * *")
    assert after.next_ms == clock.now_ms // HOUR_MS * HOUR_MS + HOUR_MS // 2


def test_what_is_due_stays_due_when_only_what_is_added_changes(clock):
    due_ms = due_of(put())
    clock.advance(due_ms - clock.now_ms + 10)
    put(group="reports")
    assert (look(), len(added("reports"))) == (1, 1)


def test_a_paused_one_is_not_due_and_has_missed_nothing_when_it_goes_on(clock):
    put()
    paused = schedules.pause("digest", Actor("olaf", reason="moving"))
    assert there(paused).state is ScheduleState.PAUSED
    assert (pause_of(paused).by, pause_of(paused).reason) == ("olaf", "moving")
    clock.advance(3 * HOUR_MS)
    assert look() == 0
    assert put(group="reports").state is ScheduleState.PAUSED
    resumed = there(schedules.resume("digest", Actor("olaf")))
    assert (resumed.state, resumed.next_ms) == (ScheduleState.ON, clock.now_ms // HOUR_MS * HOUR_MS + HOUR_MS)
    assert (look(), added(), added("reports")) == (0, [], [])


def test_what_is_deleted_is_due_no_more_and_what_it_added_stays(clock):
    put()
    schedules.run_now("digest", Actor("olaf"))
    assert schedules.delete("digest", Actor("olaf"))
    assert not schedules.delete("digest", Actor("olaf"))
    assert (schedules.schedules(), len(added())) == ([], 1)


def test_each_change_leaves_its_trail(clock):
    put()
    schedules.pause("digest", Actor("olaf", reason="moving"))
    schedules.pause("digest", Actor("olaf"))
    schedules.resume("digest", Actor("olaf"))
    schedules.run_now("digest", Actor("olaf"))
    schedules.delete("digest", Actor("olaf"))
    trail = list(AuditEntry.objects.order_by("id").values_list("actor", "action", "group", "selection", "reason"))
    actions = ["put schedule", "pause schedule", "resume schedule", "run schedule", "delete schedule"]
    reasons = ["", "moving", "", "", ""]
    assert trail == [
        ("olaf", action, "mail", "schedule digest", reason) for action, reason in zip(actions, reasons, strict=True)
    ]


def test_a_scope_that_does_not_allow_its_group_hides_it(clock):
    put()
    foreign = GroupScope(("pay/*",))
    assert (schedules.schedules(foreign), schedules.schedule("digest", foreign)) == ([], None)
    assert schedules.pause("digest", Actor("kim", foreign)) is None
    assert schedules.run_now("digest", Actor("kim", foreign)) is None
    assert not schedules.delete("digest", Actor("kim", foreign))
    # A refusal would tell that somebody else has one of this name.
    own, is_new = schedules.put("digest", plan(group="pay/all"), Actor("kim", foreign))
    assert is_new
    assert schedules.schedule("digest", foreign) == own
    assert schedules.pause("digest", Actor("kim", foreign))
    assert there(schedules.schedule("digest")).state is ScheduleState.ON
    assert record_of(now()).group == "mail"


def test_there_is_an_end_to_how_many_there_can_be(db, monkeypatch):
    monkeypatch.setattr(verbs, "MOST", 1)
    put()
    with pytest.raises(InvalidInput, match="there can be at most"):
        put("second")


def test_each_is_listed_once_however_many_are_read_at_once(db, monkeypatch):
    monkeypatch.setattr(verbs, "READ_AT_ONCE", 2)
    for name in "abcde":
        put(name)
    put("b", cron="@daily")  # With a new task, the latest one.
    assert [each.name for each in schedules.schedules()] == [*"abcde"]


@pytest.mark.usefixtures("transactional_db")
def test_of_two_who_make_one_of_the_same_name_at_the_same_moment_one_changes_it():
    both = threading.Barrier(2)

    def make(group):
        both.wait(10)
        try:
            return schedules.put("digest", plan(group=group), Actor(group))[1]
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(make, ("mail", "reports"))) == [False, True]
    assert Task.objects.get_queryset().in_group("schedules").count() == 1
