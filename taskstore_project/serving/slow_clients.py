"""Clients that hardly send what they have begun to send: each holds a connection, and memory, as long as it likes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Protocol

from django.conf import settings

from .http_limits import refusal_of

LEAST_RATE = 4_096  # Bytes a second, of a body that takes longer than the patience.
LOOKS = 4  # In the time of the patience.

Part = tuple[int, int]  # The number of a head or a body on its connection, and how many bytes of it have come.


class Connection(Protocol):
    @property
    def due(self) -> Part | None:
        """What the client has to go on sending; None while it is not its turn."""

    def refuse_slow(self) -> None:
        """Tell it, and close."""


class Watch:
    """Looks now and then, as clocks of their own would cost each request more than all connections cost a look."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connections: Callable[[], Iterable[Connection]]) -> None:
        self._loop, self._connections = loop, connections
        self._began_s: dict[tuple[Connection, int], float] = {}
        self._look_later()

    def _look_later(self) -> None:
        self._loop.call_later(patience_s() / LOOKS, self._look)

    def _look(self) -> None:
        now_s, before = self._loop.time(), self._began_s
        self._began_s = {}
        for connection in self._connections():
            if (part := connection.due) is None:
                continue
            number, size = part
            began_s = before.get((connection, number), now_s)
            if now_s - began_s >= patience_s() + size / LEAST_RATE:
                connection.refuse_slow()
            else:
                self._began_s[connection, number] = began_s
        self._look_later()


def refusal() -> bytes:
    return refusal_of(HTTPStatus.REQUEST_TIMEOUT, "The request was sent too slowly.")


def patience_s() -> float:
    """How long a client may take for the head of a request, and for reading nothing of its answer."""
    seconds: float = settings.TASKSTORE_SLOW_CLIENT_SECONDS
    return seconds
