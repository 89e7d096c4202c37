"""What happens to sockets of pages while the database is away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from ..database.outage import is_away

TRY_AGAIN_LATER = 1013  # Of the protocol.

Application = Callable[[Any, Any, Any], Awaitable[None]]


class ClosedInOutage:
    """An ASGI application: closes a socket that needs the database while it is away. The page connects again."""

    def __init__(self, inner: Application) -> None:
        self._inner = inner

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Mapping[str, Any]], Awaitable[None]]) -> None:
        try:
            await self._inner(scope, receive, send)
        except Exception as error:
            if not is_away(error):
                raise
            with suppress(Exception):  # The page may have gone meanwhile.
                await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})
