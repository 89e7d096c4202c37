"""Users and roles in Django's admin."""

import pytest
from django.contrib.auth.models import Group, User

from tasks_app.access import accounts
from tasks_app.access.people import must_choose_password
from tasks_app.access.policy import ROLES, Action, may
from tasks_app.models import AuditEntry

from ..people import make_user
from .pages import fields_of, text_of

pytestmark = pytest.mark.once

USERS = "/admin/auth/user/"
ROLES_PAGE = "/admin/auth/group/"
PASSWORD = "correct horse battery"


def change_page(user):
    return f"{USERS}{user.pk}/change/"


def role(name):
    return Group.objects.get(name=name).pk


def fresh(user):
    return User.objects.get(pk=user.pk)


def test_it_adds_a_user_who_has_to_choose_another_password(administrator):
    typed = {"username": "bob", "password1": PASSWORD, "password2": PASSWORD, "groups": [role("operator")]}
    administrator.post(f"{USERS}add/", typed)
    bob = User.objects.get(username="bob")
    assert bob.check_password(PASSWORD)
    assert must_choose_password(bob)
    assert [group.name for group in bob.groups.all()] == ["operator"]


def test_it_gives_and_takes_roles(administrator):
    bob = make_user("bob", "viewer")
    sent = fields_of(administrator, change_page(bob))
    administrator.post(change_page(bob), sent | {"groups": [role("operator")]})
    assert may(fresh(bob), Action.OPERATE)
    administrator.post(change_page(bob), sent | {"groups": []})
    assert not may(fresh(bob), Action.SEE)


def test_a_password_that_somebody_else_set_has_to_be_changed(administrator):
    bob = make_user("bob", "viewer")
    administrator.post(f"{USERS}{bob.pk}/password/", {"password1": PASSWORD, "password2": PASSWORD})
    assert fresh(bob).check_password(PASSWORD)
    assert must_choose_password(fresh(bob))


def test_the_own_password_is_changed_in_the_console(administrator):
    ada = User.objects.get(username="ada")
    response = administrator.post(f"{USERS}{ada.pk}/password/", {"password1": PASSWORD, "password2": PASSWORD})
    assert response.url == "/console/password"
    assert not fresh(ada).check_password(PASSWORD)


def test_it_deletes_a_user(administrator):
    bob = make_user("bob", "viewer")
    administrator.post(f"{USERS}{bob.pk}/delete/", {"post": "yes"})
    assert not User.objects.filter(username="bob").exists()


def test_nobody_locks_themselves_out(administrator):
    ada = User.objects.get(username="ada")
    sent = fields_of(administrator, change_page(ada))
    administrator.post(change_page(ada), sent | {"email": "ada@example.org", "groups": []})
    assert fresh(ada).email == "ada@example.org"
    assert may(fresh(ada), Action.ADMINISTER)
    assert administrator.post(f"{USERS}{ada.pk}/delete/", {"post": "yes"}).status_code == 403


@pytest.mark.parametrize("page", ["change", "delete"])
def test_somebody_who_may_administer_is_always_left(administrator, monkeypatch, page):
    bob = make_user("bob", "admin")
    sent = {"post": "yes"} if page == "delete" else fields_of(administrator, change_page(bob)) | {"groups": []}
    # As if Ada lost her role at this moment, by Bob's hand.
    bobs = User.objects.filter(username="bob", groups__name="admin")
    monkeypatch.setattr(accounts, "has_administrator", lambda: bobs.all().exists())
    assert administrator.post(f"{USERS}{bob.pk}/{page}/", sent).status_code == 403
    assert may(fresh(bob), Action.ADMINISTER)


def test_it_writes_each_change_down(administrator):
    administrator.post(f"{USERS}add/", {"username": "bob", "password1": PASSWORD, "password2": PASSWORD})
    bob = User.objects.get(username="bob")
    sent = fields_of(administrator, change_page(bob))
    administrator.post(change_page(bob), sent | {"email": "bob@example.org"})
    administrator.post(f"{USERS}{bob.pk}/password/", {"password1": PASSWORD + "s", "password2": PASSWORD + "s"})
    administrator.post(f"{USERS}{bob.pk}/delete/", {"post": "yes"})
    trail = AuditEntry.objects.order_by("id").values_list("actor", "action", "selection")
    actions = ("add user", "edit user", "reset password", "delete user")
    assert list(trail) == [("ada", action, "user bob") for action in actions]


def test_it_writes_down_which_roles_were_given(administrator):
    bob = make_user("bob", "viewer")
    sent = fields_of(administrator, change_page(bob)) | {"groups": [role("viewer")]}
    administrator.post(change_page(bob), sent)
    assert not AuditEntry.objects.exists()
    administrator.post(change_page(bob), sent | {"groups": [role("operator"), role("viewer")]})
    details = AuditEntry.objects.get().details
    assert details == {"changed": ["Groups"], "roles": ["operator", "viewer"], "superuser": False, "active": True}


def test_it_says_what_each_role_may(administrator):
    page = text_of(administrator.get(ROLES_PAGE))
    assert "operator see, work, operate" in page
    assert all(name in page for name in ROLES)


@pytest.mark.parametrize("page", ["add/", "{id}/change/", "{id}/delete/"])
def test_nobody_changes_what_a_role_may(administrator, page):
    url = ROLES_PAGE + page.format(id=role("viewer"))
    assert administrator.post(url, {"name": "admin", "post": "yes"}).status_code == 403
    assert set(Group.objects.values_list("name", flat=True)) == set(ROLES)


@pytest.mark.parametrize("page", ["", "add/", "{id}/change/", "{id}/delete/", "{id}/password/"])
def test_an_operator_sees_no_users(operator, page):
    olaf = User.objects.get(username="olaf")
    url = USERS + page.format(id=olaf.pk)
    assert operator.get(url).status_code in (302, 403)
    operator.post(url, {"groups": [role("admin")], "post": "yes", "is_superuser": "on"})
    assert not may(fresh(olaf), Action.ADMINISTER)
    assert operator.get(ROLES_PAGE).status_code == 403
