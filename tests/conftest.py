"""What every test has: the settings with a data folder of their own, servers, the browser, the selection by marks."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import django
import hypothesis
import pytest
from django.db import connection
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright
from pytest_django import DjangoDbBlocker

from taskstore_project.testing.chromium import chromium as find_chromium

OWN_DATA_FOLDER = "" if "TASKSTORE_DATA" in os.environ else tempfile.mkdtemp(prefix="taskstore-test-")
if OWN_DATA_FOLDER:
    # pytest was started by hand: the tests must not touch the data of a server that runs here.
    os.environ["TASKSTORE_DATA"] = OWN_DATA_FOLDER
os.environ["DJANGO_SETTINGS_MODULE"] = "taskstore_project.settings"
django.setup()

# They need the settings.
from .served import daphne, served, served_by_uvicorn, uvicorn  # noqa: E402, F401 - fixtures

if connection.vendor == "sqlite":
    # A file as in production: in memory SQLite knows neither a write-ahead log nor waiting for a lock.
    connection.settings_dict["TEST"]["NAME"] = connection.settings_dict["NAME"].with_name("test.sqlite3")
elif not OWN_DATA_FOLDER:
    # `manage.py test` runs several parts of the suite on one server.
    connection.settings_dict["TEST"]["NAME"] = f"test_{Path(os.environ['TASKSTORE_DATA']).name}"

# Time limits of single examples say more about the machine than about the code.
hypothesis.settings.register_profile("full", deadline=None, print_blob=True)
hypothesis.settings.register_profile("quick", deadline=None, print_blob=True, max_examples=20)
hypothesis.settings.load_profile("full")

# What keeps Chromium from calling home, and from needing a desktop, a GPU or rights we may not have.
CHROMIUM_OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--lang=en-US",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("taskstore")
    group.addoption("--without", action="append", default=[], metavar="MARK", help="leave out tests with this mark")
    group.addoption("--only", action="append", default=[], metavar="MARK", help="run only tests with this mark")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    only, without = config.option.only, config.option.without

    def is_wanted(item: pytest.Item) -> bool:
        return all(map(item.get_closest_marker, only)) and not any(map(item.get_closest_marker, without))

    config.hook.pytest_deselected(items=[item for item in items if not is_wanted(item)])
    items[:] = filter(is_wanted, items)


def pytest_unconfigure() -> None:
    if OWN_DATA_FOLDER:
        shutil.rmtree(OWN_DATA_FOLDER, ignore_errors=True)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The test database. At the end nobody is left in it, who would keep it from being dropped."""
    yield
    # The thread of an event loop that has ended keeps its connection until the collector comes by.
    if connection.vendor == "postgresql":
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium for the tests of one module; they need the mark `browser`."""
    # Not for the session: playwright keeps an event loop running, in which later async tests fail
    # and in which Django would refuse its synchronous queries.
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def chromium(browser: Browser) -> Iterator[Page]:
    """A fresh page without cookies. The test fails when a script of ours does, or when the policy blocks anything."""
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            complaints.append(message.text)

    with browser.new_context(locale="en-US", timezone_id="UTC") as context:
        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page
    assert complaints == []
