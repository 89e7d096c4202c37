"""Clients of the API."""

import pytest

from .api import Api


@pytest.fixture
def api(db):
    """A worker that may touch every group."""
    return Api()
