"""Operations on many tasks in Chromium, on each database: asked about, begun, followed, cancelled, undone."""

import re

import pytest
from playwright.sync_api import expect

from tasks_app import bulk
from tasks_app.bulk import Requeue, Selection
from tasks_app.models import BulkOperation, Task

from ..people import make_user
from .browsing import Person
from .store import add, change_all, fail
from .test_browser_selection import GROUP, alive, claimed, press_until

pytestmark = [pytest.mark.browser, pytest.mark.once]


def test_it_says_in_the_dialog_what_is_wrong(person):
    add(count=2)
    person.go(GROUP)
    person.link("Purge all…").click()
    person.page.get_by_label("Reason").fill("kept")
    person.page.get_by_label("Type mail to confirm").fill("male")
    person.button("Purge 2 tasks").click()
    expect(person.dialog.get_by_text("Type the group's name, mail, to confirm")).to_be_visible()
    expect(person.page.get_by_label("Type mail to confirm")).to_be_focused()
    expect(person.page.get_by_label("Reason")).to_have_value("kept")
    assert len(alive()) == 2
    person.page.get_by_label("Type mail to confirm").fill("mail")
    person.button("Purge 2 tasks").click()
    expect(person.page.get_by_text("Purged 2 tasks in mail.")).to_be_visible()


def test_it_shows_the_new_number_when_much_has_changed_since_the_question(person):
    tasks = claimed(30)
    fail(tasks.pop())
    person.go(GROUP)
    person.link("Requeue retrying…").click()
    expect(person.button("Requeue 1 task")).to_be_visible()
    for task in tasks[:20]:
        fail(task)
    person.button("Requeue 1 task").click()
    expect(person.dialog.get_by_text("The selection changed from 1 to 21 tasks. Review and confirm.")).to_be_visible()
    person.button("Requeue 21 tasks").click()
    expect(person.page.get_by_text("Requeued 21 tasks in mail.")).to_be_visible()


def test_it_keeps_the_selection_from_page_to_page_and_for_what_is_new(person):
    for task in claimed(60):
        fail(task)
    person.go(f"{GROUP}&state=retrying")
    person.rows().nth(0).click()
    person.rows().nth(2).click(modifiers=["Shift"])
    person.link("Next").click()
    expect(person.page.get_by_text("3 selected, 3 on other pages")).to_be_visible()
    person.rows().nth(0).check()
    add(count=1, error="new")
    person.page.reload()
    expect(person.page.get_by_text("4 selected, 3 on other pages")).to_be_visible()
    person.ask("Requeue…")
    person.button("Requeue 4 tasks").click()
    expect(person.page.get_by_text("Requeued 4 tasks in mail.")).to_be_visible()
    expect(person.page.get_by_text("Select tasks")).to_be_visible()
    assert Task.objects.get_queryset().with_error().count() == 57


def test_it_searches_selects_all_requeues_watches_and_undoes_by_keyboard_alone(person):
    for task in claimed(3):
        fail(task, "timed out")
    press = person.page.keyboard.press
    person.go("/console/")
    press("/")
    person.page.keyboard.type("error:timed")
    press("Enter")
    expect(person.page.get_by_role("heading", name="Search for error:timed")).to_be_visible()
    press("j")
    press("x")
    press_until(person, "Shift+Tab", "[data-select-all]")
    press("Space")
    press("r")
    expect(person.link("Cancel")).to_be_focused()
    press("Tab")
    press("Enter")
    expect(person.page.get_by_text("Requeued 3 tasks in mail.")).to_be_visible()
    assert not Task.objects.get_queryset().with_error().exists()
    press("u")
    expect(person.link("Cancel")).to_be_focused()
    press("Tab")
    press("Enter")
    expect(person.page.get_by_role("heading", name="Undo, operation")).to_be_visible()
    expect(person.page.locator("#operation").get_by_text("Restored 3 tasks in mail.")).to_be_visible()
    assert Task.objects.get_queryset().with_error().count() == 3


def test_it_tells_how_far_an_operation_has_come_and_cancels_it(person, monkeypatch):
    monkeypatch.setattr(bulk.starting, "AT_ONCE_S", 0)
    monkeypatch.setattr(bulk.running, "MOST", 2)
    add(count=5)
    person.go(GROUP)
    person.link("Move all…").click()
    person.page.get_by_label("To group").fill("archive")
    person.page.get_by_label("Create the group if it doesn't exist").check()
    person.button("Move 5 tasks").click()
    toast = person.page.locator(".toast")
    expect(toast.get_by_text("Moving 5 tasks from mail to archive")).to_be_visible()
    expect(toast.locator("span", has_text="2 of 5")).to_be_visible()
    operation = BulkOperation.objects.get()
    bulk.running.run(operation.pk, seconds=0)
    expect(toast.locator("span", has_text="4 of 5")).to_be_visible()
    person.page.reload()
    toast.get_by_role("button", name="Stop").click()
    expect(
        person.page.locator("#operation").get_by_text("Moved 4 tasks from mail to archive. Cancelled by")
    ).to_be_visible()
    monkeypatch.setattr(bulk.running, "MOST", 50)
    person.link("Undo…").first.click()
    person.button("Undo 4 tasks").click()
    expect(person.page.locator("#operation").get_by_text("Restored 4 tasks")).to_be_visible()
    assert Task.objects.get_queryset().in_group("mail").count() == 5


def test_it_brings_back_what_was_purged_also_from_the_audit(person):
    [task, _] = add(count=2, data=b"kept", labels={"a": "b"}, priority=3)
    person.go(GROUP)
    person.link("Purge all…").click()
    person.page.get_by_label("Type mail to confirm").fill("mail")
    person.button("Purge 2 tasks").click()
    expect(person.page.get_by_text("Purged 2 tasks in mail.")).to_be_visible()
    assert alive() == []
    person.go("/console/audit")
    person.link("purge").click()
    person.page.locator("main dd a[href^='/console/operations/']").click()
    person.page.locator("#operation").get_by_role("link", name="Undo…").click()
    person.page.get_by_label("Reason").fill("it was the wrong group")
    person.button("Undo 2 tasks").click()
    expect(person.page.locator("#operation").get_by_text("Restored 2 tasks in mail.")).to_be_visible()
    undo = BulkOperation.objects.get(verb="undo")
    assert undo.reason == "it was the wrong group"
    person.go("/console/operations")
    expect(person.page.get_by_role("row", name="Purge").get_by_text(f"undone by #{undo.pk}")).to_be_visible()
    [back] = Task.objects.filter(origin=task.id)
    assert (bytes(back.data), back.labels, back.priority) == (b"kept", {"a": "b"}, 3)


def test_a_viewer_sees_what_was_done_and_no_way_to_do_it(chromium, live_server):
    add(count=2)
    operation = change_all(Requeue, Selection(q="group:mail"))
    viewer = Person(chromium, live_server.url, make_user("vera", "viewer"))
    for path in (GROUP, "/console/search?q=group:mail", f"/console/operations/{operation.pk}"):
        viewer.go(path)
        expect(viewer.page.locator("main input[name=id]")).to_have_count(0)
        for verb in ("Requeue", "Move", "Edit", "Purge", "Undo", "Cancel", "Pause", "Add", "Import"):
            expect(viewer.page.locator("main :is(a, button)", has_text=re.compile(f"^{verb}"))).to_have_count(0)
