"""Read the tables and counts of a store at rest."""

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
from taskstore.types.tasks import holds_results

from .history import Row, Truth

T = TypeVar("T")

PATIENCE_S = 30
QUIET_S = 5  # Counts must be exact so long after the last change.
STATES = ("ready", "claimed", "expired", "scheduled", "finished")
FILE = "taskstore.sqlite3"
TABLES = (
    f"SELECT *, {whole_data('tasks_app_task')} AS whole_data FROM tasks_app_task",  # noqa: S608 - no part of it comes from outside.
    "SELECT * FROM tasks_app_endedtask",
    """
    SELECT batch.id, name, parent, closed_at_ms, refuses, root, path, problem, has_failed, children, failed_children,
        steps, coalesce(sum(open), 0) AS open, coalesce(sum(failed), 0) AS failed,
        coalesce(sum(gone), 0) AS gone, coalesce(sum(open + failed + ended + gone), 0) AS total
    FROM tasks_app_batch AS batch LEFT JOIN tasks_app_batchcount AS counts ON counts.batch = batch.id
    GROUP BY batch.id
    """,
)


def truth_of(folder: Path, database_url: str, server_url: str, token: str) -> Truth:
    """Read the tables, of SQLite or of the PostgreSQL at the address, and the server's counts."""
    read = read_postgresql(database_url) if database_url else read_sqlite(folder / FILE)
    living, ended, batches = ({row["id"]: row for row in rows} for rows in read)
    for row in living.values():
        row["data"] = bytes(row.pop("whole_data")).decode()
    counts = partial(counts_of, server_url, token)
    found = settled(counts, Counter(row["group"] for row in living.values()))
    return Truth(living=living, ended=ended, counts=found, batches=batches)


def settled(read: Callable[[], T], expected: object) -> T:
    """Read until the result is as expected or QUIET_S have passed, and return it."""
    deadline = time.monotonic() + QUIET_S
    while (found := read()) != expected and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def counts_of(server_url: str, token: str) -> dict[str, int]:
    """Return the server's count of tasks by group."""
    headers = {"Authorization": f"Bearer {token}"}
    # Ignore the environment's proxies, because the server is local.
    answer = httpx.get(f"{server_url}/stats", headers=headers, timeout=PATIENCE_S, trust_env=False, verify=NO_TLS)
    groups = answer.raise_for_status().json()["groups"]
    # A dead letter is counted beside its state as well, but for the records of failed jobs and commands.
    kept = {stats["group"]: stats.get("dead", 0) for stats in groups if holds_results(stats["group"])}
    return {
        stats["group"]: sum(stats.get(state, 0) for state in STATES) + kept.get(stats["group"], 0) for stats in groups
    }


def read_sqlite(file: Path) -> list[list[Row]]:
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row
        return [list(map(dict, connection.execute(query))) for query in TABLES]


def read_postgresql(address: str) -> list[list[Row]]:
    with psycopg.connect(address, row_factory=dict_row) as connection:
        return [connection.execute(query).fetchall() for query in TABLES]
