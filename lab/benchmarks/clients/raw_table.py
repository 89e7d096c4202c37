"""The table of those who work on the bare database."""

from __future__ import annotations

import psycopg

from . import raw_sql
from .client import Client

ADD = raw_sql.add(tasks="%s").encode()


class RawClient(Client):
    def prepare(self) -> None:
        with psycopg.connect(self.where["url"], autocommit=True) as connection:
            for statement in raw_sql.TABLE:
                connection.execute(statement)

    def add(self, tasks: int) -> None:
        with psycopg.connect(self.where["url"], autocommit=True) as connection:
            connection.execute(ADD, [tasks])
