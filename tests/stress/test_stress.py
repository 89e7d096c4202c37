"""Clients at work at random, all at once, and servers killed under them: what they saw must keep every promise."""

import time
from contextlib import ExitStack

import pytest
from django.db import connection

from lab.chaos.checker import violations

from .load import clients, history_of, new_token

pytestmark = pytest.mark.stress

SECONDS = 30
SECONDS_WITH_KILLS = 20
KILLS = 5
# So much has to be done at least for a test to say something; a busy machine does a tenth of what an idle one does.
ENOUGH = 500


def test_sixteen_clients_see_one_store(store, tmp_path):
    # Several servers only where the database keeps them apart by itself.
    count = 2 if connection.vendor == "postgresql" else 1
    with ExitStack() as stack:
        servers = [stack.enter_context(store.up()) for _ in range(count)]
        with clients(servers, new_token(store), tmp_path, count=16, seconds=SECONDS):
            pass
        history = history_of(servers[0], store, tmp_path)
        assert [server.end() for server in servers] == [0] * count
        assert [server.complaints for server in servers] == [""] * count
    assert violations(history) == []
    assert history.in_doubt == []
    assert len(history.done) > ENOUGH


def test_a_server_that_is_killed_loses_nothing_that_it_answered(store, tmp_path):
    with ExitStack() as stack:
        server = stack.enter_context(store.up())
        port = str(server.address[1])
        with clients([server], new_token(store), tmp_path, count=8, seconds=SECONDS_WITH_KILLS):
            for _ in range(KILLS):
                time.sleep(SECONDS_WITH_KILLS / KILLS / 3)  # At work, in the midst of which it is killed.
                server.kill()
                server = stack.enter_context(store.up("--port", port))
        history = history_of(server, store, tmp_path)
    assert violations(history) == []
    assert history.in_doubt
    assert len(history.done) > ENOUGH / 5
