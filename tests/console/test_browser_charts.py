"""Charts and ages that keep themselves right, in Chromium."""

import re

import pytest
from playwright.sync_api import expect

from tasks_app.models import Task

from ..test_rates import happen
from .browsing import Person, operator
from .store import add, keep_level

pytestmark = [pytest.mark.browser, pytest.mark.once]


def last_minute() -> int:
    return Task.objects.now_ms() // 60_000 - 1


def test_a_chart_says_the_time_and_the_numbers_at_the_pointer(person):
    add()
    happen(last_minute() - 30, entered=9)
    person.go("/console/")
    plot = person.page.locator("[data-chart=flow] .u-over")
    plot.hover()
    expect(person.page.locator("[data-chart=flow] [data-time]")).not_to_be_empty()


def test_charts_are_drawn_anew_in_another_theme(person):
    add()
    happen(last_minute(), entered=1)
    person.go("/console/")
    expect(person.page.locator("[data-chart=flow] canvas")).to_have_count(1)
    person.page.evaluate("document.querySelector('[data-chart=flow] canvas').dataset.old = 'yes'")
    person.page.evaluate("document.documentElement.dataset.theme = 'dark'")
    expect(person.page.locator("[data-chart=flow] canvas:not([data-old])")).to_have_count(1)


def test_without_anything_that_happened_it_says_so(person):
    add()
    person.go("/console/")
    expect(person.page.locator("[data-chart=flow][data-empty]")).to_be_visible()


def test_rates_and_lines_keep_themselves_right(browser, live_server):
    add()
    with browser.new_context() as context:
        context.clock.install()
        person = Person(context.new_page(), live_server.url, operator())
        person.go("/console/")
        rate = person.page.locator("tr[data-live-group=mail] [data-flow=out]")
        line = person.page.locator("[data-flow=ready-level] polyline")
        expect(rate).to_have_text("0")
        expect(line).to_have_count(0)
        keep_level(last_minute(), ready=1), keep_level(last_minute() - 1)
        happen(last_minute() + 1, left=120)
        context.clock.run_for(11_000)
        expect(rate).not_to_have_text("0")
        expect(line).to_have_attribute("points", re.compile(r"^0,20 .*,0$"))
