"""People of each role with a browser of Django's, and a clock to set."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tasks_app import database
from tasks_app.models import Task

from ..people import make_user, one_of_each_role, signed_in

PASSWORD = "correct horse battery"


@pytest.fixture
def quick_hashes(settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def roles(db) -> dict[str, User]:
    return one_of_each_role()


@pytest.fixture
def viewer(db) -> Client:
    return signed_in(make_user("vera", "viewer"))


@pytest.fixture
def operator(db) -> Client:
    """May change tasks and see what they hold."""
    return signed_in(make_user("olaf", "operator", "see payloads"))


@pytest.fixture
def admin(db) -> Client:
    return signed_in(make_user("ada", "admin"))


@pytest.fixture
def clock(db, monkeypatch) -> "Clock":
    return Clock(Task.objects.now_ms(), monkeypatch)


class Clock:
    """The database's clock, stopped: it goes on when it is told to."""

    def __init__(self, now_ms: int, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.set(now_ms)

    def set(self, now_ms: int) -> None:
        self.now_ms = now_ms
        for dialect in database.DIALECTS.values():
            self.patch.setattr(dialect, "clock", f"CAST({now_ms} AS bigint)")

    def advance(self, by_ms: int) -> None:
        self.set(self.now_ms + by_ms)
