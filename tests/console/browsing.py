"""A person at a browser, in front of the console."""

from __future__ import annotations

from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from playwright.sync_api import Locator, Page, expect

from taskstore_project.sessions import SessionStore

from ..people import make_user


class Person:
    """Somebody who is signed in, and the page before them."""

    def __init__(self, page: Page, address: str, user: User) -> None:
        self.page = page
        self.address = address
        # Colours that are still fading in would be measured as they are on the way.
        page.emulate_media(reduced_motion="reduce")
        page.context.add_cookies([{"name": "sessionid", "value": session_of(user), "url": address}])

    def go(self, path: str, width: int = 1366, theme: str = "system") -> None:
        self.page.context.add_cookies([{"name": "theme", "value": theme, "url": self.address}])
        self.page.set_viewport_size({"width": width, "height": 800})
        self.page.goto(self.address + path)

    def rows(self) -> Locator:
        return self.page.locator("tbody input[name=id]")

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def link(self, name: str) -> Locator:
        return self.page.get_by_role("link", name=name, exact=True)

    @property
    def dialog(self) -> Locator:
        return self.page.locator("#dialog")

    def ask(self, verb: str) -> None:
        """Press a button of the selection, and wait for the question."""
        self.button(verb).click()
        expect(self.dialog).to_be_visible()

    def scrolls_sideways(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


def session_of(user: User) -> str:
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    key: str = session.session_key or ""
    return key


def operator() -> User:
    return make_user("olaf", "operator", "see payloads")
