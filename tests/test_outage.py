"""What counts as an outage of the database, and what the log says of one."""

import logging
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import django.db
import psycopg
import pytest
from grpc import StatusCode
from psycopg import errors

from tasks_app.database.outage import Outage, is_away, reason_of, translated
from tasks_app.grpc_api.statuses import status_of
from tasks_app.rest_api.answers import answer_to
from taskstore.errors import CommitUnknown, StoreBusy, StoreUnavailable

pytestmark = pytest.mark.once

STANDBY = "cannot access temporary or unlogged relations during recovery"
AWAY = [
    psycopg.OperationalError("connection failed: Connection refused"),
    psycopg.InterfaceError("connection already closed"),
    psycopg.DatabaseError("server closed the connection unexpectedly"),
    psycopg.ProgrammingError("received 2 results from command 'COMMIT'"),
    psycopg.InternalError("received 2 results from command 'COMMIT'"),
    psycopg.InternalError("unexpected result status from query: FATAL_ERROR"),
    errors.FeatureNotSupported(STANDBY),
    errors.ReadOnlySqlTransaction("cannot execute INSERT in a read-only transaction"),
    errors.AdminShutdown("terminating connection"),
    errors.IdleInTransactionSessionTimeout("terminating connection due to idle-in-transaction timeout"),
    errors.CannotConnectNow("the database system is starting up"),
    errors.DiskFull("could not extend file"),
    errors.TooManyConnections("sorry, too many clients already"),
    sqlite3.OperationalError("unable to open database file"),
    sqlite3.OperationalError("database or disk is full"),
]
BUSY = [
    errors.DeadlockDetected("deadlock detected"),
    errors.LockNotAvailable("lock timeout"),
    sqlite3.OperationalError("database is locked"),
]
DEFECTS = [
    errors.UndefinedTable("no such table"),
    errors.FeatureNotSupported("cached plan must not change result type"),
    errors.UniqueViolation("duplicate key"),
    psycopg.ProgrammingError("the query has 2 placeholders but 1 parameters were passed"),
    sqlite3.IntegrityError("UNIQUE constraint failed"),
    ZeroDivisionError("of all things"),
]
KINDS = (
    "OperationalError",
    "InterfaceError",
    "ProgrammingError",
    "InternalError",
    "NotSupportedError",
    "DatabaseError",
)


def from_django(error):
    """As Django hands over what the driver raised."""
    kind = next((each.__name__ for each in type(error).__mro__ if each.__name__ in (*KINDS, "IntegrityError")), None)
    if kind is None:
        return error
    wrapped = getattr(django.db, kind)(*error.args)
    wrapped.__cause__ = error
    return wrapped


def named(error):
    return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("hand_over", [lambda error: error, from_django], ids=["driver", "Django"])
class TestEveryWayIn:
    @pytest.mark.parametrize("error", AWAY, ids=named)
    def test_says_503_in_an_outage(self, error, hand_over):
        error = hand_over(error)
        assert is_away(error)
        told = answer_to(error, {})
        assert told
        assert (told.status_code, told.headers["Retry-After"]) == (503, "1")
        assert getattr(told.data, "code", "") == "unavailable"
        status = status_of(error)
        assert status
        assert status.code == StatusCode.UNAVAILABLE.value[0]

    @pytest.mark.parametrize("error", BUSY, ids=named)
    def test_says_503_where_others_hold_the_rows(self, error, hand_over):
        error = hand_over(error)
        assert not is_away(error)
        assert isinstance(translated(error), StoreBusy)
        told = answer_to(error, {})
        assert told
        assert getattr(told.data, "code", "") == "busy"

    @pytest.mark.parametrize("error", DEFECTS, ids=named)
    def test_takes_no_defect_for_an_outage(self, error, hand_over):
        assert translated(hand_over(error)) is None


def test_the_client_learns_why_but_no_address():
    refused = psycopg.OperationalError('connection to server at "db.internal" failed: Connection refused')
    assert str(translated(refused)) == "the database can't be reached: try again later"
    assert reason_of(errors.DiskFull("could not extend file")) == "the disk of the database is full"
    assert "read-only or a standby" in reason_of(errors.FeatureNotSupported(STANDBY))
    unmigrated = sqlite3.OperationalError("no such table: tasks_app_counters")
    assert reason_of(unmigrated) == "the database lacks tables until `migrate` has run"
    full = StoreUnavailable("...")
    full.__cause__ = sqlite3.OperationalError("database or disk is full")
    assert reason_of(full) == "the disk of the database is full"


def damage():
    """SQLite's own error of a file that is none of its."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tasks.sqlite3"
        path.write_bytes(b"no database at all" * 100)
        with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.DatabaseError) as raised:
            connection.execute("SELECT * FROM tasks")
    return raised.value


@pytest.mark.parametrize("error", [damage(), errors.DataCorrupted("invalid page in block 7")], ids=named)
@pytest.mark.parametrize("hand_over", [lambda error: error, from_django], ids=["driver", "Django"])
def test_damage_has_a_code_of_its_own_and_one_line(error, hand_over, monkeypatch, caplog):
    monkeypatch.setattr("tasks_app.database.outage.outage", Outage())
    told = [answer_to(hand_over(error), {}) for _ in range(3)][-1]
    assert told
    assert (told.status_code, getattr(told.data, "code", "")) == (503, "damaged")
    assert [message.partition(" (")[0] for message in caplog.messages] == ["the database is damaged"]


def test_a_commit_in_doubt_stays_one():
    doubt = CommitUnknown("the database did not confirm the COMMIT")
    assert translated(doubt) is doubt


@pytest.fixture
def outage(caplog):
    caplog.set_level(logging.WARNING)
    return Outage()


def test_the_log_has_two_lines_an_outage(outage, caplog):
    for _ in range(100):
        outage.failed("writer", AWAY[0])
        outage.failed("pool", AWAY[0])
    outage.worked("writer")
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("the database can't be reached; requests fail with 503 until it is")
    outage.worked("pool")
    outage.worked("pool", "writer")
    assert len(caplog.messages) == 2
    assert caplog.messages[1].startswith("the database is back after 0.")
    outage.failed("pool", AWAY[0])
    assert len(caplog.messages) == 3


def test_tables_that_are_missing_are_said_once(outage, caplog):
    missing = sqlite3.OperationalError("no such table: tasks_app_task")
    for _ in range(3):
        outage.failed("writer", missing)
        outage.worked("housekeeping", "writer")  # It uses other tables.
    assert len(caplog.messages) == 1
    outage.worked("writer")  # Somebody has migrated.
    assert len(caplog.messages) == 2


def test_what_is_no_outage_has_no_line(outage, caplog):
    for error in (*BUSY, *DEFECTS):
        outage.failed("writer", error)
    outage.worked("writer")
    assert caplog.messages == []


def test_many_threads_begin_one_outage(outage, caplog):
    begin = threading.Barrier(8)

    def fail():
        begin.wait()
        outage.failed("pool", AWAY[0])

    threads = [threading.Thread(target=fail) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(caplog.messages) == 1
