"""People of each role, and their browsers of Django's."""

from django.contrib.auth.models import Group, User
from django.test import Client

ROLES = {
    "viewer": ["viewer"],
    "payload viewer": ["viewer", "see payloads"],
    "submitter": ["viewer", "commands"],
    "operator": ["operator"],
    "admin": ["admin"],
}
# Who may do what. A superuser is one more role.
EVERYBODY = {*ROLES, "superuser"}
OPERATORS = {"operator", "admin", "superuser"}
PAYLOADS = {"payload viewer", "admin", "superuser"}
SUBMITTERS = {"submitter", "admin", "superuser"}  # Of shell commands.
ADMINISTRATORS = {"admin", "superuser"}
NOBODY: set[str] = set()


def one_of_each_role() -> dict[str, User]:
    users = {role: make_user(role.replace(" ", "-"), *groups) for role, groups in ROLES.items()}
    return users | {"superuser": User.objects.create(username="superuser", is_superuser=True, is_staff=True)}


def make_user(name: str, *groups: str) -> User:
    # Without a password: hashing one costs half a second.
    user = User.objects.create(username=name)
    user.groups.set(Group.objects.filter(name__in=groups))
    return user


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client
