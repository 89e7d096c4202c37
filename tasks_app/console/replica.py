"""Serve pages that only read from a standby. Their data may be seconds old, and no change is based on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connections
from django.http import HttpRequest, HttpResponseBase

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponseBase]

ALIAS = "replica"
SHOWN_S = 3.0  # From this lag on, a page says how old it is.
MOST_S = 30.0  # With a greater lag, pages read from the primary.
OWN_CHANGE_S = 30.0  # After a change, a person's pages read from the primary for so long.
AWAY_S = 10.0  # How long to leave an unresponsive replica alone: every page would wait for it.

CHANGED = "changed"  # The session's key for the person's last change, in seconds since the Epoch.

# A standby that has replayed everything has no lag, however old the last transaction is.
LAG = """
    SELECT CASE
        WHEN pg_last_wal_replay_lsn() >= %s::pg_lsn THEN 0
        ELSE extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())
    END
    WHERE pg_is_in_recovery()
"""


def is_there() -> bool:
    """Return whether there is a standby for the console; a project may have one of its own."""
    return bool(getattr(settings, "TASKSTORE_REPLICA_URL", ""))


class Replica:
    """The state of the standby, as this process knows it."""

    def __init__(self) -> None:
        self._away_until_s = 0.0

    def lag_s(self) -> float | None:
        """Return the lag of the standby in seconds; None when no standby is usable."""
        if not is_there() or time.monotonic() < self._away_until_s:
            return None
        written = _value(DEFAULT_DB_ALIAS, "SELECT pg_current_wal_lsn()")
        try:
            lag = _value(ALIAS, LAG, written)
        except (DatabaseError, InterfaceError):
            self.leave()
            return None
        return None if lag is None or float(lag) > MOST_S else float(lag)

    def leave(self) -> None:
        """Stop using the standby for a while, after a failure."""
        connections[ALIAS].close()
        self._away_until_s = time.monotonic() + AWAY_S


replica = Replica()


def from_replica(view: View[P]) -> View[P]:
    """Let a view that changes nothing read from the replica, and call it again on the primary if the replica fails.

    Put it below `page`, which checks access rights on the primary.
    """

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        has_just_changed = time.time() - float(request.session.get(CHANGED, 0)) < OWN_CHANGE_S
        lag_s = None if has_just_changed else replica.lag_s()
        if lag_s is None:
            return view(request, *args, **kwargs)
        # For this thread, also in code that names its database, as SQL does.
        primary = connections[DEFAULT_DB_ALIAS]
        connections[DEFAULT_DB_ALIAS] = connections[ALIAS]
        try:
            request.replica_lag_ms = round(lag_s * 1_000) if lag_s > SHOWN_S else 0  # type: ignore[attr-defined]
            return view(request, *args, **kwargs)
        except (DatabaseError, InterfaceError):
            replica.leave()
        finally:
            connections[DEFAULT_DB_ALIAS] = primary
        request.replica_lag_ms = 0  # type: ignore[attr-defined]
        return view(request, *args, **kwargs)

    return guarded


def note_change(request: HttpRequest) -> None:
    """Let the pages of this person read from the primary for a while."""
    if is_there() and request.method == "POST":
        request.session[CHANGED] = time.time()


def _value(alias: str, question: str, *parameters: str) -> Any:
    with connections[alias].cursor() as cursor:
        cursor.execute(question, parameters)
        [value] = cursor.fetchone() or [None]
        return value
