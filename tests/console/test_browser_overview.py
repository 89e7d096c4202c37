"""The overview in Chromium, as somebody sees it whose groups are in trouble."""

import time

import pytest
from playwright.sync_api import expect

from tasks_app.control import pauses
from tasks_app.core.actors import Actor
from tasks_app.models import Client, Task
from tasks_app.reading import clients
from taskstore.types.groups import LOST_MS

from .store import add, claim

pytestmark = [pytest.mark.browser, pytest.mark.once]

IN_SIGHT = """
    rows => rows.filter((row) => row.getBoundingClientRect().bottom <= 800).map((row) => row.dataset.liveGroup)
"""


@pytest.fixture(autouse=True)
def groups(live_server):
    for number in range(12):
        add(f"fine-{number}")
    add("images", count=3)
    for number in range(3):
        add(f"paused-{number}")
        pauses.pause(f"paused-{number}", Actor("Ann", reason="deploy"))


def lose(group):
    """A worker that holds all tasks of the group has said nothing for some minutes."""
    claim(group, count=3, owner=7, duration_ms=3_600_000)
    clients.hear(Client(id=7, name="Kim", info="{}", groups=[group]))
    Client.objects.update(seen_at_ms=time.time() * 1_000 - LOST_MS - 60_000)


def row(person, group):
    return person.page.locator(f"[data-live-group={group}]")


def test_six_groups_are_in_sight_the_trouble_first(person):
    lose("images")
    person.go("/console/", width=1280)
    shown = person.page.locator("tbody tr").evaluate_all(IN_SIGHT)
    assert len(shown) >= 6
    assert shown[:4] == ["images", "paused-0", "paused-1", "paused-2"]


def test_trouble_is_told_as_it_comes_and_ended_with_two_presses(person):
    person.page.clock.install()
    person.go("/console/?sort=-name")
    expect(row(person, "images").locator(".status")).to_have_text("Idle")
    lose("images")
    person.page.clock.run_for(11_000)
    expect(row(person, "images").locator(".status")).to_have_text("Worker lost")
    assert row(person, "images").locator(".status use").get_attribute("href").endswith("#lost")
    expect(row(person, "images").locator(".why")).to_have_text(
        "for 3 min: Kim holds 3 tasks until the leases end. Give back 3 leases"
    )
    row(person, "images").get_by_role("link", name="Give back 3 leases").click()
    expect(person.dialog).to_contain_text("Give back 3 tasks in images?")
    person.dialog.get_by_role("button").filter(has_text="Give back 3 tasks").click()
    expect(person.page.locator("#mine")).to_contain_text("Gave back 3 tasks")
    assert Task.objects.get_queryset().in_group("images").filter(owner=0).count() == 3


def test_without_scripts_the_trouble_is_told_too(without_scripts):
    lose("images")
    without_scripts.go("/console/", width=1280)
    expect(row(without_scripts, "images")).to_contain_text("Kim holds 3 tasks until the leases end.")
    row(without_scripts, "images").get_by_role("link", name="Give back 3 leases").click()
    expect(without_scripts.page.locator("#dialog-title")).to_contain_text("Give back 3 tasks in images?")
