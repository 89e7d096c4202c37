"""Pages that only look may look at a standby: what they show is a moment old, and nothing is decided by it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connections
from django.http import HttpRequest, HttpResponse

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]

ALIAS = "replica"
TOLD_S = 3.0  # From here on a page says how old it is.
MOST_S = 30.0  # What is older is read from the primary.
OWN_CHANGE_S = 30.0  # Who has changed something sees it, wherever the replica is.
AWAY_S = 10.0  # One that did not answer is not asked again for so long: each page would wait for it.

CHANGED = "changed"  # In the session: when the person has last changed something, in seconds since the Epoch.

# On a standby that has all there is on the primary the last transaction may be old, and is the newest nevertheless.
LAG = """
    SELECT CASE
        WHEN pg_last_wal_replay_lsn() >= %s::pg_lsn THEN 0
        ELSE extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())
    END
    WHERE pg_is_in_recovery()
"""


class Replica:
    """The standby, as this process knows it."""

    def __init__(self) -> None:
        self._away_until_s = 0.0

    def lag_s(self) -> float | None:
        """How old what it has is; None when there is none that could be used."""
        if ALIAS not in connections.settings or time.monotonic() < self._away_until_s:
            return None
        written = _value(DEFAULT_DB_ALIAS, "SELECT pg_current_wal_lsn()")
        try:
            lag = _value(ALIAS, LAG, written)
        except (DatabaseError, InterfaceError):
            self.leave()
            return None
        return None if lag is None or float(lag) > MOST_S else float(lag)

    def leave(self) -> None:
        """It does not do what it should: not again for a while."""
        connections[ALIAS].close()
        self._away_until_s = time.monotonic() + AWAY_S


replica = Replica()


def from_replica(view: View[P]) -> View[P]:
    """For a view that changes nothing: it may be called a second time, with the primary, if the replica fails it.

    Below `page`, so that who may see it is asked on the primary.
    """

    @wraps(view)
    def reading(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        lag_s = None if _has_just_changed(request) else replica.lag_s()
        if lag_s is None:
            return view(request, *args, **kwargs)
        try:
            with _instead_of_the_primary():
                _tell(request, lag_s)
                return view(request, *args, **kwargs)
        except (DatabaseError, InterfaceError):
            replica.leave()
        _tell(request, 0)
        return view(request, *args, **kwargs)

    return reading


def note_change(request: HttpRequest) -> None:
    """From now on, for a while, this person's pages come from the primary."""
    if ALIAS in connections.settings and request.method == "POST":
        request.session[CHANGED] = time.time()


def _has_just_changed(request: HttpRequest) -> bool:
    return time.time() - float(request.session.get(CHANGED, 0)) < OWN_CHANGE_S


@contextmanager
def _instead_of_the_primary() -> Iterator[None]:
    """In this thread; code that names its database, as SQL does, means the standby, too."""
    primary = connections[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = connections[ALIAS]
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS] = primary


def _tell(request: HttpRequest, lag_s: float) -> None:
    """For the template of all pages."""
    request.replica_lag_ms = round(lag_s * 1_000) if lag_s > TOLD_S else 0  # type: ignore[attr-defined]


def _value(alias: str, question: str, *parameters: str) -> Any:
    with connections[alias].cursor() as cursor:
        cursor.execute(question, parameters)
        [value] = cursor.fetchone() or [None]
        return value
