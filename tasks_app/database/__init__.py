"""One transaction of the store, and all that differs between PostgreSQL and SQLite.

The transaction is written once (transaction.py), as steps that say which statements to send and are told
what came back. Whoever drives them owns the connection: in django_transaction.py it is Django's, within the
caller's transaction or one of our own; in the writer it is the writer's.

SQL instead of the ORM, because row locks of two strengths in one order, ids that
are never used twice, and inserts of ten thousand rows at once can't be said in it.
"""

from .dialect import ID_JUMP, PATIENCE_S, UNCONFIRMED, Dialect, is_opportunistic
from .django_transaction import (
    DIALECTS,
    atomic,
    bookkeeping,
    collation_of,
    dialect_of,
    hurry,
    newest_id,
    now_ms,
    probe,
    read,
    reading,
    rows_at_once,
    run,
    store_alias,
    with_data,
)
from .postgresql import HOUSEKEEPING_LOCK, SILENCE_S, PostgreSQL
from .rows import COLUMNS, MINUTE_MS, Heavy, Last, Row, Statement, Steps, T
from .sqlite import Each, SQLite
from .transaction import hand_over, transact
from .transaction_values import Decision, Done, Undecided

__all__ = [
    "COLUMNS",
    "DIALECTS",
    "HOUSEKEEPING_LOCK",
    "ID_JUMP",
    "MINUTE_MS",
    "PATIENCE_S",
    "SILENCE_S",
    "UNCONFIRMED",
    "Decision",
    "Dialect",
    "Done",
    "Each",
    "Heavy",
    "Last",
    "PostgreSQL",
    "Row",
    "SQLite",
    "Statement",
    "Steps",
    "T",
    "Undecided",
    "atomic",
    "bookkeeping",
    "collation_of",
    "dialect_of",
    "hand_over",
    "hurry",
    "is_opportunistic",
    "newest_id",
    "now_ms",
    "probe",
    "read",
    "reading",
    "rows_at_once",
    "run",
    "store_alias",
    "transact",
    "with_data",
]
