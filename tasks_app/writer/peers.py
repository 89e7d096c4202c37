"""Notifications between processes on the same database about groups with new tasks to claim."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.db import connections, transaction

from ..core.operations import Supply
from ..database import dialect_of
from ..database.outage import outage
from .connection import ended, parameters_of

if TYPE_CHECKING:
    import psycopg


INSTANCE: Final = secrets.token_hex(8)


CHANNEL = "tasks_app_supply"
LISTENER = "Task Store listener"  # The application name of the connections, by which processes find each other.

SHARED_EVERY_S = 2.0  # How often it checks which processes write, even without news.
OTHERS_KNOWN_S = 1.0  # How long the answer whether other processes exist is reused.
MOST_PAYLOAD_BYTES = 7_900  # PostgreSQL allows 8 000.
PAUSE_S = 1.0  # Before a new connection.
LOGGED_AFTER = 3  # Failures in a row.
LONGEST_CAUSE = 300  # Characters of an error, in the log.

log = logging.getLogger(__name__)


class Neighbours:
    """The other processes.

    Calls `hear` with the groups that others have added to, None when there are too many.

    Calls `share` with how many processes write, and which of them this one is, counted from 0.
    """

    def __init__(
        self, using: str, hear: Callable[[Iterable[str] | None], None], share: Callable[[int, int], None]
    ) -> None:
        self._using = using
        self._hear = hear
        self._share = share
        # A direct connection, if one is configured: poolers deliver no notifications.
        direct = getattr(settings, "TASKSTORE_DIRECT_DATABASE_URL", None)
        self._is_direct = bool(direct)
        self._place = direct or parameters_of(using)
        self._news: set[str] = set()
        self._woken = asyncio.Event()  # There is something to tell or to hear.
        self._has_others = False
        self._failures = 0  # In a row.
        self._is_logged = False  # Whether the log says that no notifications arrive.
        self._others_known_until_s = 0.0
        self._task = asyncio.create_task(self._keep_connected())

    def tell(self, supply: Supply) -> None:
        """Notify the others soon, together with other news until then."""
        self.tell_of(supply.soon)

    def tell_of(self, groups: Iterable[str]) -> None:
        self._news.update(groups)
        if self._news:
            self._woken.set()

    async def stop(self) -> None:
        await ended(self._task)

    async def _keep_connected(self) -> None:
        """Tell and hear on one connection, and on a new one when that breaks."""
        import psycopg  # SQLite does not need it, and it takes a tenth of the start.

        while True:
            try:
                # Behind a pooler, statements may be prepared on another connection.
                parameters = self._place | {"application_name": LISTENER, "prepare_threshold": None}
                async with await psycopg.AsyncConnection.connect(**parameters, autocommit=True) as connection:
                    await self._listen(connection)
                    await self._talk(connection)
            except (psycopg.Error, OSError) as error:
                # Not at once: an outage of the whole database is logged elsewhere.
                self._failures = 0 if outage.is_on else self._failures + 1
                if self._failures >= LOGGED_AFTER and not self._is_logged:
                    self._log_silence(" ".join(str(error).split())[:LONGEST_CAUSE])
            await asyncio.sleep(PAUSE_S)

    def _log_silence(self, why: str) -> None:
        """Log that no notifications arrive."""
        self._is_logged = True
        where = "TASKSTORE_DIRECT_DATABASE_URL" if self._is_direct else "DATABASE_URL"
        text = "can't LISTEN at %s: claims that wait find tasks of other servers up to a second later (%s)"
        log.warning(text, where, why)

    async def _listen(self, connection: psycopg.AsyncConnection) -> None:
        from ..database.postgresql_pipeline import is_pooled  # As above.

        connection.add_notify_handler(lambda heard: self._hear_from(heard.payload))
        await connection.execute(f"LISTEN {CHANNEL}")
        self._failures = 0
        if self._is_direct and await is_pooled(connection):
            if not self._is_logged:
                self._log_silence("it is a pooler, and poolers don't forward notifications")
        elif self._is_logged:
            self._is_logged = False
            log.warning("LISTEN works again")

    async def _talk(self, connection: psycopg.AsyncConnection) -> None:
        loop = asyncio.get_running_loop()
        while True:
            # Again each time: whatever is executed on the connection also waits for it, and takes this away.
            loop.add_reader(connection.fileno(), self._woken.set)
            try:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), SHARED_EVERY_S)
            finally:
                loop.remove_reader(connection.fileno())
            self._woken.clear()
            connection.pgconn.consume_input()
            while heard := connection.pgconn.notifies():
                self._hear_from(heard.extra)
            groups, self._news = self._news, set()
            if await self._there_are_others(connection) and groups:
                async with connection.transaction():
                    # A notification may be lost in a crash.
                    await connection.execute("SET LOCAL synchronous_commit = off")
                    await connection.execute("SELECT pg_notify(%s, %s)", [CHANNEL, _payload(groups)])

    def _hear_from(self, payload: str | bytes) -> None:
        news = json.loads(payload)
        if news["from"] != INSTANCE:
            self._hear(news["groups"])

    async def _there_are_others(self, connection: psycopg.AsyncConnection) -> bool:
        if time.monotonic() > self._others_known_until_s:
            cursor = await connection.execute(
                """
                SELECT pid
                FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = %s
                ORDER BY backend_start, pid
                """,
                [LISTENER],
            )
            pids = [pid for (pid,) in await cursor.fetchall()]
            own = connection.info.backend_pid
            self._has_others = any(pid != own for pid in pids)
            if own in pids:
                self._share(len(pids), pids.index(own))
            else:  # A pooler hides which one it is.
                self._share(1, 0)
            self._others_known_until_s = time.monotonic() + OTHERS_KNOWN_S
        return self._has_others


class _Unsent(threading.local):
    """The news of a thread's open transaction, by database: many commits in it are one notification."""

    def __init__(self) -> None:
        self.groups: dict[str, set[str]] = defaultdict(set)


_unsent = _Unsent()


def tell_once_committed(groups: Iterable[str], using: str) -> None:
    """Notify server processes and workers after the commit, from a process without a writer."""
    if dialect_of(using).serves_many:
        _unsent.groups[using].update(groups)
        # A failed notification must not fail the commit.
        transaction.on_commit(partial(_notify, using), using=using, robust=True)


def _notify(using: str) -> None:
    if groups := _unsent.groups.pop(using, None):
        with connections[using].cursor() as cursor:
            cursor.execute(
                """
                SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)
                WHERE EXISTS (
                    SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s
                )
                """,
                [CHANNEL, _payload(groups), LISTENER],
            )


def _payload(groups: Iterable[str]) -> str:
    payload = json.dumps({"from": INSTANCE, "groups": list(groups)})
    return payload if len(payload) <= MOST_PAYLOAD_BYTES else json.dumps({"from": INSTANCE, "groups": None})


class Readiness:
    def __init__(self) -> None:
        self.is_withdrawn = False
        self._listeners: list[Callable[[], object]] = []

    def withdraw(self) -> None:
        """Whoever asks is sent elsewhere from now on."""
        self.is_withdrawn = True
        for listener in self._listeners:
            listener()

    def when_withdrawn(self, listener: Callable[[], object]) -> None:
        """It is called on the thread that withdraws: the server's loop."""
        self._listeners.append(listener)


readiness = Readiness()  # Of this process.
