"""Clients of the API."""

import pytest
from django.db import connection

from tasks_app.models import Scope

from .api import Api


@pytest.fixture
def api(db):
    """A worker that may touch every group."""
    return Api()


@pytest.fixture
def operator(db):
    return Api(Scope.OPERATE)


@pytest.fixture(params=["served", "served_by_uvicorn"] if connection.vendor == "postgresql" else ["served"])
def server(request, transactional_db):
    """Each of our servers, with its writer."""
    return request.getfixturevalue(request.param)
