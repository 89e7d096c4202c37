"""The connections to PostgreSQL break, as in a failover, and a server goes on."""

import psycopg

from .harness import wait_for

ADD = {"clientid": 1, "adds": [{"group": "mail"}]}


def cut_all(database_url):
    """All connections to this database but our own."""
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_a_token_that_has_to_be_looked_up_is_found_over_a_new_connection(store):
    another = store.manage("token", "create", "another", "--scope", "work").stdout.strip()
    with store.up() as server:
        assert server.ask("POST", "/update", store.token, json=ADD).status_code == 200
        cut_all(store.database_url)
        # Nothing else is asked: a page would put the broken connection away.
        wait_for(lambda: server.ask("POST", "/update", another, json=ADD).status_code == 200, "a commit after the cut")
