"""Django's admin in Chromium: its pages work under the strict policy, which the page's fixture watches over."""

import pytest
from playwright.sync_api import Page, expect

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
