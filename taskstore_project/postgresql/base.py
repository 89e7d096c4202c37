"""Django's backend for PostgreSQL with a pool of our own.

psycopg's pool doubles the time between its tries: after an outage of two minutes it waits two more before it looks
again. This one looks twice a second for as long as it takes.
"""

from __future__ import annotations

import random
import select
import time
from typing import Any
from weakref import ref

import psycopg
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.postgresql import base
from psycopg import pq
from psycopg_pool import ConnectionPool
from psycopg_pool.base import AttemptWithBackoff

from tasks_app.database.outage import POOL, outage

AGAIN_S = 0.5  # From the begin of a try to the begin of the next one.
JITTER_S = 0.1  # Many processes must not try all at once.
CHECK_S = 2.0  # A connection that does not answer a ping within this time is replaced.
AT_ONCE_S = 0.05  # How long a request waits for a connection when the outage is older than its patience.

Connection = psycopg.Connection[Any]


class SteadyTries(AttemptWithBackoff):
    """When to try next, and when to stop: never for the connections that are always kept, nor while somebody waits."""

    def __init__(self, pool: SteadyPool) -> None:
        super().__init__(timeout=float("inf"))
        self._pool = ref(pool)

    def update_delay(self, now: float) -> None:
        """`now` is when the try that failed began: one that took long is followed by another one at once."""
        next_s = now + AGAIN_S + random.uniform(-JITTER_S, JITTER_S)  # noqa: S311 - no secret.
        self.delay = max(0.0, next_s - time.monotonic())

    def time_to_give_up(self, now: float) -> bool:
        pool = self._pool()
        return pool is None or pool.has_spare_tries


class SteadyPool(ConnectionPool[Connection]):
    """Serves again within a second of the database's first answer, however long it was away."""

    _away_since_s: float | None = None  # Since when each try to connect has failed.
    _connected_s = float("-inf")  # When the last one succeeded.

    @property
    def has_spare_tries(self) -> bool:
        """Whether a connection need not be tried for any more: there are others, and nobody waits."""
        with self._lock:
            # psycopg's pool forgets those who gave up waiting when there is a connection for them, and not before.
            while self._waiting and self._waiting[0].error:
                self._waiting.popleft()
            return self._nconns > self.min_size and not self._waiting

    def getconn(self, timeout: float | None = None) -> Connection:
        """As psycopg's, but an outage that is older than the patience is told at once: others wait behind."""
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
            # Of tries at the same time one may have met the network before it was back, and end after the others.
            if began_s > self._connected_s:
                if self._away_since_s is None:
                    self._away_since_s = began_s
                outage.failed(POOL, error)
            raise
        self._away_since_s, self._connected_s = None, time.monotonic()
        outage.worked(POOL)
        return connection

    def _check_connection(self, connection: Connection) -> None:
        """Replace all that nobody uses when one of them has broken.

        The others have, too, mostly: psycopg's pool would try one after the other, and rest for longer each time.
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
                raise psycopg.OperationalError("the database does not answer on a connection that was open")
    except (psycopg.Error, OSError, ValueError):
        connection.close()
        raise


class DatabaseWrapper(base.DatabaseWrapper):
    # Django's; its type stubs don't have them.
    _connection_pools: dict[str, SteadyPool]
    _configure_connection: Any

    @property
    def pool(self) -> SteadyPool | None:
        """As Django's, but of our kind."""
        options = self.settings_dict["OPTIONS"].get("pool")
        if self.alias == NO_DB_ALIAS or not options:
            return None
        if self.alias not in self._connection_pools:
            made = SteadyPool(
                kwargs={**self.get_connection_params(), "autocommit": True},
                open=False,
                configure=self._configure_connection,
                check=ping if self.settings_dict["CONN_HEALTH_CHECKS"] else None,
                **options,
            )
            # Of threads that make one at once the first wins.
            self._connection_pools.setdefault(self.alias, made)
        return self._connection_pools[self.alias]
