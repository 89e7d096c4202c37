"""Users and roles in Django's admin."""

import pytest
from django.contrib.auth.models import Group, User

from tasks_app.access.policy import ROLES, Action, may

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
