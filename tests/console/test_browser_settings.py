"""The settings in a browser: a token from its making to its end, and all of it without a script."""

import pytest
from playwright.sync_api import expect

from tasks_app.access import tokens
from tasks_app.models import Token

from ..accessibility import complaints
from ..people import make_user
from .browsing import Person

pytestmark = [pytest.mark.browser, pytest.mark.once]

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def person(chromium, live_server) -> Person:
    return Person(chromium, live_server.url, make_user("ada", "admin"))


def make(person: Person, name: str) -> str:
    """Fill in the form for a token. Returns what is shown of it."""
    person.link("New token").click()
    person.page.get_by_role("textbox", name="Name").fill(name)
    person.page.get_by_role("radio", name="read ").check()
    person.page.get_by_role("textbox", name="Groups").fill("mail/*\nreports")
    person.button("Create token").click()
    return str(person.page.locator(".secret pre").text_content())


def test_a_token_is_made_copied_and_revoked(person):
    person.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    person.go("/console/")
    person.page.keyboard.press("g")
    person.page.keyboard.press("s")
    expect(person.page.get_by_text("No tokens yet")).to_be_visible()
    assert complaints(person.page) == []
    secret = make(person, HOSTILE)
    token = tokens.valid(secret)
    assert token
    assert token.groups == ["mail/*", "reports"]
    assert complaints(person.page) == []
    person.button("Copy").click()
    expect(person.button("Copied")).to_be_visible()
    assert person.page.evaluate("navigator.clipboard.readText()") == secret
    person.link("Done").click()
    assert secret not in person.page.content()
    person.page.get_by_role("link", name=f"Revoke {HOSTILE}").click()
    expect(person.dialog).to_contain_text(f"Revoke the token {HOSTILE}?")
    expect(person.link("Cancel")).to_be_focused()
    assert complaints(person.page) == []
    person.page.keyboard.press("Escape")
    assert tokens.valid(secret)
    person.page.get_by_role("link", name=f"Revoke {HOSTILE}").click()
    person.button(f"Revoke {HOSTILE}").click()
    expect(person.page.get_by_role("status").filter(has_text="Revoked")).to_be_visible()
    assert Token.objects.get().revoked_at


def test_it_all_works_without_a_script(browser, live_server):
    with browser.new_context(java_script_enabled=False) as context:
        person = Person(context.new_page(), live_server.url, make_user("ada", "admin"))
        person.go("/console/settings")
        secret = make(person, "mailer")
        person.link("Done").click()
        person.page.get_by_role("link", name="Revoke mailer").click()
        person.button("Revoke mailer").click()
        expect(person.page.get_by_text("Revoked mailer")).to_be_visible()
        assert tokens.valid(secret) is None
        kim = make_user("kim", "viewer")
        person.go(f"/console/settings/people/{kim.pk}")
        person.link("Reset password…").click()
        person.button("Reset password").click()
        password = person.page.locator(".secret pre").text_content()
        kim.refresh_from_db()
        assert kim.check_password(password)
