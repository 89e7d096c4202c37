"""Groups as a tree in Chromium: with the mouse, by keyboard, and without scripts."""

import pytest
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import expect

from tasks_app.models import Task
from taskstore.types.tasks import NewTask

from ..jobs.workers import eventually
from ..test_rates import happen
from .store import ANN, add
from .test_browser_charts import last_minute

pytestmark = [pytest.mark.browser, pytest.mark.once]

HOSTILE = '"><img src=x onerror=alert(1)>'


@pytest.fixture(autouse=True)
def groups(live_server):
    for name in ("mail", "mail/in", "mail/out", "reports/a", "reports/b", f"{HOSTILE}/a", f"{HOSTILE}/b"):
        add(name)


def see(person, names):
    """Wait for these groups and folders: without scripts, each click loads another page."""
    eventually(lambda: shown(person) == names)
    assert shown(person) == names


def shown(person):
    try:
        names = person.page.locator("tbody tr").evaluate_all(
            "rows => rows.map((row) => row.dataset.liveGroup ?? row.dataset.liveFolder)"
        )
    except PlaywrightError:  # The page went away meanwhile.
        return []
    return [name for name in names if not name.startswith(HOSTILE)]


def finish(group):
    """Its only task; another one comes instead."""
    task = Task.objects.get_queryset().in_group(group).get()
    Task.objects.commit(owner=ANN, adds=[NewTask(group=group, data=b"")], deletes=[task.id])


def folder(person, prefix):
    return person.page.get_by_role("button", name=prefix, exact=True)


def test_folders_open_and_close_and_stay_as_they_are(person):
    person.go("/console/?sort=name")
    person.link("Tree").click()
    expect(person.link("Tree")).to_have_attribute("aria-current", "true")
    expect(person.link("Flat")).not_to_have_attribute("aria-current", "true")
    expect(folder(person, "mail/")).to_have_attribute("aria-expanded", "false")
    see(person, ["mail", "mail/", "reports/"])
    folder(person, f"{HOSTILE}/").click()
    expect(person.link(f"{HOSTILE}/b")).to_be_visible()
    # By the keyboard; the focus stays where it was.
    person.link("mail").focus()
    person.page.keyboard.press("j")
    person.page.keyboard.press("Enter")
    expect(folder(person, "mail/")).to_have_attribute("aria-expanded", "true")
    expect(folder(person, "mail/")).to_be_focused()
    person.page.keyboard.press("j")
    expect(person.link("mail/in")).to_be_focused()
    opened = ["mail", "mail/", "mail/in", "mail/out", "reports/"]
    see(person, opened)
    # It survives a reload, a filter and another order.
    person.page.reload()
    see(person, opened)
    person.page.get_by_label("Filter groups by name").fill("reports/b")
    expect(person.page.locator("tbody tr")).to_have_count(1)
    person.page.get_by_label("Filter groups by name").fill("")
    expect(folder(person, "mail/")).to_have_attribute("aria-expanded", "true")
    person.link("Group").click()
    expect(person.page.locator("th[aria-sort=descending]")).to_have_text("Group")
    see(person, ["reports/", "mail/", "mail/out", "mail/in", "mail"])
    folder(person, "mail/").click()
    expect(folder(person, "mail/")).to_have_attribute("aria-expanded", "false")
    see(person, ["reports/", "mail/", "mail"])


def test_back_and_forward_lead_through_the_arrangements_without_a_reload(person):
    person.go("/console/?sort=name")
    person.page.evaluate("window.isSamePage = true")
    person.link("Tree").click()
    folder(person, "mail/").click()
    expect(folder(person, "mail/")).to_have_attribute("aria-expanded", "true")
    person.page.get_by_label("Filter groups by name").fill("reports")
    expect(person.page.locator("tbody tr")).to_have_count(3)
    person.page.go_back()
    expect(folder(person, "mail/")).to_have_attribute("aria-expanded", "false")
    expect(person.page.get_by_label("Filter groups by name")).to_have_value("")
    person.page.go_back()
    expect(person.link("Flat")).to_have_attribute("aria-current", "true")
    expect(person.link("mail/in")).to_be_visible()
    person.page.go_forward()
    expect(folder(person, "mail/")).to_have_attribute("aria-expanded", "false")
    person.page.go_forward()
    expect(person.page.get_by_label("Filter groups by name")).to_have_value("reports")
    expect(person.page.locator("tbody tr")).to_have_count(3)
    assert person.page.evaluate("window.isSamePage")


def test_folders_open_and_close_without_scripts(without_scripts):
    person = without_scripts
    person.go("/console/?sort=name")
    person.link("Tree").click()
    folder(person, "mail/").click()
    folder(person, f"{HOSTILE}/").click()
    see(person, ["mail", "mail/", "mail/in", "mail/out", "reports/"])
    expect(person.link(f"{HOSTILE}/b")).to_be_visible()
    folder(person, "mail/").click()
    see(person, ["mail", "mail/", "reports/"])
    expect(person.link(f"{HOSTILE}/b")).to_be_visible()


def test_rates_of_the_rows_in_sight_keep_themselves_right(person):
    for number in range(40):
        add(f"web-{number}")
    person.page.clock.install()
    person.go("/console/?view=tree&sort=name&open=reports/")
    asked: list[str] = []
    person.page.on("request", lambda request: asked.append(request.url) if "/flow?" in request.url else None)
    happen(last_minute() - 1, group="mail/in", entered=120)
    finish("mail/in")
    rates = person.page.locator("[data-live-folder='mail/'] .count[data-flow]")
    before = rates.nth(0).locator("time").get_attribute("datetime")
    person.page.locator("[data-live-folder='reports/']").scroll_into_view_if_needed()
    person.page.locator("[data-live-group=mail] .out").hover()
    finish("mail")
    person.page.clock.run_for(11_000)
    expect(rates.nth(2)).not_to_have_text("0")
    expect(person.page.locator("[data-live-folder='mail/'] polyline")).to_have_count(1)
    # The same stays untouched, and so does what is under the pointer.
    assert rates.nth(0).locator("time").get_attribute("datetime") == before
    expect(person.page.locator("[data-live-group=mail] .out")).to_have_text("0")
    assert asked
    assert "web-39" not in "".join(asked)
