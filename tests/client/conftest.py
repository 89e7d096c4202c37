"""The client beside a server of ours."""

from collections.abc import Iterator

import pytest

from tasks_app.access import tokens
from tasks_app.models import Scope
from taskstore import Client
from tests.served import Served

from .patience import wait_for_last_requests


@pytest.fixture
def token(served: Served) -> str:
    """Of somebody who may do what operators do."""
    _, secret = tokens.create("ann", Scope.OPERATE)
    return secret


@pytest.fixture
def store(served: Served, token: str) -> Iterator[Client]:
    with Client(served.url, token=token) as store:
        yield store
        wait_for_last_requests()
