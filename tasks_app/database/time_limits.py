"""Reading that may take long, for at most so long: a person waits for it, and workers need the database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from django.db import OperationalError, connections, transaction

# What PostgreSQL guesses a search in data to cost makes it compile the statement, which takes longer than running it.
FOR_READING = "SELECT set_config('statement_timeout', %s, true), set_config('jit', 'off', true)"
AS_BEFORE = "SET LOCAL statement_timeout TO DEFAULT; SET LOCAL jit TO DEFAULT"
STEPS_BETWEEN_LOOKS = 10_000  # Of SQLite's machine: about a tenth of a millisecond.


class TookTooLong(Exception):
    """The time was up before the database had answered."""


def at_most(seconds: float, *, using: str) -> AbstractContextManager[None]:
    """Around statements that read. Raises TookTooLong from the one during which the time is up."""
    limit = {"postgresql": _on_postgresql, "sqlite": _on_sqlite}[connections[using].vendor]
    return limit(seconds, using)


@contextmanager
def _on_postgresql(seconds: float, using: str) -> Iterator[None]:
    from psycopg.errors import QueryCanceled  # Where the database is SQLite nothing else needs psycopg.

    try:
        # For this transaction: pgbouncer gives the session to others after it.
        with transaction.atomic(using=using), connections[using].cursor() as cursor:
            cursor.execute(FOR_READING, [str(max(1, round(seconds * 1_000)))])
            yield
            cursor.execute(AS_BEFORE)  # A caller's own transaction goes on.
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise TookTooLong from error
        raise


@contextmanager
def _on_sqlite(seconds: float, using: str) -> Iterator[None]:
    connections[using].ensure_connection()
    database: Any = connections[using].connection
    end = time.monotonic() + seconds
    database.set_progress_handler(lambda: time.monotonic() > end, STEPS_BETWEEN_LOOKS)
    try:
        yield
    except OperationalError as error:
        if str(error) == "interrupted":
            raise TookTooLong from error
        raise
    finally:
        database.set_progress_handler(None, 0)
