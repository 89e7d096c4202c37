"""What the database holds, when all is quiet."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

import httpx
import psycopg
from psycopg.rows import dict_row

from lab.testing import NO_TLS
from tasks_app.database.rows import whole_data

from .history import Row, Truth

T = TypeVar("T")

PATIENCE_S = 30
QUIET_S = 5  # After the last change, until counts have to be exact.
STATES = ("ready", "claimed", "expired", "scheduled", "finished")
FILE = "taskstore.sqlite3"
TABLES = (
    f"SELECT *, {whole_data('tasks_app_task')} AS whole_data FROM tasks_app_task",  # noqa: S608 - no part of it comes from outside.
    "SELECT * FROM tasks_app_endedtask",
)


def truth_of(folder: Path, database_url: str, server_url: str, token: str) -> Truth:
    """The tables of the SQLite file in the folder, or of the PostgreSQL at the address, and what the server counts."""
    read = read_postgresql(database_url) if database_url else read_sqlite(folder / FILE)
    living, ended = ({row["id"]: row for row in rows} for rows in read)
    for row in living.values():
        row["data"] = bytes(row.pop("whole_data")).decode()
    counts = partial(counts_of, server_url, token)
    return Truth(living=living, ended=ended, counts=settled(counts, Counter(row["group"] for row in living.values())))


def settled(read: Callable[[], T], expected: object) -> T:
    """What is read, as soon as it is as expected, or when there was time enough for that."""
    deadline = time.monotonic() + QUIET_S
    while (found := read()) != expected and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def counts_of(server_url: str, token: str) -> dict[str, int]:
    """How many tasks each group has, as the server says."""
    headers = {"Authorization": f"Bearer {token}"}
    # Without the proxies of the environment: they lead out, and the server is near.
    answer = httpx.get(f"{server_url}/stats", headers=headers, timeout=PATIENCE_S, trust_env=False, verify=NO_TLS)
    groups = answer.raise_for_status().json()["groups"]
    return {stats["group"]: sum(stats.get(state, 0) for state in STATES) for stats in groups}


def read_sqlite(file: Path) -> list[list[Row]]:
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row
        return [list(map(dict, connection.execute(query))) for query in TABLES]


def read_postgresql(address: str) -> list[list[Row]]:
    with psycopg.connect(address, row_factory=dict_row) as connection:
        return [connection.execute(query).fetchall() for query in TABLES]
