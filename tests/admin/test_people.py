"""Users and roles in Django's admin."""

import re

import pytest
from django.contrib.auth.models import Group, User

from tasks_app.access import accounts
from tasks_app.access.policy import ROLES, Action, may
from tasks_app.models import AuditEntry

from ..people import make_user
from .pages import text_of

pytestmark = pytest.mark.once

USERS = "/admin/auth/user/"
ROLES_PAGE = "/admin/auth/group/"
PASSWORD = "correct horse battery"


def role(name):
    return Group.objects.get(name=name).pk


def fresh(user):
    return User.objects.get(pk=user.pk)


def test_it_lists_people_with_their_roles_and_finds_one(administrator):
    make_user("bob", "viewer", "see payloads")
    assert "bob see payloads, viewer" in text_of(administrator.get(USERS))
    assert "ada" not in text_of(administrator.get(USERS, {"q": "BOB"})).partition("username")[2]


def test_the_forms_are_those_of_the_console(administrator):
    bob = make_user("bob", "viewer")
    assert administrator.get(f"{USERS}add/").url == "/console/settings/people/add"
    assert administrator.get(f"{USERS}{bob.pk}/change/").url == f"/console/settings/people/{bob.pk}"


def test_it_deletes_the_user_of_a_closed_account(administrator):
    bob = make_user("bob", "viewer")
    page = f"/console/settings/people/{bob.pk}"
    assert "Delete account" not in administrator.get(page).content.decode()
    administrator.post(f"{page}/close")
    [address] = re.findall(r'href="([^"]*/delete/)"', administrator.get(page).content.decode())
    administrator.post(address, {"post": "yes"})
    assert not User.objects.filter(username="bob").exists()
    assert list(AuditEntry.objects.order_by("id").values_list("actor", "action", "selection")) == [
        ("ada", "close account", "user bob"),
        ("ada", "delete user", "user bob"),
    ]


def test_nobody_deletes_themselves(administrator):
    ada = User.objects.get(username="ada")
    assert administrator.post(f"{USERS}{ada.pk}/delete/", {"post": "yes"}).status_code == 403
    assert may(fresh(ada), Action.ADMINISTER)


def test_somebody_who_may_administer_is_always_left(administrator, monkeypatch):
    bob = make_user("bob", "admin")
    # As if Ada lost her role at this moment, by Bob's hand.
    bobs = User.objects.filter(username="bob", groups__name="admin")
    monkeypatch.setattr(accounts, "has_administrator", lambda: bobs.all().exists())
    assert administrator.post(f"{USERS}{bob.pk}/delete/", {"post": "yes"}).status_code == 403
    assert may(fresh(bob), Action.ADMINISTER)


def test_it_says_what_each_role_may(administrator):
    page = text_of(administrator.get(ROLES_PAGE))
    assert "operator see, work, operate" in page
    assert all(name in page for name in ROLES)


@pytest.mark.parametrize("page", ["add/", "{id}/change/", "{id}/delete/"])
def test_nobody_changes_what_a_role_may(administrator, page):
    url = ROLES_PAGE + page.format(id=role("viewer"))
    assert administrator.post(url, {"name": "admin", "post": "yes"}).status_code == 403
    assert set(Group.objects.values_list("name", flat=True)) == set(ROLES)


@pytest.mark.parametrize("page", ["", "add/", "{id}/change/", "{id}/delete/"])
def test_an_operator_sees_no_users(operator, page):
    olaf = User.objects.get(username="olaf")
    url = USERS + page.format(id=olaf.pk)
    assert operator.get(url).status_code in (302, 403)
    operator.post(url, {"groups": [role("admin")], "post": "yes", "is_superuser": "on"})
    assert not may(fresh(olaf), Action.ADMINISTER)
    assert operator.get(ROLES_PAGE).status_code == 403
