"""People of each role with a browser of Django's."""

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client


@pytest.fixture
def viewer(db) -> Client:
    return signed_in(make_user("vera", "viewer"))


@pytest.fixture
def payload_viewer(db) -> Client:
    return signed_in(make_user("paul", "viewer", "see payloads"))


@pytest.fixture
def blind_operator(db) -> Client:
    """May change tasks, but not see what they hold."""
    return signed_in(make_user("otto", "operator"))


@pytest.fixture
def operator(db) -> Client:
    return signed_in(make_user("olaf", "operator", "see payloads"))


@pytest.fixture
def administrator(db) -> Client:
    return signed_in(make_user("ada", "admin"))


def make_user(name: str, *groups: str) -> User:
    # Without a password: hashing one costs half a second.
    user = User.objects.create(username=name)
    user.groups.set(Group.objects.filter(name__in=groups))
    return user


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client
