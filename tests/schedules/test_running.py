"""What is added when a schedule is due, and what when that was missed."""

import itertools
import json
import threading
from datetime import datetime

import pytest
from django.db import connection

from tasks_app import schedules
from tasks_app.core.actors import Actor
from tasks_app.core.operations import Claim
from tasks_app.managers import TaskManager
from tasks_app.models import Scope, Task
from tasks_app.schedules import PlannedJob, PlannedTask, SchedulePlan, Timetable, running
from tasks_app.schedules.record import LONGEST_RECORD, iso
from tasks_app.schedules.running import LEASE_MS, bring_forward, due_claim, settle, settle_all
from taskstore.errors import InvalidInput, StoreUnavailable
from taskstore.types.job_record import JobRecord
from taskstore.types.scalars import LATEST_MS
from taskstore.types.schedules import CatchUp, ScheduleState
from taskstore.types.tasks import Change, NewTask
from tests.rest_api.api import Api, answered
from tests.server.harness import wait_for

from .schedules import HOUR_MS, OLAF, added, due_of, last_of, look, now, put, task_of, there


def advance_to(clock, at_ms):
    clock.advance(at_ms - clock.now_ms)


def test_it_adds_its_task_when_it_is_due_and_is_due_again_later(clock):
    due_ms = due_of(put())
    advance_to(clock, due_ms + 40)
    assert (look(), look()) == (1, 0)
    [task] = added()
    assert (bytes(task.data), task.labels["schedule"], task.owner) == (b"hello", "digest", 0)
    assert task.labels["due"] == iso(due_ms)
    after = now()
    assert after.next_ms == task_of(after).available_at_ms == due_ms + HOUR_MS
    last = last_of(after)
    assert (last.due_ms, last.origin, last.at_ms) == (due_ms, task.id, due_ms + 40)
    assert not task_of(after).leased


def test_it_enqueues_a_job_with_its_arguments(clock):
    job = PlannedJob(function="reports.build", args=(1,), kwargs={"to": None}, queue="slow", priority=5)
    made, _ = schedules.put("report", SchedulePlan(cron="@hourly", job=job), Actor("olaf"))
    advance_to(clock, due_of(made))
    look()
    [task] = added("jobs/slow")
    record = JobRecord.decode(bytes(task.data))
    assert (record.function, record.args, record.kwargs) == ("reports.build", [1], {"to": None})
    assert (task.priority, task.labels["function"], task.labels["schedule"]) == (5, "reports.build", "report")


def test_what_it_adds_may_have_as_many_labels_as_any_task(clock):
    labels = {f"label {number}": "" for number in range(64)}
    job = PlannedJob(function="reports.build", labels=labels)
    for name, plan in {"job": SchedulePlan(cron="@hourly", job=job), "task": task_plan(labels)}.items():
        made, _ = schedules.put(name, plan, Actor("olaf"))
    with pytest.raises(InvalidInput, match=r"task\.labels: must have at most 64 labels, not 65"):
        schedules.put("more", task_plan({**labels, "tenant": "acme"}), Actor("olaf"))
    advance_to(clock, due_of(made))
    look()
    assert [labels.items() <= task.labels.items() for task in (*added("jobs/default"), *added())] == [True, True]


def task_plan(labels):
    return SchedulePlan(cron="@hourly", task=PlannedTask(group="mail", labels=labels))


@pytest.mark.parametrize(("catch_up", "due"), [("skip", []), ("latest", [3]), ("all", [0, 1, 2, 3])])
def test_what_was_missed_is_made_up_for_as_was_chosen(clock, catch_up, due):
    first_ms = due_of(put(catch_up=CatchUp(catch_up)))
    advance_to(clock, first_ms + 3 * HOUR_MS + 120_000)
    look()
    assert [task.labels["due"] for task in added()] == [iso(first_ms + n * HOUR_MS) for n in due]
    assert now().next_ms == first_ms + 4 * HOUR_MS


def test_who_lost_the_lease_adds_nothing(clock):
    advance_to(clock, due_of(put()))
    [first] = map(Task.of, Task.objects.perform(due_claim()))
    clock.advance(LEASE_MS)
    [second] = map(Task.of, Task.objects.perform(due_claim()))
    settle(second)
    settle(first)
    assert len(added()) == 1


def test_one_that_was_changed_while_it_was_in_hand_adds_nothing(clock):
    advance_to(clock, due_of(put()))
    [held] = map(Task.of, Task.objects.perform(due_claim()))
    schedules.pause("digest", Actor("olaf"))
    settle(held)
    assert added() == []
    assert now().state is ScheduleState.PAUSED


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "invalid schedule"),
        (b"\xff", "invalid schedule"),
        (b"[]", "an object"),
        (b'{"cron": "x", "task": {"group": "mail"}}', "cron"),
        (b'{"cron": "@daily", "zone": "Moon", "task": {"group": "mail"}}', "zone"),
        (b'{"cron": "@daily"}', "exactly one of them"),
        (b'{"cron": "@daily", "job": {}}', "job.function"),
        (b'{"cron": "@daily", "task": {"group": "mail"}, "due": "soon"}', "due"),
        (json.dumps({"cron": "@daily", "task": {"group": "schedules"}}).encode(), "task.group"),
        (
            json.dumps({"cron": "@daily", "task": {"group": "g"}, "paused": {"by": "\ud800", "at": 1}}).encode(),
            "surrogate",
        ),
        (
            b'{"cron": "@daily", "task": {"group": "g"}, "paused": {"by": "x\xed\xa0\x80", "at": 1}}',
            "must be UTF-8 text",
        ),
        (json.dumps({"cron": "@daily", "task": {"group": "mail"}}).encode("utf-16"), "must be UTF-8 text"),
        (b'{"cron": "@daily", "task": {"group": "mail"}}' + b" " * LONGEST_RECORD, "at most 524288 bytes"),
    ],
)
def test_a_broken_one_gets_an_error_that_says_why_and_is_left_alone(clock, data, why):
    broken = put()
    Task.objects.commit(owner=0, updates=[Change(id=broken.id, data=data, release=True)], operator=OLAF)
    assert (look(), look()) == (1, 0)
    after = now()
    assert (after.state, after.next_ms, added()) == (ScheduleState.BROKEN, None, [])
    assert why in task_of(after).error
    assert (task_of(after).available_at_ms, task_of(after).leased) == (LATEST_MS, False)
    # Whoever puts it again puts it right.
    assert (put().state, task_of(now()).error) == (ScheduleState.ON, "")


def test_one_that_fails_does_not_hold_up_the_others(clock, monkeypatch):
    put("first")
    advance_to(clock, due_of(put("second")))

    def fail_for_the_first(task):
        if task.labels["name"] == "first":
            raise RuntimeError("unexpected")
        settle(task)

    monkeypatch.setattr(running, "settle", fail_for_the_first)
    with pytest.raises(RuntimeError):
        settle_all(sorted(map(Task.of, Task.objects.perform(due_claim())), key=lambda task: task.labels["name"]))
    assert [task.labels["schedule"] for task in added()] == ["second"]


def test_one_whose_times_can_not_be_found_stops_alone(clock, monkeypatch):
    """Another zone of the same expression: the search may not end where clocks change."""
    put("first", zone="Pacific/Chatham")
    other = put("second", zone="UTC")
    found = Timetable._times

    def stuck_now(self, at_ms):
        return itertools.repeat(0) if at_ms and self.zone == "Pacific/Chatham" else found(self, at_ms)

    monkeypatch.setattr(Timetable, "_times", stuck_now)
    bring_forward()  # While they wait.
    advance_to(clock, due_of(other) + HOUR_MS)
    assert look() == 2
    assert {task.labels["schedule"] for task in added()} == {"second"}
    [broken] = [task for task in added("schedules") if task.error]
    assert "due times between two looks" in broken.error
    assert look() == 0


def test_a_task_that_has_no_name_and_a_second_one_of_a_name_are_broken(clock):
    good = put()
    data = bytes(task_of(good).data)
    Task.objects.commit(
        owner=0,
        adds=[NewTask(group="schedules", data=data), NewTask(group="schedules", data=data, labels={"name": "digest"})],
    )
    assert look() == 2
    errors = [task.error for task in added("schedules")]
    assert [error[:16] for error in errors] == ["", "invalid schedule", "must have a uniq"]
    assert now().id == good.id


def test_one_that_was_made_available_by_hand_waits_until_it_is_due(clock):
    for is_paused in (False, True):
        before = put()
        if is_paused:
            before = there(schedules.pause("digest", Actor("olaf")))
        task = task_of(before)
        Task.objects.commit(owner=0, updates=[Change(id=task.id, release=True)], operator=OLAF)
        assert look() == 1
        assert (bytes(task_of(now()).data), task_of(now()).available_at_ms) == (bytes(task.data), task.available_at_ms)
    assert added() == []


@pytest.mark.usefixtures("transactional_db")
def test_a_process_without_a_server_adds_what_is_due_and_goes_on_after_trouble(monkeypatch, caplog):
    put(cron="every 1s")
    stop, troubled = threading.Event(), iter((StoreUnavailable("no database"), ZeroDivisionError()))
    claim = TaskManager.perform

    def perform(self, operation):
        if isinstance(operation, Claim) and (trouble := next(troubled, None)):
            raise trouble
        return claim(self, operation)

    monkeypatch.setattr(TaskManager, "perform", perform)
    monkeypatch.setattr(running, "LOOK_EVERY_S", 0.05)
    thread = threading.Thread(target=schedules.work, args=(stop,))
    thread.start()
    try:
        wait_for(added, "a task")
    finally:
        stop.set()
        thread.join(10)
    assert not thread.is_alive()
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


@pytest.mark.parametrize("kind", ["served", *(["served_by_uvicorn"] if connection.vendor == "postgresql" else [])])
def test_beside_the_writer_it_waits_for_what_is_due_and_goes_on_after_trouble(request, kind, monkeypatch):
    server = request.getfixturevalue(kind)
    is_broken = threading.Event()

    def troubled(task):
        is_broken.set()
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(running, "settle", troubled)
        patch.setattr(running, "LEASE_MS", 200)
        scheduler = server.run(begun())
        server.writer.keep(scheduler)
        put(cron="every 1s")
        assert is_broken.wait(10)
    wait_for(added, "a task")
    [first, *_] = added()
    assert first.made_at_ms - last_due_ms(first) < 1_000


async def begun():
    return schedules.Scheduler()


def last_due_ms(task):
    return round(datetime.fromisoformat(task.labels["due"]).timestamp() * 1_000)


def test_a_clock_that_was_ahead_once_keeps_no_schedule_waiting(clock, caplog):
    put("paused"), put("right")
    schedules.pause("paused", Actor("olaf"))
    begin_ms = clock.now_ms
    clock.set(begin_ms + 399 * 24 * HOUR_MS)
    put("ahead")
    clock.set(begin_ms)
    before = {name: now(name).id for name in ("paused", "right")}
    bring_forward()
    assert begin_ms < due_of(now("ahead")) <= begin_ms + HOUR_MS
    assert task_of(now("ahead")).available_at_ms == due_of(now("ahead"))
    assert there(schedules.schedule("ahead")).state is ScheduleState.ON
    assert "schedule ahead was to be due at" in caplog.text
    assert {name: now(name).id for name in ("paused", "right")} == before
    bring_forward()
    assert caplog.text.count("was to be due at") == 1


# ---- Schedules over the API: what is answered, what is refused, and to whom


PLAN = {"cron": "@hourly", "task": {"group": "mail", "data": "hello"}}


@pytest.fixture
def operator(db):
    return Api(Scope.OPERATE)


def send(api, method, path, body=None):
    return answered(api.http.generic(method, path, json.dumps(body) if body is not None else ""))


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"cron": "0 0 30 2 *"}, ["cron"]),
        ({"cron": "nonsense", "zone": "Moon/Base"}, ["zone", "cron"]),
        ({"cron": None}, ["cron"]),
        ({"catch_up": "some"}, ["catch_up"]),
        ({"task": None}, ["task"]),
        ({"job": {"function": "f"}}, ["job"]),
        ({"task": {}}, ["task.group"]),
        ({"task": {"group": "schedules"}}, ["task.group"]),
        ({"task": {"group": "mail", "priority": 101}}, ["task.priority"]),
        ({"task": {"group": "mail", "labels": {"due": "x"}}}, ["task.labels.due"]),
        ({"task": {"group": "mail", "data": "x" * 70_000}}, ["task.data"]),
        ({"task": None, "job": {"function": "", "queue": "a/b"}}, ["job.function", "job.queue"]),
        ({"task": None, "job": {"function": "f", "options": {"max_attempts": 0}}}, ["job.options.max_attempts"]),
        ({"task": None, "job": {"function": "f", "options": {"memory_bytes": 7}}}, ["job.options.memory_bytes"]),
        ({"task": None, "job": {"function": "f", "kwargs": [1]}}, ["job.kwargs"]),
        ({"due": 7}, ["due"]),
    ],
)
def test_what_makes_no_sense_is_named(operator, change, fields):
    status, answer = send(operator, "PUT", "/schedules/digest", {**PLAN, **change})
    assert (status, sorted(answer["errors"])) == (400, sorted(fields))
    assert not Task.objects.exists()


def test_a_broken_one_says_why(operator):
    broken = put()
    operator.committed(clientid=task_of(broken).owner, deletes=[broken.id])
    operator.add("schedules", data="{}", labels={"name": "digest"})
    _, [answer] = operator.get("/schedules")
    assert (answer["state"], answer["next"], "cron" in answer) == ("broken", None, False)
    assert "cron: is required" in answer["error"]
    assert operator.post("/schedules/digest/pause", {})[0] == 400


def test_a_token_for_other_groups_neither_sees_nor_makes_it(db):
    put()
    kim = Api(Scope.OPERATE, ("pay/*",))
    assert kim.get("/schedules") == (200, [])
    assert kim.get("/schedules/digest")[0] == 404
    assert send(kim, "DELETE", "/schedules/digest")[0] == 404
    assert send(kim, "PUT", "/schedules/other", PLAN)[0] == 403
    status, answer = send(kim, "PUT", "/schedules/digest", {**PLAN, "task": {"group": "pay/all"}})
    assert (status, answer["task"]["group"]) == (200, "pay/all")
    assert kim.get("/schedules/digest")[1]["task"]["group"] == "pay/all"
    assert send(kim, "PUT", "/schedules/payday", {**PLAN, "task": {"group": "pay/all"}})[0] == 200
