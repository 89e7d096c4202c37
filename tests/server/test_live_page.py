"""The overview and the group page in a browser, while the store changes and the server comes and goes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, WebSocket, expect

from ..accessibility import complaints
from ..behaviour.databases import only_postgresql
from .conftest import new_store
from .harness import Server, Store

pytestmark = pytest.mark.browser

ANN = 1
AGAIN_MS = 30_000  # For what has no promised time.


class Place:
    """A server that can be killed and started again at the same address, and what a worker does to its store."""

    def __init__(self, store: Store, server: Server) -> None:
        self.store = store
        self.server = server
        self.url = server.url

    def add(self, group: str, count: int = 1) -> None:
        self.commit(adds=[{"group": group, "data": "hello"}] * count)

    def claim(self, group: str, count: int = 1) -> None:
        self._post("/claim", group=group, limit=count)

    def finish(self, group: str) -> None:
        self.commit(deletes=[task["id"] for task in self.tasks(group)])

    def empty(self) -> None:
        for group in self._ask("GET", "/groups"):
            self.finish(group)

    def tasks(self, group: str) -> list[dict[str, Any]]:
        tasks: list[dict[str, Any]] = self._ask("GET", "/group", params={"name": group, "owned": "yes"})
        return tasks

    def commit(self, **changes: Any) -> list[int]:
        """Returns the ids of the new tasks."""
        answer = self._post("/update", **changes)
        assert answer["error"] is None
        return [task["id"] for task in answer["tasks"]]

    def start_again(self) -> None:
        port = self.url.rpartition(":")[2]
        self.server = self.store.start("--port", port)
        self.server.wait_until_ready()

    def _post(self, path: str, **body: Any) -> Any:
        return self._ask("POST", path, json={"clientid": ANN, **body})

    def _ask(self, method: str, path: str, **request: Any) -> Any:
        answer = self.server.ask(method, path, self.store.token, **request)
        return answer.raise_for_status().json()


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Place]:
    with new_store(tmp_path_factory.mktemp("live")) as store:
        place = Place(store, store.start())
        try:
            place.server.wait_until_ready()
            place.url = place.server.url
            yield place
        finally:
            place.server.kill()


@pytest.fixture(scope="module")
def cookies(running: Place, browser: Browser) -> list[Any]:
    """What the first admin's browser keeps after signing in."""
    found = re.search(r"with the password (\S+)", running.server.said)
    assert found
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{running.url}/console/")
        page.fill("[name=username]", "admin")
        page.fill("[name=password]", found[1])
        page.press("[name=password]", "Enter")
        page.fill("[name=new_password1]", "correct horse battery")
        page.fill("[name=new_password2]", "correct horse battery")
        page.press("[name=new_password2]", "Enter")
        page.wait_for_selector("[data-live-status]")
        return list(context.cookies())


@pytest.fixture
def place(running: Place) -> Place:
    """A store without tasks."""
    running.empty()
    return running


@pytest.fixture
def page(chromium: Page, place: Place, cookies: list[Any]) -> Page:
    """A page of somebody who is signed in."""
    chromium.context.add_cookies(cookies)
    return chromium


def open_overview(page: Page, place: Place, path: str = "/console/") -> None:
    page.goto(place.url + path)
    expect(page.locator("[data-live-status]")).to_contain_text("live")


def count(page: Page, group: str, state: str) -> Any:
    return page.locator(f'tr[data-live-group="{group}"] [data-live-count="{state}"]')


def total(page: Page, state: str) -> Any:
    return page.locator(f'[data-live-total="{state}"]')


@only_postgresql
def test_a_change_through_another_process_shows_as_soon(page, place):
    place.add("mail")
    open_overview(page, place)
    change = {"clientid": ANN, "adds": [{"group": "mail"}]}
    delays_s = []
    with place.store.up(command="serve --workers 1") as other:
        for number in range(2, 9):
            assert other.ask("POST", "/update", place.store.token, json=change).status_code == 200
            changed_s = time.monotonic()
            expect(count(page, "mail", "ready")).to_have_text(str(number), timeout=AGAIN_MS)
            delays_s.append(time.monotonic() - changed_s)
    assert median(delays_s) < 1, delays_s


def test_rows_and_totals_change_in_place(page, place):
    place.add("mail", 1_234)
    place.add("reports", 2)
    open_overview(page, place)
    row = page.locator('tr[data-live-group="mail"]').element_handle()
    place.claim("mail", 200)
    expect(count(page, "mail", "ready")).to_have_text("1\N{NARROW NO-BREAK SPACE}034")
    expect(count(page, "mail", "claimed")).to_have_text("200")
    expect(total(page, "ready")).to_have_text("1\N{NARROW NO-BREAK SPACE}036")
    expect(total(page, "claimed")).to_have_text("200")
    assert row.evaluate("row => row.isConnected")


@pytest.mark.once
def test_new_groups_wait_until_they_are_asked_for(page, place):
    place.add("mail")
    open_overview(page, place)
    before = page.locator("table.groups").bounding_box()
    for name in ("reports/a", "reports/b", "reports/c"):
        place.add(name)
    expect(page.locator("[data-live-news]")).to_have_text("3 new groups Refresh")
    expect(page.locator("tr[data-live-group]")).to_have_count(1)
    assert page.locator("table.groups").bounding_box() == before
    page.click("[data-live-news] a")
    expect(page.locator("tr[data-live-group]")).to_have_count(4)
    expect(page.locator("[data-live-news]")).to_be_hidden()


@pytest.mark.once
def test_folders_follow_all_that_is_in_them(page, place):
    place.add("mail/in")
    place.add("mail/out", 2)
    place.add("mail")
    open_overview(page, place, "/console/?view=tree")
    folder = page.locator('tr[data-live-folder="mail/"]')
    expect(folder.locator('[data-live-count="ready"]')).to_have_text("3")
    place.claim("mail/out")
    expect(folder.locator('[data-live-count="ready"]')).to_have_text("2")
    expect(folder.locator('[data-live-count="claimed"]')).to_have_text("1")
    expect(folder.locator('rect[data-state="claimed"]')).to_have_attribute("width", re.compile("^333"))
    expect(count(page, "mail", "ready")).to_have_text("1")
    place.add("mail/new", 1_000)
    place.add("reports")
    expect(folder.locator('[data-live-count="ready"]')).to_have_text("1\N{NARROW NO-BREAK SPACE}002")
    expect(folder.locator("[data-live-below]")).to_have_text("3 groups")
    expect(page.locator("[data-live-news]")).to_have_text("2 new groups Refresh")
    folder.locator("button").click()
    expect(count(page, "mail/new", "ready")).to_have_text("1\N{NARROW NO-BREAK SPACE}000")
    expect(page.locator("[data-live-news]")).to_be_hidden()


@pytest.mark.once
def test_the_row_of_a_group_that_is_gone_stays_with_zeros(page, place):
    place.add("mail", 3)
    place.add("reports")
    open_overview(page, place)
    place.finish("mail")
    expect(count(page, "mail", "ready")).to_have_text("0")
    expect(page.locator("[data-live-news]")).to_have_text("1 group removed Refresh")


@pytest.mark.once
def test_a_list_tells_of_tasks_that_have_come_and_gone(page, place):
    place.add("mail", 5)
    open_overview(page, place, "/console/group?name=mail&state=ready")
    news, rows = page.locator(".news"), page.locator(".tasks tbody tr")
    before = page.locator("table.tasks").bounding_box()
    place.add("mail", 1_200)
    place.add("reports")
    expect(news).to_have_text("1\N{NARROW NO-BREAK SPACE}200 more tasks Refresh")
    assert page.locator("table.tasks").bounding_box() == before
    place.claim("mail", 1_000)
    place.claim("mail", 203)
    expect(news).to_have_text("3 fewer tasks Refresh")
    expect(rows).to_have_count(5)
    page.click(".news a")
    expect(rows).to_have_count(2)
    expect(news).to_be_hidden()
    assert page.url.endswith("?name=mail&state=ready")


@pytest.mark.once
def test_what_fails_is_news_where_nothing_had_failed(page, place):
    place.add("mail")
    open_overview(page, place, "/console/failed")
    expect(page.get_by_text("Nothing has failed")).to_be_visible()
    place.commit(adds=[{"group": name, "error": "timed out"} for name in ("mail", "reports")])
    expect(page.locator(".news")).to_have_text("2 more tasks Refresh")
    page.click(".news a")
    expect(page.locator(".signatures tbody tr")).to_have_count(1)
    expect(page.locator(".news")).to_be_hidden()


@pytest.mark.once
def test_the_numbers_stand_still_when_they_are_told_to(page, place):
    place.add("mail")
    open_overview(page, place)
    page.click("[data-live-status] button")
    expect(page.locator("[data-live-status]")).to_contain_text("paused")
    place.add("mail")
    page.wait_for_timeout(1_500)
    expect(count(page, "mail", "ready")).to_have_text("1")
    page.click("[data-live-status] button")
    expect(count(page, "mail", "ready")).to_have_text("2")
    expect(page.locator("[data-live-status]")).to_contain_text("live")


@pytest.mark.once
def test_a_page_asks_for_everything_when_its_tab_comes_into_sight(page, place):
    sent: list[str] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(frame)))
    open_overview(page, place)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_timeout(100)
    assert [json.loads(frame)["type"] for frame in sent] == ["full", "full"]


def test_a_page_comes_back_by_itself_when_the_server_does(page, place):
    place.add("mail")
    sockets: list[WebSocket] = []
    page.on("websocket", lambda socket: sockets.append(socket))
    open_overview(page, place)
    page.evaluate("window.isTheSamePage = true")
    banner = page.locator(".live-banner")
    place.server.kill()
    expect(banner).to_be_visible(timeout=3_000)
    expect(page.locator("[data-live-status]")).to_contain_text("reconnecting")
    place.start_again()
    place.add("mail", 6)
    expect(count(page, "mail", "ready")).to_have_text("7", timeout=5_000)
    expect(banner).to_be_hidden()
    assert page.evaluate("window.isTheSamePage")
    assert len([socket for socket in sockets if not socket.is_closed()]) == 1


@pytest.mark.once
def test_a_page_whose_reader_was_signed_out_says_so_and_goes_on_as_it_was_after_a_sign_in(page, place):
    place.add("mail", 3)
    open_overview(page, place, "/console/group?name=mail")
    rows = page.locator("tbody input[name=id]")
    rows.first.check()
    page.context.clear_cookies()
    place.server.kill()
    place.start_again()
    expect(page.locator("[data-live-status]")).to_contain_text("signed out", timeout=AGAIN_MS)
    banner = page.locator(".live-banner")
    expect(banner).to_contain_text("signed out")
    banner.get_by_role("link", name="Sign in").click()
    page.get_by_label("Name", exact=True).fill("admin")
    page.get_by_label("Password").fill("correct horse battery")
    assert complaints(page) == []
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="Go on").click()
    expect(page.locator("[data-live-status]")).to_contain_text("live", timeout=AGAIN_MS)
    expect(banner).to_be_hidden()
    expect(rows.first).to_be_checked()
    page.get_by_role("button", name="Purge…").click()
    page.get_by_role("button", name="Purge 1 task").click()
    expect(rows).to_have_count(2)


@pytest.mark.once
def test_a_sign_out_in_one_tab_is_told_in_the_others(page, place):
    open_overview(page, place)
    with page.context.new_page() as other:
        open_overview(other, place)
        other.get_by_role("button", name="Account of admin").click()
        other.get_by_role("button", name="Sign out", exact=True).click()
        expect(other.get_by_role("heading", name="Sign in")).to_be_visible()
        expect(page.locator("[data-live-status]")).to_contain_text("signed out", timeout=AGAIN_MS)
