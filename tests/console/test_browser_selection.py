"""Selecting tasks and changing them in Chromium: with the mouse, by keyboard alone, and without scripts."""

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from tasks_app.models import AuditEntry, BulkOperation, Task
from taskstore.types.tasks import State

from ..jobs_store.jobs import enqueued
from .browsing import session_of
from .store import add, claim, fail

pytestmark = [pytest.mark.browser, pytest.mark.once]

GROUP = "/console/group?name=mail"


def alive():
    return list(Task.objects.order_by("id").values_list("id", flat=True))


def test_it_counts_what_is_selected(person):
    add(count=5)
    person.go(GROUP)
    expect(person.page.get_by_text("Select tasks")).to_be_visible()
    person.rows().nth(0).check()
    person.rows().nth(3).check()
    expect(person.page.get_by_text("2 selected")).to_be_visible()
    person.rows().nth(0).uncheck()
    expect(person.page.get_by_text("1 selected")).to_be_visible()


def test_it_keeps_the_selection_when_one_goes_back(person):
    [first, _] = add(count=2)
    person.go(GROUP)
    person.rows().first.check()
    person.page.locator(f'a[href="/console/task/{first.id}"]').click()
    expect(person.page.get_by_role("heading", name="Timeline")).to_be_visible()
    person.page.go_back()
    selected = person.page.locator("tbody input[name=id]:checked").count()
    expect(person.page.get_by_text("1 selected" if selected else "Select tasks")).to_be_visible()


def test_it_closes_by_escape_and_gives_the_focus_back(person):
    add()
    person.go(GROUP)
    person.rows().first.check()
    person.ask("Purge…")
    person.page.keyboard.press("Escape")
    expect(person.dialog).not_to_be_visible()
    expect(person.button("Purge…")).to_be_focused()
    assert len(alive()) == 1


def test_it_keeps_the_focus_in_the_dialog(person):
    add()
    person.go(GROUP)
    person.rows().first.check()
    person.ask("Purge…")
    for _ in range(8):
        person.page.keyboard.press("Tab")
        # On the body while the browser's own bar has the focus.
        assert person.page.evaluate("document.activeElement.matches('body, dialog *')")


def test_it_does_once_what_is_pressed_twice(person):
    add(count=2)
    person.go(GROUP)
    person.rows().first.check()
    person.ask("Purge…")
    person.button("Purge 1 task").dblclick()
    expect(person.page.get_by_text("Purged 1 task in mail.")).to_be_visible()
    assert AuditEntry.objects.count() == 1


def claimed(count):
    add(count=count)
    return claim(count=count)


def test_it_takes_the_whole_tab(person):
    for task in claimed(60):
        fail(task)
    add(count=3)
    person.go(f"{GROUP}&state=retrying")
    person.rows().first.check()
    person.page.get_by_label("All 60 retrying tasks").check()
    person.ask("Requeue…")
    person.button("Requeue 60 tasks").click()
    expect(person.page.get_by_text("Requeued 60 tasks in mail.")).to_be_visible()
    assert not Task.objects.get_queryset().with_error().exists()


def test_it_moves_tasks_to_a_group_that_is_suggested(person):
    add("reports")
    add(count=2)
    person.go(GROUP)
    person.link("Move all…").click()
    to = person.page.get_by_label("To group")
    expect(to).to_be_visible()
    assert person.page.locator("datalist option").evaluate_all("all => all.map(one => one.value)") == ["reports"]
    to.fill("archive")
    person.button("Move 2 tasks").click()
    expect(person.dialog.get_by_text("Must be an existing group, and archive does not exist")).to_be_visible()
    person.page.get_by_label("Create the group if it doesn't exist").check()
    person.button("Move 2 tasks").click()
    expect(person.page.get_by_text("Moved 2 tasks from mail to archive.")).to_be_visible()


def test_it_says_that_the_server_does_not_answer(person):
    add()
    person.go(GROUP)
    person.page.route("**/console/confirm*", lambda route: route.abort())
    person.link("Purge all…").click()
    expect(person.page.get_by_role("dialog", name="The server is not responding")).to_be_visible()


def has_password(person):
    user = User.objects.get(username="olaf")
    user.set_password("a password of my own")
    user.save()
    person.page.context.add_cookies([{"name": "sessionid", "value": session_of(user), "url": person.address}])


def test_it_signs_in_above_the_page_when_the_session_is_over_and_goes_on_with_what_was_selected(person):
    has_password(person)
    add(count=3)
    person.go(GROUP)
    person.rows().first.check()
    person.ask("Purge…")
    person.page.get_by_label("Reason").fill("no longer needed")
    person.page.context.clear_cookies(name="sessionid")
    person.button("Purge 1 task").click()
    expect(person.page.get_by_role("heading", name="Your session has ended")).to_be_visible()
    assert len(alive()) == 3
    person.page.get_by_label("Name").fill("olaf")
    person.page.get_by_label("Password").fill("wrong")
    person.button("Sign in").click()
    expect(person.page.get_by_text("Please enter a correct username and password")).to_be_visible()
    person.page.get_by_label("Password").fill("a password of my own")
    person.button("Sign in").click()
    person.link("Go on").click()
    expect(person.page.get_by_label("Reason")).to_have_value("no longer needed")
    expect(person.rows().first).to_be_checked()
    person.button("Purge 1 task").click()
    expect(person.page.get_by_text("Purged 1 task in mail.")).to_be_visible()
    assert BulkOperation.objects.get().reason == "no longer needed"


@pytest.mark.parametrize("fixture", ["person", "without_scripts"])
def test_what_a_form_sent_after_the_end_of_the_session_is_kept_until_somebody_has_signed_in(
    request, live_server, fixture
):
    person = request.getfixturevalue(fixture)
    has_password(person)
    person.go("/console/add?name=mail")
    person.page.get_by_label("Data").fill("typed\nin two lines")
    person.page.context.clear_cookies(name="sessionid")
    person.button("Add task").click()
    expect(person.page.get_by_text("What you typed is kept")).to_be_visible()
    assert alive() == []
    person.page.get_by_label("Name").fill("olaf")
    person.page.get_by_label("Password").fill("a password of my own")
    person.button("Sign in").click()
    person.button("Send it now").click()
    expect(person.page.get_by_text("Added task")).to_be_visible()
    [task] = Task.objects.all()
    assert bytes(task.data).split() == [b"typed", b"in", b"two", b"lines"]


def test_a_form_stays_as_it_was_typed_while_the_server_is_away(person):
    person.go("/console/add?name=mail")
    person.page.get_by_label("Data").fill("typed")
    person.page.context.set_offline(True)
    person.button("Add task").click()
    expect(person.page.get_by_role("heading", name="The server is not responding")).to_be_visible()
    expect(person.page.get_by_text("Nothing was sent, and what you typed is still here")).to_be_visible()
    person.link("Close").click()
    person.page.context.set_offline(False)
    expect(person.page.get_by_label("Data")).to_have_value("typed")
    person.button("Add task").click()
    expect(person.page.get_by_text("Added task")).to_be_visible()
    assert len(alive()) == 1


def press_until(person, key, selector):
    for _ in range(60):
        if person.page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
        person.page.keyboard.press(key)
    raise AssertionError(f"{selector} is not reached by {key}")


def test_it_selects_asks_and_purges_without_scripts(without_scripts):
    person = without_scripts
    [first, second] = add(count=2)
    person.go(GROUP)
    person.rows().first.check()
    person.button("Purge…").click()
    expect(person.page.get_by_role("heading", name="Purge 1 task from mail?")).to_be_visible()
    person.button("Purge 1 task").click()
    expect(person.page.get_by_text("Purged 1 task in mail.")).to_be_visible()
    assert alive() == [second.id] != [first.id]


def test_it_takes_a_whole_group_without_scripts(without_scripts):
    person = without_scripts
    add(count=2)
    person.go(GROUP)
    person.page.get_by_label("All 2 tasks").check()
    person.button("Purge…").click()
    person.page.get_by_label("Type mail to confirm").fill("nonsense")
    person.button("Purge 2 tasks").click()
    expect(person.page.get_by_text("Type the group's name")).to_be_visible()
    person.page.get_by_label("Type mail to confirm").fill("mail")
    person.button("Purge 2 tasks").click()
    expect(person.page.get_by_text("No tasks in mail")).to_be_visible()
    assert alive() == []


def test_it_adds_filters_and_finds_without_scripts(without_scripts):
    person = without_scripts
    add("reports")
    person.go("/console/add?name=mail")
    person.page.get_by_label("Data").fill("hello")
    person.button("Add task").click()
    expect(person.page.get_by_text("Added task")).to_be_visible()
    [task] = Task.objects.get_queryset().in_group("mail")
    person.page.get_by_label("Search tasks").fill(str(task.id))
    person.page.keyboard.press("Enter")
    expect(person.page).to_have_url(f"{person.address}/console/task/{task.id}")
    person.go("/console/")
    person.page.get_by_label("Filter groups by name").fill("rep")
    person.page.keyboard.press("Enter")
    expect(person.page.locator("tbody tr")).to_have_count(1)
    assert task.state(Task.objects.now_ms()) is State.READY


def test_what_is_selected_and_open_stays_while_a_page_updates(person):
    jobs = [enqueued() for _ in range(3)]
    person.go("/console/jobs")
    person.rows().nth(1).check()
    with person.page.expect_response(lambda response: response.url.endswith("/console/jobs"), timeout=20_000):
        enqueued()
    expect(person.rows()).to_have_count(len(jobs) + 1)
    expect(person.page.get_by_text("1 selected", exact=True)).to_be_visible()
    person.ask("Cancel…")
    expect(person.dialog).to_contain_text("Cancel 1 task")
