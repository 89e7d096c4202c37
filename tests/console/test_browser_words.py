"""What scripts add to the pages: times that stay right, keys, copying, the filter, bars."""

import re

import pytest
from playwright.sync_api import expect

from tasks_app.console import words

from .browsing import Person, operator
from .store import add, claim

pytestmark = [pytest.mark.browser, pytest.mark.once]


def times(person):
    """The times of the list: what is shown, and the moment itself."""
    return person.page.locator("tbody time").evaluate_all("all => all.map(one => [one.textContent, one.dateTime])")


def test_it_says_relative_times_in_the_words_of_the_server(person):
    for delay_s in (30, 90, 7_300, 90_000, 1_234 * 86_400 + 10):
        add(timespec_ms=-delay_s * 1_000)
    person.go("/console/group?name=mail")
    shown = [text for text, _ in times(person)]
    assert [re.sub(r"\d+ s$", "s", text) for text in shown] == [
        "in s",
        "in 1 min",
        "in 2 h",
        "in 1 d",
        "in 1\u202f234 d",
    ]


def test_it_goes_by_the_clock_of_the_server(browser, live_server):
    add(timespec_ms=-7_200_000)
    # The clock is that of all pages of a context.
    with browser.new_context() as context:
        context.clock.install(time="2001-01-01T00:00:00Z")
        person = Person(context.new_page(), live_server.url, operator())
        person.go("/console/group?name=mail")
        [[text, _]] = times(person)
    assert text == "in 1 h"


def test_it_counts_a_lease_down_and_says_when_it_ran_out(person):
    add()
    claim(duration_ms=3_000)
    person.go("/console/group?name=mail")
    lease = person.page.locator("tbody time")
    expect(lease).to_have_text(re.compile(r"ends in 0:0[0-3]"))
    expect(lease).to_have_text(re.compile("ended"), timeout=6_000)


def test_it_says_times_in_the_zone_that_was_chosen(browser, live_server):
    [task] = add()
    with browser.new_context(timezone_id="Asia/Kolkata", locale="en-US") as context:
        person = Person(context.new_page(), live_server.url, operator())
        person.go("/console/group?name=mail")
        exact = person.page.locator("tbody time")
        expect(exact).to_have_attribute("data-exact", re.compile(r"GMT\+5:30$"))
        person.page.get_by_role("button", name="Account of olaf").click()
        person.page.get_by_label("Time zone").select_option("UTC")
        expect(exact).to_have_attribute("data-exact", words.exact(task.available_at_ms))
        person.page.reload()
        expect(exact).to_have_attribute("data-exact", words.exact(task.available_at_ms))
        person.button("Account of olaf").click()
        person.page.get_by_label("Time zone").select_option("America/St_Johns")
        expect(exact).to_have_attribute("data-exact", re.compile(r"GMT-[23]:30$"))
        person.page.evaluate("localStorage.setItem('taskstore.zone', 'Atlantis/Poseidonis')")
        person.page.reload()
        expect(exact).to_have_attribute("data-exact", re.compile(r"GMT\+5:30$"))
        expect(person.page.get_by_label("Time zone", exact=True)).to_have_value("")


def test_it_goes_to_the_search_by_a_key_that_can_be_turned_off(person):
    add()
    person.go("/console/")
    find = person.page.get_by_label("Search tasks")
    person.page.keyboard.press("/")
    expect(find).to_be_focused()
    person.page.get_by_role("button", name="Account of olaf").click()
    person.page.get_by_label("Keyboard shortcuts (").uncheck()
    person.page.reload()
    person.page.keyboard.press("/")
    expect(find).not_to_be_focused()


def test_it_copies_a_command(person):
    person.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    person.go("/console/")
    person.button("Copy").click()
    expect(person.button("Copied")).to_be_visible()
    copied = person.page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("TOKEN=$(")
    assert f"curl {person.address}/update" in copied


def test_it_filters_while_one_types_and_keeps_it_in_the_address(person):
    for name in ("mail", "mail/bounces", "reports"):
        add(name)
    person.go("/console/?sort=name")
    person.page.get_by_label("Filter groups by name").press_sequentially("MAIL")
    expect(person.page.locator("tbody tr")).to_have_count(2)
    expect(person.page.get_by_label("Filter groups by name")).to_be_focused()
    expect(person.page.locator("#groups-note")).to_have_text("2 of 3")
    assert "filter=MAIL" in person.page.url
    assert "sort=name" in person.page.url
    person.page.reload()
    expect(person.page.locator("tbody tr")).to_have_count(2)


def test_a_label_filters_and_each_term_can_be_taken_out(person):
    add(labels={"tier": "gold", "region": "eu"}), add(labels={"tier": "gold"}), add(labels={"tier": "tin"})
    rows = person.page.locator(".tasks tbody tr")
    person.go("/console/group?name=mail")
    person.link("tier=gold").first.click()
    expect(rows).to_have_count(2)
    person.link("region=eu").click()
    expect(rows).to_have_count(1)
    expect(person.page.get_by_label("Search tasks")).to_have_value('group:"mail" label.tier:gold label.region:eu')
    person.link("Remove label.tier:gold").click()
    person.link("Remove label.region:eu").click()
    expect(rows).to_have_count(3)
    person.go("/console/group?name=mail")
    person.page.get_by_label("Filter by label").fill("tier:tin")
    person.page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    expect(person.link("Remove label.tier:tin")).to_be_visible()


def test_the_search_box_suggests_what_could_come_next(person):
    add("mail"), add("my mail")
    person.go("/console/")
    box = person.page.get_by_label("Search tasks")
    box.press_sequentially("state:ready group:m")
    expect(person.page.locator("#suggestions option")).to_have_count(2)
    values = person.page.locator("#suggestions option").evaluate_all("options => options.map((each) => each.value)")
    assert values == ["state:ready group:mail", 'state:ready group:"my mail"']
    box.fill(values[1])
    person.page.keyboard.press("Enter")
    expect(person.page.locator(".tasks tbody tr")).to_have_count(1)
    expect(box).to_have_value(values[1])
