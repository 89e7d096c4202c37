"""The accounts of people, where two administrators meet."""

from threading import Event, Thread
from typing import cast

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import connections

from tasks_app.access import accounts
from tasks_app.access.people import name_of
from tasks_app.access.policy import Action, actions_of, actor_of, has_administrator, make_roles
from taskstore.errors import InvalidInput

from .people import make_user


@pytest.mark.usefixtures("transactional_db")
def test_two_administrators_do_not_lock_each_other_out():
    ada, bob = make_user("ada", "admin"), make_user("bob", "admin")
    refused, is_over = [], Event()

    def close_the_account_of_ada() -> None:
        try:
            accounts.close(ada, actor_of(bob))
        except InvalidInput as refusal:
            refused.append(refusal)
        finally:
            connections.close_all()
            is_over.set()

    rival = Thread(target=close_the_account_of_ada)
    with accounts.keeps_an_administrator():
        User.objects.filter(pk=bob.pk).update(is_active=False)
        rival.start()
        assert not is_over.wait(0.3)  # It waits, and then sees that Ada is the last.
    rival.join()
    assert len(refused) == 1
    ada.refresh_from_db()
    assert ada.is_active
    assert has_administrator()


def test_nobody_acts_under_the_name_of_a_token_or_of_another_person():
    long = "ann" * 100
    names = [name_of(User(username=name)) for name in ("token:ci", long, f"{long}2", "ann@example.org")]
    assert names[0] == "token%3Aci"
    assert names[3] == "ann@example.org"
    assert len(set(names)) == 4
    assert max(map(len, names)) == 150


def test_who_has_neither_groups_nor_flags_has_no_rights():
    class Person:
        """As a project may have them, without `PermissionsMixin`."""

    assert accounts.rights_of(cast("User", Person())) == accounts.Rights(role="", sees_payloads=False)


@pytest.mark.django_db
def test_a_permission_gives_a_right_to_a_person_or_to_a_group_of_the_project():
    ann, bob = (User.objects.create(username=name) for name in ("ann", "bob"))
    support = Group.objects.create(name="support")
    support.permissions.set(
        Permission.objects.filter(content_type__app_label="tasks_app", codename__in=["see", "work"])
    )
    ann.groups.add(support)
    bob.user_permissions.add(Permission.objects.get(codename="see_payloads"))
    assert actions_of(fresh(ann)) == {Action.SEE, Action.WORK}
    assert actions_of(fresh(bob)) == {Action.SEE_PAYLOADS}
    assert accounts.rights_of(ann) == accounts.Rights(role="viewer", sees_payloads=False)


@pytest.mark.django_db
def test_a_group_of_the_project_that_is_called_like_a_role_gets_no_rights():
    Group.objects.filter(name__in=["admin", "viewer"]).delete()
    Group.objects.create(name="admin")
    make_roles("default")
    ann = make_user("ann", "admin")
    assert actions_of(ann) == set()
    assert actions_of(make_user("bob", "viewer")) == {Action.SEE}
    with pytest.raises(InvalidInput, match="other groups or permissions"):
        accounts.change_rights(ann, accounts.Rights(role="admin", sees_payloads=True))


@pytest.mark.django_db
def test_a_role_takes_no_right_away_that_another_group_gives():
    ann = make_user("ann", "viewer")
    ann.user_permissions.add(Permission.objects.get(codename="administer"))
    ann.user_permissions.add(Permission.objects.get(codename="see_payloads"))
    with pytest.raises(InvalidInput, match="other groups or permissions"):
        accounts.change_rights(ann, accounts.Rights(role="viewer", sees_payloads=False))
    assert actions_of(fresh(ann)) == {Action.SEE, Action.SEE_PAYLOADS, Action.ADMINISTER}
    assert has_administrator()


def fresh(user: User) -> User:
    """The user without what was cached of their permissions."""
    return User.objects.get(pk=user.pk)
