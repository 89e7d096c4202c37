"""The schedules in a browser: one is written down, with its due times in sight, and stopped."""

import pytest
from playwright.sync_api import expect

from ..accessibility import complaints
from ..people import make_user
from ..schedules.schedules import now, record_of
from .browsing import Person

pytestmark = [pytest.mark.browser, pytest.mark.once]


@pytest.fixture
def person(chromium, live_server) -> Person:
    return Person(chromium, live_server.url, make_user("olaf", "operator", "see payloads"))


def test_one_is_made_with_its_due_times_in_sight_and_paused(person):
    page = person.page
    person.go("/console/")
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.get_by_role("link", name="Create one here").click()
    times = page.locator("#times")
    page.get_by_label("Name", exact=True).fill("nightly report")
    page.get_by_label("Cron").fill("30 2 * * *")
    expect(times).to_contain_text("At 02:30 every day. Next:")
    page.get_by_role("combobox", name="Time zone").fill("Europe/Berlin")
    expect(times).to_contain_text("Europe/Berlin time")
    expect(times.locator("li")).to_have_count(5)
    page.get_by_label("Cron").fill("0 0 30 2 *")
    expect(times).to_contain_text("Cron: must match a date that exists: there is no day 30 in month 2")
    assert complaints(page) == []
    page.get_by_label("Cron").fill("@daily")
    expect(page.get_by_label("Group", exact=True)).to_be_visible()
    page.get_by_role("radio", name="job a function").check()
    expect(page.get_by_label("Group", exact=True)).to_be_hidden()
    page.get_by_label("Function", exact=True).fill("reports.build")
    page.get_by_label("Keyword arguments").fill('{"of": "yesterday"}')
    person.button("Create schedule").click()
    expect(page.get_by_role("status").filter(has_text="Created schedule nightly report")).to_be_visible()
    assert record_of(now("nightly report")).group == "jobs/default"
    page.get_by_text("More", exact=True).click()
    page.get_by_role("link", name="Pause… nightly report").click()
    expect(person.dialog).to_contain_text("The schedule adds nothing until someone resumes it")
    expect(person.link("Cancel")).to_be_focused()
    assert complaints(page) == []
    person.button("Pause schedule").click()
    expect(page.get_by_role("row", name="nightly report")).to_contain_text("paused")
