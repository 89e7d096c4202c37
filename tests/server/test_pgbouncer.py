"""Servers that reach PostgreSQL through pgbouncer in transaction mode."""

import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from lab.testing.debian import program
from lab.testing.postgresql import give, identity
from lab.testing.servers import free_port, is_taken
from tasks_app.writer.peers import LISTENER
from tests.behaviour.databases import only_postgresql

from .harness import wait_for

pytestmark = only_postgresql

CONFIGURATION = """[databases]
* = {where} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 1000
default_pool_size = 10
ignore_startup_parameters = extra_float_digits,options
"""


@contextmanager
def bouncer(folder: Path, database_url: str) -> Iterator[str]:
    """Run pgbouncer in this folder, and yield the address of the database behind it."""
    path, port = program(("pgbouncer",), ("pgbouncer",)), free_port()
    own = conninfo_to_dict(database_url)
    where = " ".join(f"{name}={own[name]}" for name in ("host", "port") if own.get(name))
    (folder / "pgbouncer.ini").write_text(CONFIGURATION.format(where=where, port=port))
    give(folder)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [path, "pgbouncer.ini"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **identity(),
        )
    try:
        wait_for(lambda: is_taken(port), "pgbouncer listens")
        yield f"postgresql://postgres@127.0.0.1:{port}/{own['dbname']}"
    finally:
        process.kill()
        process.wait()


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


def test_who_listens_does_so_beside_it(store, bounced):
    def names():
        with psycopg.connect(store.database_url) as postgresql:
            question = "SELECT application_name FROM pg_stat_activity WHERE datname = current_database() AND pid <> %s"
            return [name for (name,) in postgresql.execute(question, [postgresql.info.backend_pid])]

    with ExitStack() as pooled:
        url = pooled.enter_context(bouncer(bounced, store.database_url))
        with store.up(DATABASE_URL=url, TASKSTORE_DIRECT_DATABASE_URL=store.database_url):
            wait_for(lambda: LISTENER in names(), "the server listens")
            pooled.close()  # With all connections that lead through it.
            wait_for(lambda: all(name.startswith("Task Store") for name in names()), "their end")
            assert LISTENER in names()


NOWHERE = "postgresql://ann@127.0.0.1:1/tasks"


@pytest.mark.parametrize("why", ["nobody is there", "it is a pooler"])
def test_the_log_says_that_nothing_can_be_heard(store, bounced, why):
    with bouncer(bounced, store.database_url) as url:
        direct = NOWHERE if why == "nobody is there" else url
        with store.up(DATABASE_URL=url, TASKSTORE_DIRECT_DATABASE_URL=direct) as server:
            wait_for(lambda: server._complaints, "a line of the log")
            assert server.ask("GET", "/groups", store.token).status_code == 200
            server.end()
    [line] = server.complaints.splitlines()
    assert "can't LISTEN at TASKSTORE_DIRECT_DATABASE_URL" in line
