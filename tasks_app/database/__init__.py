"""One transaction of the store, and all that differs between PostgreSQL and SQLite.

The transaction is written once (deciding.py), as steps that say which statements to send and are told
what came back. Whoever drives them owns the connection: in running.py it is Django's, within the
caller's transaction or one of our own; in the writer it is the writer's.

SQL instead of the ORM, because row locks of two strengths in one order, ids that
are never used twice, and inserts of ten thousand rows at once can't be said in it.
"""

from .batch import Decided, Outcome, Plan, Undecided
from .deciding import granted, look_and_decide
from .dialect import ID_JUMP, PATIENCE_S, UNCONFIRMED, Dialect, is_opportunistic
from .postgresql import HOUSEKEEPING_LOCK, SILENCE_S, PostgreSQL
from .rows import COLUMNS, MINUTE_MS, Row, Statement, Steps, T
from .running import (
    DIALECTS,
    bookkeeping,
    dialect_of,
    group_names,
    hurry,
    newest_id,
    now_ms,
    read,
    reading,
    rows_at_once,
    run,
)
from .sqlite import SQLite, flush_sqlite, jump_ids_of_sqlite

__all__ = [
    "COLUMNS",
    "DIALECTS",
    "HOUSEKEEPING_LOCK",
    "ID_JUMP",
    "MINUTE_MS",
    "PATIENCE_S",
    "SILENCE_S",
    "UNCONFIRMED",
    "Decided",
    "Dialect",
    "Outcome",
    "Plan",
    "PostgreSQL",
    "Row",
    "SQLite",
    "Statement",
    "Steps",
    "T",
    "Undecided",
    "bookkeeping",
    "dialect_of",
    "flush_sqlite",
    "granted",
    "group_names",
    "hurry",
    "is_opportunistic",
    "jump_ids_of_sqlite",
    "look_and_decide",
    "newest_id",
    "now_ms",
    "read",
    "reading",
    "rows_at_once",
    "run",
]
