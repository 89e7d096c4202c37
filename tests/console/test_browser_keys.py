"""The console by the keyboard."""

import pytest
from playwright.sync_api import expect

from .store import add, claim, fail

pytestmark = [pytest.mark.browser, pytest.mark.once]


@pytest.mark.parametrize(
    ("key", "path"), [("o", "/console/"), ("f", "/console/failed"), ("w", "/console/workers"), ("a", "/console/audit")]
)
def test_g_and_a_letter_lead_to_a_screen(person, key, path):
    person.go("/console/search")
    person.page.keyboard.press("g")
    person.page.keyboard.press(key)
    expect(person.page).to_have_url(person.address + path)


def test_rows_are_walked_selected_and_opened(person):
    tasks = add(count=3)
    person.go("/console/group?name=mail")
    for key in "jjkjx":
        person.page.keyboard.press(key)
    expect(person.page.locator(f"input[value='{tasks[1].id}']")).to_be_checked()
    expect(person.page.locator("tbody input:checked")).to_have_count(1)
    person.page.keyboard.press("Enter")
    expect(person.page).to_have_url(f"{person.address}/console/task/{tasks[1].id}")


def test_a_range_is_selected_and_requeued(person):
    tasks = add(count=4, timespec_ms=-60_000)
    person.go("/console/group?name=mail")
    boxes = person.page.locator("tbody input[name=id]")
    press(person, "r")
    expect(person.dialog).to_be_hidden()
    boxes.nth(3).check()
    press(person, *"kk", "Shift+X", "Shift+X")
    assert boxes.evaluate_all("all => all.map((one) => one.checked)") == [False, True, True, True]
    press(person, "r")
    expect(person.dialog.get_by_role("heading")).to_contain_text("Requeue 3 tasks")
    press(person, "t", "Escape", "t")
    expect(person.page.locator("html")).to_have_attribute("data-theme", "light")
    boxes.nth(2).focus()
    press(person, "Enter")
    expect(person.page).to_have_url(f"{person.address}/console/task/{tasks[2].id}")
    person.page.wait_for_load_state()
    press(person, "r")
    expect(person.dialog.get_by_role("heading")).to_contain_text("Requeue 1 task")


def test_the_tasks_are_walked_or_the_table_that_was_touched_last(person):
    add(count=2)
    for task in claim(count=2):
        fail(task)
    person.go("/console/group?name=mail&state=retrying")
    press(person, "j", "x")
    expect(person.rows().nth(0)).to_be_checked()
    first = person.page.locator(".signatures tbody tr").first
    person.page.locator(".signatures thead").click()
    press(person, "j")
    expect(first.get_by_role("link").first).to_be_focused()
    person.page.get_by_text("1 error", exact=True).click()
    press(person, "j", "j", "x")
    expect(person.rows().nth(1)).to_be_checked()


def press(person, *keys):
    for key in keys:
        person.page.keyboard.press(key)


def test_the_theme_goes_round(person):
    [task] = add()
    person.go(f"/console/task/{task.id}")
    themes = []
    for _ in range(4):
        press(person, "r", "t")
        themes.append(person.page.locator("html").get_attribute("data-theme"))
    assert themes == ["light", "dark", "system", "light"]
    # What the other key would have done is done already, and it says so.
    expect(person.page.get_by_role("status").filter(has_text="nothing to requeue")).to_be_visible()
    assert {each["name"]: each["value"] for each in person.page.context.cookies()}["theme"] == "light"
    expect(person.dialog).to_be_hidden()


def test_the_keys_are_listed(person):
    person.go("/console/")
    person.page.keyboard.press("?")
    expect(person.page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    person.page.keyboard.press("g")
    person.page.keyboard.press("f")
    person.page.keyboard.press("Escape")
    expect(person.page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_hidden()
    expect(person.page).to_have_url(f"{person.address}/console/")


def test_nobody_who_types_is_taken_elsewhere(person):
    person.go("/console/")
    box = person.page.get_by_label("Search tasks")
    box.focus()
    person.page.keyboard.type("g f j x X r t ?")
    expect(box).to_have_value("g f j x X r t ?")
    expect(person.page.locator("html")).to_have_attribute("data-theme", "system")
