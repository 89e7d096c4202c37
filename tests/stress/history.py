"""What clients asked and were answered, and what the database holds in the end."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Event:
    """A request and its answer. Without an answer it is in doubt: it may have been done or not."""

    client: int
    path: str
    body: Any
    sent_s: float
    received_s: float
    sent_ms: int
    received_ms: int
    status: int | None
    answer: Any

    @property
    def is_change(self) -> bool:
        return self.path in ("/update", "/claim")

    @property
    def is_claim(self) -> bool:
        return self.path == "/claim"

    @property
    def is_done(self) -> bool:
        """Whether it was answered that it has changed something."""
        return self.is_change and self.status == 200 and not self.answer["error"]

    @property
    def made(self) -> list[Row]:
        return list(self.answer["tasks"]) if self.is_done else []

    @property
    def refusal(self) -> Row:
        return (self.answer["error"] or {}) if self.is_change and self.status == 200 else {}

    @property
    def named(self) -> list[int]:
        """The ids that it updates or deletes."""
        return [update["id"] for update in self.body.get("updates", [])] + list(self.body.get("deletes", []))

    @property
    def makes(self) -> int:
        """How many tasks a commit comes to."""
        return len(self.body.get("adds", [])) + len(self.body.get("updates", []))

    @property
    def seen(self) -> list[Row]:
        """The tasks in the answer."""
        if self.status != 200:
            return []
        tasks = self.answer["tasks"] if self.is_change else self.answer
        return [task for task in tasks if task is not None]


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The tables, when all is quiet."""

    living: dict[int, Row]
    ended: dict[int, Row]


def events_in(files: Iterable[Path]) -> Iterator[Event]:
    for file in files:
        for line in file.read_text().splitlines():
            yield Event(**json.loads(line))


def truth_of(folder: Path, database_url: str) -> Truth:
    """The tables of the SQLite file in the folder, or of the PostgreSQL at the address."""
    read = read_postgresql(database_url) if database_url else read_sqlite(folder / "taskstore.sqlite3")
    living, ended = ({row["id"]: row for row in rows} for rows in read)
    for row in living.values():
        row["data"] = bytes(row["data"]).decode()
    return Truth(living=living, ended=ended)


TABLES = ("SELECT * FROM tasks_app_task", "SELECT * FROM tasks_app_endedtask")


def read_sqlite(file: Path) -> list[list[Row]]:
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row
        return [list(map(dict, connection.execute(query))) for query in TABLES]


def read_postgresql(address: str) -> list[list[Row]]:
    with psycopg.connect(address, row_factory=dict_row) as connection:
        return [connection.execute(query).fetchall() for query in TABLES]
