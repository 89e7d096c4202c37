"""Django's admin in Chromium: its pages work under the strict policy, which the page's fixture watches over."""

import pytest
from playwright.sync_api import Page, expect

from tasks_app.models import Task

from ..people import make_user, signed_in
from .pages import TASKS, add, change_page, claim

pytestmark = [pytest.mark.browser, pytest.mark.once, pytest.mark.usefixtures("transactional_db")]


@pytest.fixture
def administrator(chromium: Page, live_server) -> Page:
    """Ada in front of her browser."""
    client = signed_in(make_user("ada", "admin"))
    chromium.context.add_cookies(
        [{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": live_server.url}]
    )
    chromium.set_viewport_size({"width": 1366, "height": 900})
    return chromium


def test_every_page_obeys_the_policy(administrator, live_server):
    task = add(data=b"hello")
    claim()
    for path in (
        "/admin/",
        "/admin/tasks_app/",
        TASKS,
        f"{TASKS}?group=mail",
        f"{TASKS}add/",
        change_page(task.id + 1),
        "/admin/tasks_app/endedtask/",
        f"/admin/tasks_app/endedtask/{task.id}/change/",
        "/admin/tasks_app/auditentry/",
        "/admin/tasks_app/token/",
        "/admin/auth/user/",
        "/admin/auth/group/",
    ):
        response = administrator.goto(live_server.url + path)
        assert response is not None
        assert response.status == 200, path
        expect(administrator.locator("#site-name")).to_have_text("Task Store")


def test_a_task_is_edited(administrator, live_server):
    old = add(data=b"hello")
    administrator.goto(live_server.url + change_page(old))
    administrator.get_by_label("Data:").fill("hello Bob\nand Ann")
    # Django's own scripts: the calendar's shortcut.
    for shortcut in ("Today", "Now"):
        administrator.locator(".field-available_at").get_by_text(shortcut, exact=True).click()
    administrator.get_by_role("button", name="Save and continue editing").click()
    expect(administrator.locator(".messagelist")).to_contain_text(f"Task {old.id} is now")
    new = Task.objects.get_queryset().get()
    assert administrator.url == live_server.url + change_page(new)
    assert bytes(new.data) == b"hello Bob\nand Ann"


def test_selected_tasks_are_deleted(administrator, live_server):
    first, kept, last = add(), add(), add()
    administrator.goto(live_server.url + TASKS)
    for task in (first, last):
        administrator.locator(f"input[name=_selected_action][value='{task.id}']").check()
    administrator.get_by_label("Action:").select_option(label="Purge selected tasks...")
    administrator.locator("button[name=index]").click()
    administrator.get_by_role("button", name="Purge 2 tasks").click()
    expect(administrator.locator("main")).to_contain_text("Purged 2 tasks")
    assert [task.id for task in Task.objects.get_queryset()] == [kept.id]
