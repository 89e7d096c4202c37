"""The routes of websockets, and their end in an outage of the database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from channels.security.websocket import WebsocketDenier
from django.urls import path, re_path

from ..database.outage import is_away
from .consumer import LiveConsumer

websocket_urlpatterns = [
    path("console/live", LiveConsumer.as_asgi()),
    # Without it, an unknown path would be a server error with a traceback in the log.
    re_path("", WebsocketDenier.as_asgi()),
]

TRY_AGAIN_LATER = 1013  # A close code of the protocol.

Application = Callable[[Any, Any, Any], Awaitable[None]]


class ClosedInOutage:
    """An ASGI application that closes a socket when the database is away. The page connects again."""

    def __init__(self, inner: Application) -> None:
        self._inner = inner

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Mapping[str, Any]], Awaitable[None]]) -> None:
        try:
            await self._inner(scope, receive, send)
        except Exception as error:
            if not is_away(error):
                raise
            with suppress(Exception):  # The page may be closed already.
                await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})
