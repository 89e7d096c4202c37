"""Several servers on one PostgreSQL."""

import signal
from contextlib import ExitStack
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from taskstore_project.startup_migration import MIGRATION_LOCK

from .harness import Store, wait_for


def test_a_second_server_in_the_same_folder_leaves_the_first_ones_access_alone(store):
    with store.up() as first, store.up() as second:
        token = store.token
        assert second.ask("GET", "/groups", token).status_code == 200
        assert second.end() == 0
        assert store.token == token
        assert first.ask("GET", "/groups", token).status_code == 200


def test_servers_that_start_together_make_one_database(empty_place, tmp_path):
    store = empty_place
    others = [Store(tmp_path / name, store.database_url) for name in ("ann", "bob")]
    with ExitStack() as servers:
        with held_up(store):
            started = [other.start() for other in others]
            for server in started:
                servers.callback(server.kill)
            wait_for(lambda: waiting(store) == 2, "two servers getting ready")
        for server in started:
            server.wait_until_ready()
        assert "".join(server.said for server in started).count("password") == 1


def test_it_ends_in_good_order_when_it_is_told_to_while_it_gets_ready(store):
    with held_up(store), ExitStack() as at_end:
        server = store.start()
        at_end.callback(server.kill)
        wait_for(lambda: waiting(store) == 1, "a server getting ready")
        assert server.end(signal.SIGTERM) == 0
        assert server.complaints == ""


@pytest.mark.parametrize("arguments", [["up"], ["serve"], ["migrate"], ["token", "list"]])
def test_an_encoding_that_lacks_characters_is_refused(latin, arguments):
    told = latin.manage(*arguments)
    assert told.returncode != 0
    assert "its encoding is LATIN1, which lacks characters of tasks: create one with `createdb " in told.stderr
    assert told.stderr.startswith("taskstore: can't use the database latin_") or arguments == ["migrate"]
    assert "Traceback" not in told.stderr


@pytest.fixture
def latin(store, tmp_path):
    name = f"latin_{uuid4().hex}"
    with psycopg.connect(store.database_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
        parameters = conninfo_to_dict(store.database_url)
        known = f"/{parameters['dbname']}"
        assert store.database_url.count(known) == 1
        yield Store(tmp_path / "latin", store.database_url.replace(known, f"/{name}"))
        connection.execute(f"DROP DATABASE {name}")


def held_up(store):
    """No server gets ready until the connection closes."""
    connection = psycopg.connect(store.database_url)
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])
    return connection


def waiting(store):
    """How many servers wait for their turn to get ready."""
    with psycopg.connect(store.database_url) as connection:
        rows = connection.execute("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchall()
    return len(rows)
