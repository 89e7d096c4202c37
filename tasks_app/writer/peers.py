"""The other processes on the same database: who they are, and what they tell each other."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.db import connections, transaction

from ..core.operations import Supply
from ..database import dialect_of
from ..database.outage import outage
from .cancelling import ended
from .connection import parameters_of

if TYPE_CHECKING:
    import psycopg


INSTANCE: Final = secrets.token_hex(8)


CHANNEL = "tasks_app_supply"
LISTENER = "Task Store listener"  # The connections' name, by which processes know that there are others.

SOON_MS = 1_000  # What comes later is found by the look once a second.
SHARED_EVERY_S = 2.0  # Without news, too, this one asks who else writes.
OTHERS_KNOWN_S = 1.0  # For so long it is taken for granted that there are others, or none.
MOST_PAYLOAD_BYTES = 7_900  # PostgreSQL takes 8 000.
PAUSE_S = 1.0  # Before another try when the connection broke.
TOLD_AFTER = 3  # Failures in a row.
LONGEST_CAUSE = 300  # Characters of an error, in the log.

log = logging.getLogger(__name__)


class Neighbours:
    """`hear` is called with the groups in which others have put something, None when they are too many to name.

    `share` is called with how many processes write, and which of them this one is, from 0 on.
    """

    def __init__(
        self, using: str, hear: Callable[[Iterable[str] | None], None], share: Callable[[int, int], None]
    ) -> None:
        self._using = using
        self._hear = hear
        self._share = share
        # Beside a pooler, if somebody has said where: no word comes by it.
        direct = getattr(settings, "TASKSTORE_DIRECT_DATABASE_URL", None)
        self._is_direct = bool(direct)
        self._place = direct or parameters_of(using)
        self._news: set[str] = set()
        self._has_news = asyncio.Event()
        self._listener_pid = 0
        self._has_others = False
        self._failures = 0  # Of the listener, in a row.
        self._is_told = False  # Whether the log has it that no word comes.
        self._others_known_until_s = 0.0
        self._tasks = [
            asyncio.create_task(self._for_ever(self._listen, LISTENER)),
            asyncio.create_task(self._for_ever(self._speak, "Task Store")),
        ]

    def tell(self, supply: Supply) -> None:
        """Tell the others of it soon, and together with what comes until then."""
        self.tell_of(supply.available)
        self.tell_of(group for group, in_ms in supply.next_in_ms.items() if in_ms < SOON_MS)

    def tell_of(self, groups: Iterable[str]) -> None:
        self._news.update(groups)
        if self._news:
            self._has_news.set()

    async def stop(self) -> None:
        await ended(*self._tasks)

    async def _for_ever(self, work: Callable[[psycopg.AsyncConnection], Awaitable[None]], name: str) -> None:
        """Do the work on a connection of this name, and again on another one when that has broken."""
        import psycopg  # Where the database is SQLite nothing needs it, and it is a tenth of a start.

        while True:
            try:
                # What one server process has prepared another one does not know, where a pooler stands between.
                parameters = self._place | {"application_name": name, "prepare_threshold": None}
                async with await psycopg.AsyncConnection.connect(**parameters, autocommit=True) as connection:
                    await work(connection)
            except (psycopg.Error, OSError) as error:
                if name == LISTENER:
                    self._note_failure(error)
            await asyncio.sleep(PAUSE_S)

    def _note_failure(self, error: Exception) -> None:
        """Say once that nothing can be heard. Not at once, as an outage of the whole database has lines of its own."""
        self._failures = 0 if outage.is_on else self._failures + 1
        if self._failures >= TOLD_AFTER and not self._is_told:
            self._tell_that_nothing_is_heard(" ".join(str(error).split())[:LONGEST_CAUSE])

    def _tell_that_nothing_is_heard(self, why: str) -> None:
        self._is_told = True
        where = "TASKSTORE_DIRECT_DATABASE_URL" if self._is_direct else "DATABASE_URL"
        text = "can't LISTEN at %s: claims that wait find tasks of other servers up to a second later (%s)"
        log.warning(text, where, why)

    async def _listen(self, connection: psycopg.AsyncConnection) -> None:
        from ..database.postgresql_pipeline import is_pooled  # As above.

        self._listener_pid = connection.info.backend_pid
        await connection.execute(f"LISTEN {CHANNEL}")
        self._failures = 0
        if self._is_direct and await is_pooled(connection):
            if not self._is_told:
                self._tell_that_nothing_is_heard("it is a pooler, through which no notification comes")
        elif self._is_told:
            self._is_told = False
            log.warning("LISTEN works again")
        # Closed for certain: while it stands still it has a lock that the connection's own end needs.
        async with aclosing(connection.notifies()) as words:
            async for word in words:
                said = json.loads(word.payload)
                if said["from"] != INSTANCE:
                    self._hear(said["groups"])

    async def _speak(self, connection: psycopg.AsyncConnection) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._has_news.wait(), SHARED_EVERY_S)
            self._has_news.clear()
            groups, self._news = self._news, set()
            if await self._there_are_others(connection) and groups:
                async with connection.transaction():
                    # Lost in a crash it harms nobody.
                    await connection.execute("SET LOCAL synchronous_commit = off")
                    await connection.execute("SELECT pg_notify(%s, %s)", [CHANNEL, _payload(groups)])

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
            self._has_others = any(pid != self._listener_pid for pid in pids)
            if self._listener_pid in pids:
                self._share(len(pids), pids.index(self._listener_pid))
            else:  # It is about to be opened, or a pooler hides which one it is.
                self._share(1, 0)
            self._others_known_until_s = time.monotonic() + OTHERS_KNOWN_S
        return self._has_others


class _Untold(threading.local):
    """What a thread has to tell when its transaction is committed, by database: many commits in it are one word."""

    def __init__(self) -> None:
        self.groups: dict[str, set[str]] = defaultdict(set)


_untold = _Untold()


def tell_once_committed(groups: Iterable[str], using: str) -> None:
    """From a process without a writer: tell server processes, and workers, where there is something to claim."""
    if dialect_of(using).serves_many:  # Else there is nobody to tell.
        _untold.groups[using].update(groups)
        # Nobody's commit fails because others hear of it later.
        transaction.on_commit(partial(_tell, using), using=using, robust=True)


def _tell(using: str) -> None:
    if groups := _untold.groups.pop(using, None):
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
