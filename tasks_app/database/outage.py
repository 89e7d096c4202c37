"""Whether an error means that the database is away, why, and how long it has been.

Every way in asks `translated`, so that all of them agree on what is a 503 and what is a defect. Django, psycopg and
sqlite3 name their errors as PEP 249 does, so that the names decide: psycopg is not even imported on SQLite.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator

from taskstore.errors import CommitUnknown, StoreBusy, StoreDamaged, StoreUnavailable

RETRY_AFTER_S = 1
LONGEST_CAUSE = 300  # Characters of an error, in the log.
DEEPEST = 5  # Errors that caused each other.

READ_ONLY = "25006"  # Also the answer of a standby.
NOT_SUPPORTED = "0A000"
NO_SPACE = "53100"
NO_CONNECTION_LEFT = "53300"
CORRUPTED = ("XX001", "XX002")
SQLITE_CORRUPTED = (11, 26)  # SQLITE_CORRUPT, SQLITE_NOTADB
LACKS_TABLES = "the database lacks tables until `migrate` has run"
DAMAGED = "the database is damaged"
SILENT_TOO_LONG = "25P03"  # psycopg takes this end of a transaction for an internal error.
STARTING_OR_STOPPING = ("57P01", "57P02", "57P03")
# Somebody else's transaction is in the way: deadlock, serialization failure, lock timeout, cancelled statement.
CONTENTION = ("40P01", "40001", "55P03", "57014")
# psycopg's own words for a server that ended amid an answer. Which of its errors it is differs between releases.
BROKEN_OFF = re.compile(r"received \d+ results from|unexpected result|got no result|no result from")

log = logging.getLogger(__name__)


def translated(error: BaseException) -> StoreUnavailable | StoreBusy | None:
    """The error as the store's own, for the client; None when it is neither the database nor its locks.

    Says nothing of addresses or statements: those are for the log.
    """
    if isinstance(error, (StoreUnavailable, StoreBusy)) and not (is_damaged(error) and error.__cause__):
        return error
    if is_damaged(error):
        outage.note_damage(error)
        return StoreDamaged(f"{DAMAGED}: an operator has to repair it, or to restore a backup")
    if is_contention(error):
        return StoreBusy("the database is busy with other transactions: try again later")
    if is_away(error):
        return StoreUnavailable(f"{reason_of(error)}: try again later")
    return None


def is_away(error: BaseException) -> bool:
    """Whether the database can't be reached, or can't do now what it could do before."""
    if isinstance(error, CommitUnknown) and error.__cause__:
        return is_away(error.__cause__)  # A defect may have lost the answer, with the database at work.
    if isinstance(error, StoreUnavailable) or is_damaged(error):
        return True
    if takes_no_changes(error) or _state_of(error) == SILENT_TOO_LONG:
        return True
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "OperationalError" in kinds:
        return not is_contention(error)
    return "InterfaceError" in kinds or (
        "DatabaseError" in kinds and _state_of(error) is None and _has_broken_off(error)
    )


def is_damaged(error: BaseException) -> bool:
    """Whether the database can't make sense of its own files."""
    if isinstance(error, StoreDamaged) or _state_of(error) in CORRUPTED:
        return True
    return any(getattr(each, "sqlite_errorcode", 0) & 0xFF in SQLITE_CORRUPTED for each in _chain(error))


def is_contention(error: BaseException) -> bool:
    """Whether another transaction was in the way."""
    if _state_of(error) in CONTENTION:
        return True
    return any(type(each).__name__ == "OperationalError" and "is locked" in str(each) for each in _chain(error))


def takes_no_changes(error: BaseException) -> bool:
    """Whether the server is a standby now, or was told to be read-only: another connection may find the primary."""
    return _state_of(error) == READ_ONLY or _is_of_standby(error)


def reason_of(error: BaseException) -> str:
    """Why the database is away, in words for whoever asked."""
    if isinstance(error, StoreUnavailable) and error.__cause__ is None:
        return str(error).removesuffix(": try again later")
    if is_damaged(error):
        return DAMAGED
    state, text = _state_of(error), " ".join(str(each) for each in _chain(error))
    if takes_no_changes(error) or "readonly database" in text or "session is read-only" in text:
        return "the database is read-only or a standby, and accepts no changes"
    if state == NO_SPACE or "disk is full" in text:
        return "the disk of the database is full"
    if state == NO_CONNECTION_LEFT or "too many clients" in text:
        return "the database has no free connections"
    if state in STARTING_OR_STOPPING or "system is starting up" in text or "system is shutting down" in text:
        return "the database is starting or stopping"
    if state == SILENT_TOO_LONG:
        return "the database ended a transaction that was idle for too long"
    if "no such table" in text:
        return LACKS_TABLES
    return "the database can't be reached"


def _is_of_standby(error: BaseException) -> bool:
    # An unlogged table on a standby is "not supported", as many mistakes of ours would be. The names of PostgreSQL's
    # functions are the same in all languages, its messages are not.
    for each in _chain(error):
        if getattr(each, "sqlstate", None) == NOT_SUPPORTED:
            told = getattr(each, "diag", None)
            function, text = getattr(told, "source_function", None), getattr(told, "message_primary", None) or str(each)
            return function == "get_relation_info" or "during recovery" in text
    return False


def _has_broken_off(error: BaseException) -> bool:
    # libpq's word of a lost connection has no SQLSTATE, and is a plain DatabaseError then.
    cause = list(_chain(error))[-1]
    is_plain = type(cause).__name__ == "DatabaseError" and type(cause).__module__.startswith("psycopg")
    return is_plain or bool(BROKEN_OFF.search(str(cause)))


def _state_of(error: BaseException) -> str | None:
    """PostgreSQL's SQLSTATE; None when it did not say one, or is not PostgreSQL."""
    return next((state for each in _chain(error) if (state := getattr(each, "sqlstate", None))), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, then what it was raised from: Django's errors are raised from the driver's."""
    each: BaseException | None = error
    for _ in range(DEEPEST):
        if each is None:
            return
        yield each
        each = each.__cause__


class Outage:
    """What this process knows of the database: two lines of the log an outage, however many requests meet it.

    Several parts of a process look after connections of their own. The outage lasts until each of them that failed
    works again. Called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failing: set[str] = set()
        self._since_s = 0.0
        self._lacks_tables = False
        self.is_damaged = False  # For good: the next start looks anew.

    @property
    def is_on(self) -> bool:
        return bool(self._failing)

    def failed(self, part: str, error: BaseException) -> None:
        """This part can't use the database. An error that says nothing about the database is ignored."""
        if is_damaged(error):
            self.note_damage(error)
            return
        if not is_away(error):
            return
        with self._lock:
            is_new = not self._failing
            self._failing.add(part)
            self._lacks_tables = reason_of(error) == LACKS_TABLES
            if is_new:
                self._since_s = time.monotonic()
        if is_new:
            log.error("%s; requests fail with 503 until it is back (%s)", reason_of(error), _cause_of(error))

    def note_damage(self, error: BaseException) -> None:
        """Say it once, and have the server say that it is not ready."""
        with self._lock:
            is_known, self.is_damaged = self.is_damaged, True
        if not is_known:
            log.error("%s (%s): stop the server, and repair it or restore a backup", DAMAGED, _cause_of(error))

    def worked(self, part: str, idle: str = "") -> None:
        """This part can use the database, and so can another one that may be idle, unless its tables are missing."""
        if not self._failing:  # Said after each batch.
            return
        with self._lock:
            was_failing = bool(self._failing)
            self._failing -= {part} if self._lacks_tables else {part, idle}
            is_over = was_failing and not self._failing
        if is_over:
            log.warning("the database is back after %.1f s", time.monotonic() - self._since_s)


outage = Outage()  # Of this process.

WRITER, HOUSEKEEPING, POOL = "writer", "housekeeping", "pool"


def _cause_of(error: BaseException) -> str:
    text = " ".join(str(list(_chain(error))[-1]).split())
    return text if len(text) <= LONGEST_CAUSE else f"{text[:LONGEST_CAUSE]}…"
