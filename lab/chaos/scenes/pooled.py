"""Servers that use PostgreSQL through pgbouncer in transaction mode."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from lab.testing import CannotTry
from lab.testing.debian import program
from lab.testing.postgresql import give, identity

from ..client import HELD, Worker
from ..outcome import Figure, SceneResult, outcome_of
from ..processes import free_port, is_taken
from ..stage import Stage, wait_until

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
WAKE_UPS = 20
WOKEN_S = 1.5
WAIT_MS = 20_000
WORKER = 1_001  # The first of two clients.
DURATION_MS = 60_000


def pgbouncer(stage: Stage) -> SceneResult:
    url = stage.until_the_end(bouncer(stage.places.new_folder("pgbouncer"), stage.database_url))
    servers = [stage.server(DATABASE_URL=url) for _ in range(2)]
    with stage.load(servers):
        time.sleep(stage.pace.seconds)
    # After the load, measure how fast one server notifies the other.
    workers = [stage.worker(server, number) for number, server in enumerate(servers, WORKER)]
    woken_s = [wake_up(*workers) if number % 2 else wake_up(*reversed(workers)) for number in range(WAKE_UPS)]
    for each in workers:
        each.notes.close()
    woken = Figure(name="woken by the other server within", value=max(woken_s), limit=WOKEN_S)
    return outcome_of(stage.history(servers[0]), faults=0, figures=[woken])


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
        wait_until(lambda: is_taken(port), "pgbouncer listens")
        yield f"postgresql://postgres@127.0.0.1:{port}/{own['dbname']}"
    finally:
        process.kill()
        process.wait()


def wake_up(claimer: Worker, adder: Worker) -> float:
    """Return the seconds from the response of an add on one server to that of a waiting claim on the other."""
    with ThreadPoolExecutor(1) as waiting:
        claimed = waiting.submit(claimer.claimed, 1, DURATION_MS, WAIT_MS)
        time.sleep(0.5)
        adder.committed(adds=[{"group": HELD, "data": adder.unique()}])
        added_s = time.monotonic()
        if not claimed.result():
            raise CannotTry("a claim that waited for a task was not woken at all")
        return max(0.0, time.monotonic() - added_s)
