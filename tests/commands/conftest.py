"""A server of ours with workers beside it."""

from collections.abc import Iterator

import pytest

from tasks_app.access import tokens
from tasks_app.models import Scope
from taskstore import Client
from tests.served import Served
from tests.server.conftest import copies, started_once, store  # noqa: F401 - fixtures

from .projects import Project


@pytest.fixture
def project(served: Served, settings) -> Iterator[Project]:
    settings.TASKSTORE_COMMANDS = True
    _, secret = tokens.create("ann", Scope.COMMANDS)
    with Client(served.url, token=secret) as client:
        yield Project(client, token=secret)
