"""Chromium for the tests with the mark `browser`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from lab.testing.debian import OPTIONS
from lab.testing.debian import chromium as find_chromium

# A loaded machine may need more than playwright's five seconds to show a change. Tests don't measure speed.
expect.set_options(timeout=30_000)


class Started:
    """The Chromium of this process, which stays open while only tests of a browser follow each other.

    playwright keeps an event loop running, in which other async tests fail and in which Django would refuse its
    synchronous queries.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._browser: Browser | None = None
        self._file: Path | None = None  # Of the test that asked last.

    def for_tests_in(self, file: Path) -> Browser:
        self._file = file
        if not self._browser:
            self._stack.enter_context(pytest.MonkeyPatch.context()).setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
            chromium = self._stack.enter_context(sync_playwright()).chromium
            self._browser = self._stack.enter_context(chromium.launch(executable_path=find_chromium(), args=OPTIONS))
        return self._browser

    def end_before(self, test: pytest.Item) -> None:
        """Close it unless the test may need it."""
        if test.path != self._file and not test.get_closest_marker("browser"):
            self.end()

    def end(self) -> None:
        self._stack.close()
        self._browser = self._file = None


started = Started()


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest) -> Browser:
    return started.for_tests_in(request.path)


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """What the pages of a module have in common: what they have fetched stays."""
    with browser.new_context(locale="en-US", timezone_id="UTC") as context:
        yield context


@pytest.fixture
def chromium(context: BrowserContext) -> Iterator[Page]:
    """A fresh page without cookies. The test fails when a script of ours does, or when the policy blocks anything."""
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            complaints.append(message.text)

    with context.new_page() as page:
        page.on("console", note)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page
        if page.url.startswith("http"):
            page.evaluate("localStorage.clear(); sessionStorage.clear()")
    context.clear_cookies()
    context.clear_permissions()
    assert complaints == []
