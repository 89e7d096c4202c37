"""Read and insert rows one by one in each database, so that memory does not grow with the store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from django.core.management.color import no_style
from django.db import DEFAULT_DB_ALIAS, connection, transaction

from tasks_app.database import Dialect, PostgreSQL, SQLite, Statement, dialect_of
from taskstore_project.startup_migration import reached

from .tables import Row, Table


class Session(ABC):
    """One transaction."""

    look: tuple[str, ...]  # Statements that start a transaction with one snapshot, which blocks no other.
    before_change: tuple[str, ...] = ()
    are_labels_texts: str  # The condition that a task's labels are an object of strings.
    change: tuple[str, ...] = ()  # Statements at the start of a transaction that changes tables.

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.dialect: Dialect = dialect_of(DEFAULT_DB_ALIAS)

    def execute(self, sql: str, parameters: Any = ()) -> list[Row]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall()) if cursor.description else []

    def number(self, sql: str) -> int:
        [(number,)] = self.execute(sql)
        return int(number)

    def send(self, statement: Statement) -> None:
        self.execute(*statement)

    @abstractmethod
    def rows(self, table: Table) -> Iterator[Row]:
        """Yield all rows of the table."""

    @abstractmethod
    def insert(self, table: Table, rows: Iterable[Row]) -> None: ...

    @abstractmethod
    def keep_out(self, tables: Iterable[str]) -> None:
        """Block other writes to these tables until the end of the transaction."""

    def broken_pages(self) -> Iterator[str]:
        """Yield the problems of the database's files, a line each."""
        yield from ()  # A database server checks its own files.

    def number_on(self, tables: Iterable[Table]) -> None:
        """Set the sequences of the tables beyond their present rows."""
        for sql in self.connection.ops.sequence_reset_sql(no_style(), [table.model for table in tables]):
            self.execute(sql)


class SQLiteSession(Session):
    look = ("BEGIN",)
    # The data is on the disk when the command ends, whatever the server's durability.
    before_change = ("PRAGMA synchronous = FULL",)
    are_labels_texts = """
        json_valid(labels) AND json_type(labels) = 'object'
            AND NOT EXISTS (SELECT 1 FROM json_each(labels) WHERE type <> 'text')
    """

    def rows(self, table: Table) -> Iterator[Row]:
        with self.connection.cursor() as cursor:
            cursor.execute(f"SELECT {table.quoted_columns} FROM {table.name}")
            for row in cursor:
                yield tuple(aware(value) if isinstance(value, datetime) else value for value in row)

    def insert(self, table: Table, rows: Iterable[Row]) -> None:
        places = ", ".join(["?"] * len(table.columns))
        # Not Django's executemany, which keeps all rows in memory.
        with self.connection.wrap_database_errors:
            self.connection.connection.executemany(
                f"INSERT INTO {table.name} ({table.quoted_columns}) VALUES ({places})", rows
            )

    def keep_out(self, tables: Iterable[str]) -> None:
        pass  # SQLite allows only one writing transaction.

    def broken_pages(self) -> Iterator[str]:
        for (text,) in self.execute("PRAGMA integrity_check"):
            if text != "ok":
                yield f"the file is damaged: {text}"
        for table, row, *_ in self.execute("PRAGMA foreign_key_check"):
            yield f"row {row} of {table} refers to a missing row"


class PostgreSQLSession(Session):
    unlimited = (
        # The limits for requests would end a long backup.
        "SET LOCAL statement_timeout = 0",
        "SET LOCAL idle_in_transaction_session_timeout = 0",
        # Whoever gives up leaves no query behind. Other systems refuse the setting.
        "SELECT set_config('client_connection_check_interval', '5s', true) WHERE version() ~ 'linux'",
    )
    look = (
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        *unlimited,
        # `verify` joins whole tables, and the planner may know nothing yet of a day's history.
        "SET LOCAL enable_nestloop = off",
    )
    change = (*unlimited, "SET LOCAL synchronous_commit = on")
    are_labels_texts = """
        jsonb_typeof(labels) = 'object' AND NOT jsonb_path_exists(labels, '$.* ? (@.type() <> "string")')
    """

    def rows(self, table: Table) -> Iterator[Row]:
        # COPY, because a cursor fetches many rows at a time, each of which may hold megabytes.
        copying = f"COPY (SELECT {table.quoted_columns} FROM {table.name}) TO STDOUT"
        with self.connection.wrap_database_errors, self.connection.cursor() as cursor, cursor.copy(copying) as copy:
            copy.set_types([self.type_of(field) for field in table.fields])
            yield from copy.rows()

    def keep_out(self, tables: Iterable[str]) -> None:
        self.execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")

    def type_of(self, field: Any) -> str:
        name, _, _ = field.db_type(self.connection).partition("(")
        return str(name)

    def insert(self, table: Table, rows: Iterable[Row]) -> None:
        copying = f"COPY {table.name} ({table.quoted_columns}) FROM STDIN"
        with self.connection.wrap_database_errors, self.connection.cursor() as cursor, cursor.copy(copying) as copy:
            for row in rows:
                copy.write_row(row)


SESSIONS: dict[type[Dialect], type[Session]] = {SQLite: SQLiteSession, PostgreSQL: PostgreSQLSession}


def session_on(connection: Any) -> Session:
    return SESSIONS[type(dialect_of(DEFAULT_DB_ALIAS))](connection)


def aware(at: datetime) -> datetime:
    """Add UTC to a time, which SQLite stores without a zone."""
    return at.replace(tzinfo=UTC)


@contextmanager
def looking() -> Iterator[Session]:
    """Open a session with a snapshot of the store, which may be served meanwhile."""
    with reached() as connection:
        session = session_on(connection)
        begin(session, session.look)
        yield session


@contextmanager
def changing(tables: Iterable[str]) -> Iterator[Session]:
    """Open a session on Django's connection that changes these tables: all or nothing, without other writers."""
    session = session_on(connection)
    begin(session, session.before_change)
    with transaction.atomic():
        begin(session, session.change)
        session.keep_out(tables)
        yield session


def begin(session: Session, statements: Iterable[str]) -> None:
    for statement in statements:
        session.execute(statement)
