"""Django's backend for PostgreSQL with another pool.

psycopg's pool doubles the time between its attempts: after an outage of two minutes it waits two more before the next
one. This pool tries twice a second, without a limit.
"""

from __future__ import annotations

import random
import select
import time
from typing import Any, Self
from weakref import ref

import psycopg
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.postgresql import base
from psycopg import pq
from psycopg_pool import ConnectionPool
from psycopg_pool.base import AttemptWithBackoff

from tasks_app.database.outage import POOL, outage

AGAIN_S = 0.5  # From the start of an attempt to the start of the next one.
JITTER_S = 0.1  # Keeps many processes from trying at once.
CHECK_S = 2.0  # A connection that does not answer a ping within this time is replaced.
AT_ONCE_S = 0.05  # How long a request waits for a connection when the outage is older than its patience.

READ_ONLY_S = 1.0  # How long a connection that takes no changes is used, before another look for one that does.


class Connection(psycopg.Connection[Any]):
    """A connection to the server that takes changes; to a primary that is read-only, while there is none.

    Not to a standby, which may lack what was acknowledged.
    """

    usable_until_s = float("inf")

    @classmethod
    def connect(cls, conninfo: str = "", **options: Any) -> Self:
        try:
            return super().connect(conninfo, **options)
        except psycopg.OperationalError as error:
            if "session is read-only" not in str(error):
                raise
            try:
                connection = super().connect(conninfo, **options | {"target_session_attrs": "primary"})
            except psycopg.OperationalError:
                raise error from None
        connection.usable_until_s = time.monotonic() + READ_ONLY_S
        return connection


class SteadyTries(AttemptWithBackoff):
    """The times of attempts. They never stop for the pool's minimum of connections, or while a request waits."""

    def __init__(self, pool: SteadyPool) -> None:
        super().__init__(timeout=float("inf"))
        self._pool = ref(pool)

    def update_delay(self, now: float) -> None:
        """Set the delay. `now` is the start of the failed attempt: after a long one, the next follows at once."""
        next_s = now + AGAIN_S + random.uniform(-JITTER_S, JITTER_S)  # noqa: S311 - no secret.
        self.delay = max(0.0, next_s - time.monotonic())

    def time_to_give_up(self, now: float) -> bool:
        pool = self._pool()
        return pool is None or pool.has_spare_tries


class SteadyPool(ConnectionPool[Connection]):
    """A pool that works again within a second of the database's return, after any outage."""

    _away_since_s: float | None = None  # The start of the first of the present failures.
    _connected_s = float("-inf")  # The time of the last success.

    @property
    def has_spare_tries(self) -> bool:
        """Return whether an attempt may be given up: there are other connections, and no request waits."""
        with self._lock:
            # psycopg's pool keeps requests that gave up until there is a connection for them.
            while self._waiting and self._waiting[0].error:
                self._waiting.popleft()
            return self._nconns > self.min_size and not self._waiting

    def getconn(self, timeout: float | None = None) -> Connection:
        """Get a connection as in psycopg, but fail at once in an outage that is older than the patience."""
        patience_s = self.timeout if timeout is None else timeout
        if self._away_since_s is not None and time.monotonic() - self._away_since_s > patience_s:
            patience_s = AT_ONCE_S
        return super().getconn(patience_s)

    def _add_connection(self, attempt: AttemptWithBackoff | None, growing: bool = False) -> None:
        super()._add_connection(attempt or SteadyTries(self), growing=growing)

    def _connect(self, timeout: float | None = None) -> Connection:
        began_s = time.monotonic()
        try:
            connection = super()._connect(timeout)
        except psycopg.Error as error:
            # A concurrent attempt that started before the return of the network may end after a success.
            if began_s > self._connected_s:
                if self._away_since_s is None:
                    self._away_since_s = began_s
                outage.failed(POOL, error)
            raise
        self._away_since_s, self._connected_s = None, time.monotonic()
        outage.worked(POOL)
        return connection

    def _check_connection(self, connection: Connection) -> None:
        """Replace all idle connections when one of them is broken.

        Usually all are: psycopg's pool would check one after the other, with longer and longer pauses.
        """
        try:
            super()._check_connection(connection)
        except Exception:
            self.drain()
            raise


def ping(connection: Connection) -> None:
    """Raise OperationalError, and close the connection, unless the server answers soon.

    psycopg's own check waits for as long as the network does, which may be long.
    """
    end_s = time.monotonic() + CHECK_S
    if time.monotonic() > connection.usable_until_s:
        connection.close()
        raise psycopg.OperationalError("the connection takes no changes")
    libpq = connection.pgconn
    answers = select.poll()
    try:
        answers.register(libpq.socket, select.POLLIN)
        libpq.send_query(b"")
        libpq.flush()
        while True:
            libpq.consume_input()
            while not libpq.is_busy():
                result = libpq.get_result()
                if result is None and libpq.status == pq.ConnStatus.OK:
                    return
                if result is None or result.status != pq.ExecStatus.EMPTY_QUERY:
                    raise psycopg.OperationalError("the connection to the database was lost")
            left_s = end_s - time.monotonic()
            if left_s <= 0 or not answers.poll(left_s * 1_000):
                raise psycopg.OperationalError("the database does not respond on an open connection")
    except (psycopg.Error, OSError, ValueError):
        connection.close()
        raise


class DatabaseWrapper(base.DatabaseWrapper):
    # Attributes of Django that its type stubs lack.
    _connection_pools: dict[str, SteadyPool]
    _configure_connection: Any

    @property
    def pool(self) -> SteadyPool | None:
        """Return the pool as Django does, but a SteadyPool."""
        options = self.settings_dict["OPTIONS"].get("pool")
        if self.alias == NO_DB_ALIAS or not options:
            return None
        if self.alias not in self._connection_pools:
            made = SteadyPool(
                kwargs={**self.get_connection_params(), "autocommit": True},
                open=False,
                configure=self._configure_connection,
                connection_class=Connection,
                check=ping if self.settings_dict["CONN_HEALTH_CHECKS"] else None,
                **options,
            )
            # If several threads create one at once, the first wins.
            self._connection_pools.setdefault(self.alias, made)
        return self._connection_pools[self.alias]
