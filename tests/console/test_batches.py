"""Batches in the console: the list, a batch among others, and its changes."""

import html
import re

import pytest

from tasks_app import schedules
from tasks_app.access import tokens
from tasks_app.access.policy import actor_of, scope_of
from tasks_app.live.parts import marks_of
from tasks_app.models import AuditEntry, BulkOperation, Scope, Task
from taskstore.types.batches import Plan
from taskstore.types.tasks import Change, NewTask

from .store import ANN

pytestmark = pytest.mark.django_db


def text(response):
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", response.content.decode())).split())


def made(name="", adds=1, **more):
    return Task.objects.create_batch(owner=ANN, name=name, adds=[NewTask(group="mail")] * adds, **more)


def end(tasks):
    Task.objects.commit(owner=ANN, deletes=[task.id for task in tasks])


def test_batches_are_listed_by_whether_they_are_open(operator):
    assert "No batches yet" in text(operator.get("/console/batches"))
    closed, tasks = made("January", 2)
    end(tasks)
    made("February", 3)
    both = text(operator.get("/console/batches"))
    assert both.index("February") < both.index("January")
    assert "January" not in text(operator.get("/console/batches?tab=open"))
    assert "February" not in text(operator.get("/console/batches?tab=closed"))
    assert "January" not in text(operator.get("/console/batches?filter=FEB"))
    assert operator.get("/console/batches?tab=odd").status_code == 400
    assert operator.get("/console/batches?tab=open&filter=").url == "/console/batches?tab=open"
    assert f"January # {closed.id}".replace(" # ", " #") in both


def test_the_list_says_what_each_batch_waits_for_and_finds_held_and_failed_ones(operator, clock):
    clock.advance(-20 * 60_000)
    made("slow")
    clock.advance(20 * 60_000)
    held, tasks = made("held", hold=True)
    end(tasks)
    stuck, [task] = made("stuck")
    Task.objects.commit(owner=ANN, updates=[Change(id=task.id, group="failed", error="broken")])
    page = text(operator.get("/console/batches"))
    assert "slow #1 open mail stalled for 20 min" in page.replace(f"slow #{held.id - 1}", "slow #1")
    assert f"held #{held.id} held its release" in page
    assert f"stuck #{stuck.id} open what has failed" in page
    only_held, only_failed = (text(operator.get(f"/console/batches?tab={tab}")) for tab in ("held", "failed"))
    assert ("held #" in only_held, "slow" in only_held) == (True, False)
    assert ("stuck" in only_failed, "slow" in only_failed, "held #" in only_failed) == (True, False, False)
    slow = Task.objects.filter(group="mail").values_list("batch", flat=True).first()
    assert "Waits for 1 of 1: mail, stalled for 20 min: 1 ready, no worker claims there: start one." in text(
        operator.get(f"/console/batches/{slow}")
    )


def test_a_batch_and_what_it_added_lead_to_each_other(operator):
    batch, tasks = made("Book", then=Plan((NewTask(group="bind"),), then=Plan((NewTask(group="send"),))))
    end(tasks)
    page = operator.get(f"/console/batches/{batch.id}").content.decode()
    [following] = {int(id) for id in re.findall(r"/console/batches/(\d+)\"", page)} - {batch.id}
    assert f"q=label.after_batch%3A%22{batch.id}%22" in page or f"after_batch%3A{batch.id}" in page
    back = text(operator.get(f"/console/batches/{following}"))
    assert f"Followed batch {batch.id} Book" in back
    task = Task.objects.get(group="bind")
    assert f"/console/batches/{following}" in operator.get(f"/console/task/{task.id}").content.decode()


def test_the_newest_come_first_a_page_at_a_time(operator, monkeypatch):
    monkeypatch.setattr("tasks_app.console.batches.PAGE", 2)
    for name in ("one", "two", "three"):
        made(name)
    page = operator.get("/console/batches").content.decode()
    [after] = re.findall(r'href="\?after=(\d+)" rel="next"', page)
    assert "one" in text(operator.get(f"/console/batches?after={after}"))
    assert operator.get("/console/batches?after=x").status_code == 400


def test_a_batch_is_shown_among_those_around_it(operator):
    later = Plan((NewTask(group="bind"), NewTask(group="bind")), then=Plan((NewTask(group="send"),)))
    top, _ = made("Book", then=later, on_failure=NewTask(group="tell"))
    part, tasks = made("<Chapter>", 4, parent=top.id)
    end(tasks[:1])
    for batch in (top, part):
        page = text(operator.get(f"/console/batches/{batch.id}"))
        for words in (
            "then: 2 tasks in bind, and more",
            "on failure: 1 task in tell",
            "<Chapter>",
            "open, 1 of 4",
            "Book",
        ):
            assert words in page
    assert "Waits for 3 of 4: mail, 3 ready." in page
    assert operator.get("/console/batches/999").status_code == 404


def test_it_is_released_and_deleted(operator, viewer):
    batch, tasks = made("Book", 2, hold=True)
    end(tasks[:1])
    url = f"/console/batches/{batch.id}"
    assert "Release" in text(operator.get(url))
    assert "Release" not in text(viewer.get(url))
    assert "Released batch" in text(operator.post(f"{url}/release", follow=True))
    assert "Delete batch" in text(operator.get(f"{url}/delete"))
    answer = operator.post(f"{url}/delete", {"reason": "the wrong book"})
    operation = BulkOperation.objects.get()
    assert (answer.url, operation.done) == (f"/console/operations/{operation.pk}", 1)
    assert "It was deleted, and adds nothing." in text(operator.get(url))
    operator.post(f"/console/operations/{operation.pk}/undo")
    assert "Waits for 1 of 2: mail, 1 ready." in text(operator.get(url))
    assert set(AuditEntry.objects.values_list("action", flat=True)) == {"release batch", "purge", "undo"}


def test_a_part_of_a_page_has_another_mark_when_it_has_changed():
    batch, tasks = made("Book", 2)
    names = ["batches", f"batch {batch.id} ", "limits", "limit mail", "batch x", "nothing"]
    before = marks_of(names)
    assert marks_of(names) == before
    end(tasks[:1])
    now = marks_of(names)
    assert [name for name in names if now[name] != before[name]] == names[:2]
    Task.objects.set_limits("mail", running=1)
    assert [name for name in names if marks_of(names)[name] != now[name]] == names[2:4]


def test_a_batch_whose_rights_are_lost_says_so_and_is_taken_over(operator):
    token, _ = tokens.create("importer", Scope.WORK)
    batch, tasks = made("Book", then=NewTask(group="end"), scope=scope_of(token))
    url = f"/console/batches/{batch.id}"
    assert "Take over" not in text(operator.get(url))
    tokens.revoke(token)
    end(tasks)
    page = text(operator.get(url))
    assert "It adds nothing until an operator takes it over, or the rights are back." in page
    assert 'no token "importer" is valid any more: what it planned is held' in page
    assert "Take over" in page
    assert "held" in text(operator.get("/console/batches"))
    said = operator.post(f"{url}/release", follow=True)
    assert f"Took over batch {batch.id}." in text(said)
    assert [task.group for task in Task.objects.all()] == ["end"]
    assert AuditEntry.objects.get(action="take over batch").details["problem"].startswith("no token")


def test_a_batch_that_can_not_add_what_it_plans_says_why_and_tries_again(operator, settings):
    batch, tasks = made("Book", then=NewTask(group="end-of-book"))
    settings.TASKSTORE_MAX_GROUPS = 0
    end(tasks)
    url = f"/console/batches/{batch.id}"
    page = text(operator.get(url))
    assert "It could not add what it plans, and stays open." in page
    assert 'group "end-of-book": must be an existing group: the store has' in page
    assert f"Batch {batch.id} still could not add what it plans." in text(operator.post(f"{url}/release", follow=True))


def test_a_schedule_whose_rights_are_lost_says_so_and_is_taken_over(operator):
    token, _ = tokens.create("importer", Scope.OPERATE)
    plan = schedules.SchedulePlan(cron="@daily", task=schedules.PlannedTask(group="mail"))
    schedules.put("nightly", plan, actor_of(token))
    tokens.revoke(token)
    schedules.keep_rights({})
    page = text(operator.get("/console/schedules"))
    assert 'no token "importer" is valid any more: what it planned is held' in page
    assert ("Take over" in page, "store:rights" in page) == (True, False)
    operator.post("/console/schedules/nightly/resume")
    assert schedules.schedules()[0].state == "on"
