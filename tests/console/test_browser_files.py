"""A search that is kept, its tasks as a file, and the file back into the store."""

import re

import pytest
from playwright.sync_api import expect

from tasks_app.models import AuditEntry, Task

from ..accessibility import complaints
from .store import add

pytestmark = [pytest.mark.browser, pytest.mark.once]


def test_a_search_is_kept_found_again_exported_and_imported(person, tmp_path):
    page, q = person.page, "group:mail data:hello"
    add(count=3), add("reports")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    person.go("/console/")
    page.keyboard.press("/")
    page.keyboard.type(q)
    page.keyboard.press("Enter")
    page.get_by_label("Name for this search").press_sequentially("Hello mail")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Saved as Hello mail.")).to_be_visible()

    person.go("/console/")
    page.get_by_label("Search tasks").press_sequentially("hello m")
    expect(page.locator("#suggestions option").first).to_have_attribute("value", q)
    person.button("Saved searches").focus()
    page.keyboard.press("Enter")
    person.link("Hello mail").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".tasks tbody tr")).to_have_count(3)
    person.button("Copy link").click()
    expect(person.button("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == page.url

    with page.expect_download() as begun:
        person.link("NDJSON").click()
    file = tmp_path / begun.value.suggested_filename
    begun.value.save_as(file)
    assert re.fullmatch(r"search-\d{8}T\d{6}Z\.ndjson", file.name)
    assert file.read_text().count("\n") == 3

    person.go("/console/import")
    page.get_by_label("Or paste lines").fill('{"group": "mail", "priority": 101}')
    person.button("Check").click()
    expect(page.get_by_text("line 1: priority")).to_be_visible()
    page.get_by_label("Or paste lines").fill("")
    page.get_by_label("File").set_input_files(file)
    page.get_by_label("Group").fill("again")
    person.button("Check").press("Enter")
    expect(page.get_by_text("3 tasks into again, in one commit:")).to_be_visible()
    assert complaints(page) == []
    assert not person.scrolls_sideways()
    person.button("Import 3 tasks").press("Enter")
    expect(page.get_by_text("Imported 3 tasks into again.")).to_be_visible()
    assert Task.objects.filter(group="again").count() == 3
    assert AuditEntry.objects.get().selection == f"3 tasks from the file {file.name}"
