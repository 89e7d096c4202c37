"""People of each role with a browser of Django's, and a clock to set."""

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client

from tasks_app import database
from tasks_app.models import Task

PASSWORD = "correct horse battery"
ROLES = {
    "viewer": ["viewer"],
    "payload viewer": ["viewer", "see payloads"],
    "operator": ["operator"],
    "admin": ["admin"],
}


FILLED = (
    "tasks_app_task",
    "tasks_app_endedtask",
    "tasks_app_auditentry",
    "tasks_app_pausedgroup",
    "tasks_app_client",
    "tasks_app_countdelta",
    "tasks_app_grouptotal",
    "tasks_app_rate",
    "tasks_app_workdone",
    "tasks_app_level",
)


@pytest.fixture
def transactional_db(django_db_setup, django_db_blocker) -> Iterator[None]:
    """The test database without a transaction around the test, for the server that a browser talks to.

    In place of pytest-django's, which flushes all tables and makes all permissions anew: ten times slower.
    """
    with django_db_blocker.unblock():
        yield
        empty()


def empty() -> None:
    with connection.cursor() as cursor:
        for table in FILLED:
            cursor.execute(f"DELETE FROM {table}")  # noqa: S608 - the names are ours
    User.objects.all().delete()


@pytest.fixture
def roles(db) -> dict[str, User]:
    """A user of each role; a superuser is one more."""
    users = {role: make_user(role.replace(" ", "-"), *groups) for role, groups in ROLES.items()}
    return users | {"superuser": User.objects.create(username="superuser", is_superuser=True, is_staff=True)}


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


def make_user(name: str, *groups: str) -> User:
    # Without a password: hashing one costs half a second.
    user = User.objects.create(username=name)
    user.groups.set(Group.objects.filter(name__in=groups))
    return user


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client
