"""Users and roles in Django's admin."""

import pytest
from django.contrib.auth.models import Group, User

pytestmark = pytest.mark.once

PASSWORD = "correct horse battery"


def role(name):
    return Group.objects.get(name=name).pk


def fresh(user):
    return User.objects.get(pk=user.pk)
