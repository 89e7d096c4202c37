"""The servers in the tests' own process leave nothing behind, and a server stops without delay."""

import asyncio
import sys
import time

import pytest
from django.core.signals import request_finished
from django.db import close_old_connections
from django.db.backends.signals import connection_created
from django.http.response import HttpResponseBase

from tasks_app.access import tokens
from tasks_app.models import Scope
from tasks_app.serving import work

from .behaviour.rivals import wait_until


@pytest.fixture
def secret(served):
    return tokens.create("Ann", Scope.READ)[1]


@pytest.fixture
def opened():
    """Every connection to the database that somebody has opened since."""
    connections = []

    def note(connection, **_):
        connections.append(connection)

    connection_created.connect(note)
    yield connections
    connection_created.disconnect(note)


@pytest.fixture
def ending_request():
    """What Django's test client does to all threads for the time in which a request of its own ends."""
    request_finished.disconnect(close_old_connections)
    yield
    request_finished.connect(close_old_connections)


def test_a_request_lets_go_of_its_connection_while_one_of_the_test_client_ends(served, secret, opened, ending_request):
    assert served.request("GET", "/groups", headers={"Authorization": f"Bearer {secret}"}).is_success
    assert opened
    wait_until(lambda: all(connection.connection is None for connection in opened))


@pytest.fixture
def closed_in_the_end(opened):
    yield
    assert opened
    assert all(connection.connection is None for connection in opened)


@pytest.fixture
def slow_to_close(monkeypatch):
    """An answer is on its way before the response is closed, and with it the connection to the database."""
    close = HttpResponseBase.close

    def later(response):
        time.sleep(0.3)
        close(response)

    monkeypatch.setattr(HttpResponseBase, "close", later)


def test_a_test_ends_after_the_requests_that_it_made(closed_in_the_end, slow_to_close, served, secret):
    assert served.request("GET", "/groups", headers={"Authorization": f"Bearer {secret}"}).is_success


def test_a_server_with_idle_background_loops_stops_at_once(daphne, transactional_db, monkeypatch):
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)  # It is the whole process's.

    async def seconds_of_stop() -> float:
        writer = work(grpc=None)()
        await asyncio.sleep(0.05)
        began_s = time.monotonic()
        await writer.stop()
        return time.monotonic() - began_s

    # The fastest of three, because other processes may keep the machine busy.
    assert min(daphne.run(seconds_of_stop()) for _ in range(3)) < 0.3
