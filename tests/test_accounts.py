"""The accounts of people, where two administrators meet."""

from threading import Event, Thread
from typing import cast

import pytest
from django.contrib.auth.models import User
from django.db import connections

from tasks_app.access import accounts
from tasks_app.access.people import name_of
from tasks_app.access.policy import actor_of, has_administrator
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
