"""A server of ours, and workers beside it."""

from collections.abc import Iterator

import pytest

from tasks_app.access import tokens
from tasks_app.models import Scope
from taskstore import Client
from tests.client.patience import wait_for_last_requests
from tests.served import Served

from .workers import Queue


@pytest.fixture
def queue(served: Served) -> Iterator[Queue]:
    _, secret = tokens.create("ann", Scope.WORK)
    with Client(served.url, token=secret) as store:
        yield Queue(store, token=secret)
        wait_for_last_requests()
