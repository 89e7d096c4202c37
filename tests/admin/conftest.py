"""People of each role with a browser of Django's."""

import pytest
from django.test import Client

from ..people import make_user, signed_in


@pytest.fixture
def blind_operator(db) -> Client:
    """May change tasks, but not see what they hold."""
    return signed_in(make_user("otto", "operator"))


@pytest.fixture
def administrator(db) -> Client:
    return signed_in(make_user("ada", "admin"))
