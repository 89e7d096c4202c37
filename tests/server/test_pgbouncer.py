"""Servers that reach PostgreSQL through pgbouncer in transaction mode."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from taskstore_project.chaos.scenes.pooled import bouncer
from tests.behaviour.databases import only_postgresql

pytestmark = only_postgresql


@pytest.fixture
def bounced():
    # Not pytest's: pgbouncer's user has to reach it.
    with tempfile.TemporaryDirectory(prefix="taskstore-pgbouncer-") as folder:
        yield Path(folder)


def test_two_servers_share_its_connections(store, bounced):
    def cycle(server, number):
        add = {"clientid": number, "adds": [{"group": "mail"}]}
        [added] = server.ask("POST", "/update", store.token, json=add).json()["tasks"]
        done = server.ask("POST", "/update", store.token, json={"clientid": number, "deletes": [added["id"]]})
        return done.json()["error"]

    with (
        bouncer(bounced, store.database_url) as url,
        store.up(DATABASE_URL=url) as first,
        store.up(DATABASE_URL=url) as second,
        ThreadPoolExecutor(8) as threads,
    ):
        done = [threads.submit(cycle, (first, second)[number % 2], number) for number in range(100)]
        assert [future.result() for future in done] == [None] * 100
