"""A server on tables that a later release has changed."""

import sqlite3
from contextlib import closing

import psycopg
import pytest

LATER = "INSERT INTO django_migrations (app, name, applied) VALUES ('tasks_app', '0999_later', CURRENT_TIMESTAMP)"


@pytest.fixture
def newer(store):
    if store.database_url:
        with psycopg.connect(store.database_url) as postgresql:
            postgresql.execute(LATER)
    else:
        with closing(sqlite3.connect(store.folder / "taskstore.sqlite3", isolation_level=None)) as sqlite:
            sqlite.execute(LATER)
    return store


def test_it_does_not_start_and_says_what_to_do(newer):
    told = newer.manage("up", "--port", "0", "--grpc-port", "0")
    assert told.returncode == 2
    assert "(0999_later): upgrade this server, or set TASKSTORE_NEWER_DATABASE=1" in told.stderr
    assert told.stderr.count("\n") == 1


def test_it_starts_where_that_is_wanted(newer):
    with newer.up(TASKSTORE_NEWER_DATABASE="1") as server:
        assert server.ask("GET", "/readyz").status_code == 200


def test_one_that_serves_already_goes_on(store, request):
    with store.up() as server:
        request.getfixturevalue("newer")
        add = {"clientid": 1, "adds": [{"group": "mail"}]}
        assert server.ask("POST", "/update", store.token, json=add).json()["error"] is None
