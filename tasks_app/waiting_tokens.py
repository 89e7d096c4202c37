"""Claims that wait end when their token is revoked or expires meanwhile, on whichever server that was."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress

from asgiref.sync import sync_to_async
from django.db import Error, connections

from .models import Token
from .tokens import alive

LOOK_EVERY_S = 4.0  # As for requests that come: what was revoked opens nothing any more after five seconds.


class WaitingTokens:
    """The tokens with which somebody waits on the loop of this process: all are looked up together."""

    def __init__(self) -> None:
        self._waits: defaultdict[int, set[asyncio.Timeout]] = defaultdict(set)
        self._next_look: asyncio.TimerHandle | None = None
        self._look: asyncio.Task[None] | None = None  # Held, or it could go amid its work.

    @asynccontextmanager
    async def while_valid(self, token: Token, refusal: Exception) -> AsyncIterator[None]:
        """Around a wait. Raises the refusal once the token opens nothing any more; what was taken is given back."""
        try:
            async with asyncio.timeout(None) as wait:
                if token.pk:  # Else it is none that could be revoked.
                    self._add(token.pk, wait)
                try:
                    yield
                finally:
                    self._forget(token.pk, wait)
        except TimeoutError:
            raise refusal from None

    def _add(self, pk: int, wait: asyncio.Timeout) -> None:
        if not self._waits:
            self._look_later()
        self._waits[pk].add(wait)

    def _forget(self, pk: int, wait: asyncio.Timeout) -> None:
        waits = self._waits.get(pk, set())
        waits.discard(wait)
        if not waits:
            self._waits.pop(pk, None)
        if not self._waits and self._next_look:
            self._next_look.cancel()

    def _look_later(self) -> None:
        self._next_look = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._begin_look)

    def _begin_look(self) -> None:
        self._look = asyncio.get_running_loop().create_task(self._end_invalid())

    async def _end_invalid(self) -> None:
        """End the waits of those that have gone."""
        with suppress(Error):  # It can't be told now; nothing is claimed now, either.
            left = await sync_to_async(_valid, thread_sensitive=False)(list(self._waits))
            for pk in self._waits.keys() - left:
                for wait in self._waits[pk]:
                    wait.reschedule(0)  # A moment that has passed.
        if self._waits:
            self._look_later()


def _valid(pks: Collection[int]) -> set[int]:
    """In a thread that may never be used again."""
    try:
        return set(alive().filter(pk__in=pks).values_list("pk", flat=True))
    finally:
        connections.close_all()


waiting_tokens = WaitingTokens()
