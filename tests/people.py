"""People, and their browsers of Django's."""

from django.contrib.auth.models import Group, User
from django.test import Client


def make_user(name: str, *groups: str) -> User:
    # Without a password: hashing one costs half a second.
    user = User.objects.create(username=name)
    user.groups.set(Group.objects.filter(name__in=groups))
    return user


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client
