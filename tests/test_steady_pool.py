"""The pool of connections to PostgreSQL, on a server that comes and goes."""

import time
from functools import partial

import psycopg
import pytest
from psycopg_pool import PoolTimeout

from taskstore_project.postgresql import base
from taskstore_project.postgresql.base import Connection, SteadyPool, ping
from tests.server.clusters import cluster
from tests.server.harness import wait_for

pytestmark = pytest.mark.once

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def postgresql():
    with cluster() as started:
        yield started


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch):
    """Nothing here is about a slow answer, and everything takes its time while other tests keep all cores busy."""
    monkeypatch.setattr(base, "CHECK_S", PATIENCE_S)


@pytest.fixture
def failed_checks():
    return []


@pytest.fixture
def pool(postgresql, failed_checks):
    def check(connection):
        try:
            ping(connection)
        except psycopg.OperationalError as error:
            failed_checks.append(error)
            raise

    postgresql.kill()
    postgresql.start()
    kwargs = {"autocommit": True, "connect_timeout": 20}
    url = postgresql.url_of("postgres")
    chosen = partial(SteadyPool, kwargs=kwargs, connection_class=Connection, check=check)
    with chosen(url, min_size=1, max_size=8, timeout=PATIENCE_S) as made:
        made.wait(PATIENCE_S)
        yield made


def test_many_broken_connections_cost_one_try(pool, postgresql, failed_checks):
    held = [pool.getconn() for _ in range(8)]
    for connection in held:
        pool.putconn(connection)
    assert len(pool._pool) == 8
    postgresql.kill()
    postgresql.start()
    with pool.connection() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert len(failed_checks) == 1
    assert pool.get_stats().get("requests_errors", 0) == 0


def test_an_outage_that_is_older_than_the_patience_is_told_at_once(pool, postgresql):
    postgresql.kill()
    with pytest.raises(PoolTimeout):
        pool.getconn(timeout=1.0)
    pool._away_since_s = time.monotonic() - 3_600
    with pytest.raises(PoolTimeout, match=r"0\.05 sec"):
        pool.getconn()
    postgresql.start()
    wait_for(lambda: pool._away_since_s is None, "it has connected by itself")
    pool.putconn(pool.getconn())


def test_a_ping_finds_a_connection_that_is_lost(postgresql):
    with Connection.connect(postgresql.url_of("postgres"), autocommit=True) as connection:
        ping(connection)
        assert connection.execute("SELECT 1").fetchone() == (1,)
        postgresql.execute(f"SELECT pg_terminate_backend({connection.info.backend_pid})")
        with pytest.raises(psycopg.OperationalError):
            ping(connection)
        assert connection.closed
