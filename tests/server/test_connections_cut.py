"""The connections to PostgreSQL break, as in a failover, and a server goes on."""

import time

import psycopg
from psycopg import sql

from .harness import wait_for
from .nodes import viewer

ADD = {"clientid": 1, "adds": [{"group": "mail"}]}


def cut_all(database_url):
    """All connections to this database but our own."""
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def set_read_only(database_url, word):
    """What all new connections find, as on a standby."""
    with psycopg.connect(database_url, options="-c default_transaction_read_only=off", autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        connection.execute(
            sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}").format(name, sql.SQL(word))
        )
    cut_all(database_url)


def test_a_database_that_takes_no_writes_is_unavailable_until_it_does(store, every_command):
    with store.up(command=every_command) as server, viewer(store, server) as visitor:
        assert server.ask("POST", "/update", store.token, json=ADD).status_code == 200
        set_read_only(store.database_url, "on")
        answers = [server.ask("POST", "/update", store.token, json=ADD) for _ in range(5)]
        assert {answer.status_code for answer in answers} == {503}
        assert all(answer.headers["Retry-After"] for answer in answers)
        for _ in range(3):  # What is only read goes on.
            for path in ("/group/mail", "/groups", "/search?q=group:mail", "/tasks/1", "/export"):
                assert server.ask("GET", path, store.token).status_code == 200, path
            for path in ("/console/", "/console/group?name=mail", "/console/search?q=group:mail", "/docs/"):
                assert visitor.get(path).status_code == 200, path
            time.sleep(0.5)
        assert server.ask("GET", "/readyz").status_code == 503
        set_read_only(store.database_url, "off")
        wait_for(lambda: server.ask("POST", "/update", store.token, json=ADD).status_code == 200, "a commit")


def test_a_token_that_has_to_be_looked_up_is_found_over_a_new_connection(store):
    another = store.manage("token", "create", "another", "--scope", "work").stdout.strip()
    with store.up() as server:
        assert server.ask("POST", "/update", store.token, json=ADD).status_code == 200
        cut_all(store.database_url)
        # Nothing else is asked: a page would put the broken connection away.
        wait_for(lambda: server.ask("POST", "/update", another, json=ADD).status_code == 200, "a commit after the cut")
