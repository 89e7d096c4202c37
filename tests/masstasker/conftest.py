"""The client beside a server of ours."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tasks_app.access import tokens
from tasks_app.models import Scope
from tasks_app.writer.writer import Writer
from taskstore.masstasker.client import Client, Task, connect, new_task
from tests.grpc_api.conftest import Serving, serving, writer

__all__ = ["serving", "writer"]

LONG = timedelta(seconds=60)


@pytest.fixture
def address(serving: Serving, writer: Writer) -> str:
    """Where the store of the test listens."""
    address: str = serving.address
    return address


@pytest.fixture
def token(writer: Writer) -> str:
    _, secret = tokens.create("ann", Scope.OPERATE)
    return secret


@pytest.fixture
def store(address: str, token: str) -> Iterator[Client]:
    with connect(address, token=token) as store:
        yield store


@pytest.fixture
def mail(store: Client) -> Task:
    """A task in the group `mail` that the client owns."""
    store.create(new_task("mail", b"hello"))
    mail = store.query("mail", own_for=LONG)
    assert mail
    return mail
