"""How much there was at the end of each minute: tasks in each state over all groups, workers that were heard.

For small lines in the console. Not a step of housekeeping but beside it, in a thread: with ten thousand groups it
takes a tenth of a second, in which SQLite would keep the event loop, and with it all commits, waiting.
"""

from __future__ import annotations

from contextlib import suppress

from django.db import DEFAULT_DB_ALIAS

from .database import MINUTE_MS, Dialect, Row, dialect_of
from .heartbeats import LOST_MS
from .time_limits import TookTooLong, at_most
from .totals import numbers_of_all

LIMIT_S = 5.0
GRACE_MS = 10_000  # After the end of a minute: what there is later says too little about it.

COLUMNS = ("minute", "ready", "claimed", "expired", "scheduled", "failed", "workers")


def keep(using: str = DEFAULT_DB_ALIAS) -> float:
    """Keep what there is now as the level of the minute that has just ended, unless somebody has.

    Returns the seconds until it is to be called again: at once when somebody else keeps house right now. A minute is
    left out when it ended a while ago, or when the database takes too long.
    """
    dialect = dialect_of(using)
    is_settled = True
    with suppress(TookTooLong), at_most(LIMIT_S, using=using):
        is_settled = _keep(dialect)
    return (MINUTE_MS - dialect.now_ms() % MINUTE_MS) / 1_000 if is_settled else 0.0


def _keep(dialect: Dialect) -> bool:
    """Returns whether there is nothing left to do for that minute."""
    minute, past_ms = divmod(dialect.now_ms(), MINUTE_MS)
    if past_ms > GRACE_MS:
        return True
    [(is_elected,)] = dialect.rows(*dialect.election())
    if is_elected and not dialect.rows("SELECT 1 FROM tasks_app_level WHERE minute = %s", [minute - 1]):
        # On SQLite everybody is elected.
        insertion = dialect.insert("tasks_app_level", COLUMNS, [_level(minute - 1, dialect)], "ON CONFLICT DO NOTHING")
        with dialect.turn():
            dialect.send(insertion)
    return bool(is_elected)


def _level(minute: int, dialect: Dialect) -> Row:
    numbers = numbers_of_all(dialect.using)
    [(workers,)] = dialect.rows(
        f"SELECT count(*) FROM tasks_app_client WHERE seen_at_ms > {dialect.clock} - %s", [LOST_MS]
    )
    return (minute, *(getattr(numbers, state) for state in COLUMNS[1:-1]), workers)
