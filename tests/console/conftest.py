"""People with a browser of Django's or with Chromium, and a clock to set."""

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tasks_app.models import Task

from ..behaviour.conftest import Clock
from ..people import make_user, one_of_each_role, signed_in
from . import browsing

PASSWORD = "correct horse battery"


@pytest.fixture
def quick_hashes(settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def roles(db) -> dict[str, User]:
    return one_of_each_role()


@pytest.fixture
def admin(db) -> Client:
    return signed_in(make_user("ada", "admin"))


@pytest.fixture
def submitter(db) -> Client:
    """May submit commands, and see what they are and write."""
    return signed_in(make_user("suse", "viewer", "see payloads", "commands"))


@pytest.fixture
def clock(db, monkeypatch) -> Clock:
    return Clock(Task.objects.now_ms(), monkeypatch)


@pytest.fixture
def person(chromium, live_server) -> browsing.Person:
    """An operator in front of Chromium."""
    return browsing.Person(chromium, live_server.url, browsing.operator())


@pytest.fixture
def without_scripts(browser, live_server) -> Iterator[browsing.Person]:
    """The same without JavaScript."""
    with browser.new_context(java_script_enabled=False) as context:
        yield browsing.Person(context.new_page(), live_server.url, browsing.operator())
