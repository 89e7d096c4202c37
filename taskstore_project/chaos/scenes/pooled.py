"""Servers that reach PostgreSQL through pgbouncer, which gives each transaction any connection."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
from psycopg.conninfo import conninfo_to_dict

from taskstore_project.testing.postgresql import give, unprivileged_user

from ..outcome import Figure, Outcome, outcome_of
from ..processes import StoreServer, free_port, is_taken, program
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
GROUP = "woken"


def pgbouncer(stage: Stage) -> Outcome:
    url = stage.until_the_end(bouncer(stage.places.new_folder("pgbouncer"), stage.database_url))
    servers = [stage.server(DATABASE_URL=url) for _ in range(2)]
    with stage.load(servers):
        time.sleep(stage.pace.seconds)
    # The load ends first: what is measured is how one server learns from the other.
    woken_s = [wake_up(servers, stage.token, number) for number in range(WAKE_UPS)]
    woken = Figure(name="woken by the other server within", value=max(woken_s), limit=WOKEN_S)
    return outcome_of(stage.history(servers[0]), faults=0, figures=[woken])


@contextmanager
def bouncer(folder: Path, database_url: str) -> Iterator[str]:
    """The address of the database behind a pgbouncer that has this folder for itself."""
    path, port, user = program("pgbouncer", "pgbouncer"), free_port(), unprivileged_user()
    own = conninfo_to_dict(database_url)
    where = " ".join(f"{name}={own[name]}" for name in ("host", "port") if own.get(name))
    (folder / "pgbouncer.ini").write_text(CONFIGURATION.format(where=where, port=port))
    if user:
        give(folder, user)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [path, "pgbouncer.ini"],
            cwd=folder,
            user=user and user.pw_uid,
            group=user and user.pw_gid,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until(lambda: is_taken(port), "pgbouncer listens")
        yield f"postgresql://postgres@127.0.0.1:{port}/{own['dbname']}"
    finally:
        process.kill()
        process.wait()


def wake_up(servers: list[StoreServer], token: str, number: int) -> float:
    """The seconds from the answer to an add on one server to that to a claim that waits on the other."""
    claimer, adder = servers[number % 2], servers[1 - number % 2]
    with ThreadPoolExecutor(1) as waiting:
        claim = {"clientid": 9_001, "group": GROUP, "wait": WAIT_MS}
        claimed = waiting.submit(ask, claimer, token, "/claim", claim)
        time.sleep(0.5)
        ask(adder, token, "/update", {"clientid": 9_002, "adds": [{"group": GROUP}]})
        added_s = time.monotonic()
        claimed.result()
        return max(0.0, time.monotonic() - added_s)


def ask(server: StoreServer, token: str, path: str, body: dict[str, object]) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    httpx.post(server.url + path, json=body, headers=headers, timeout=60, trust_env=False).raise_for_status()
