"""The socket of a console page: counts go out; what comes in are words."""

from __future__ import annotations

import asyncio
import json
import logging
from enum import StrEnum
from importlib import import_module
from typing import Any

from channels.auth import get_user
from channels.consumer import get_handler_name
from channels.db import database_sync_to_async
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.db import Error as DatabaseFailure

from ..meters import meters
from ..policy import Action, may
from .broadcaster import VIEWERS, broadcaster

log = logging.getLogger(__name__)

RIGHTS_AGAIN_S = 4.0  # As with tokens: what was taken away is gone within five seconds, whichever server took it.
LONGEST_MESSAGE = 100  # Characters; what a page has to say is shorter.

# Codes for closing, of the range that is free for applications.
NOT_UNDERSTOOD = 4400
NO_RIGHT = 4403


class Word(StrEnum):
    """What a page may say. Whoever may not `SEE` has no socket to say it on."""

    FULL = "full"  # Asks for all counts.
    PING = "ping"


class LiveConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    """One viewer: somebody who is logged in and may see the groups, on a page of ours (asgi.py checks that)."""

    _rights_watch: asyncio.Task[None] | None = None  # Set while it is a viewer.

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # Not in disconnect(): a server that stops cancels instead of saying goodbye.
            await self._leave()

    async def dispatch(self, message: dict[str, Any]) -> None:
        # Not channels' own, which first tidies connections up in the one thread that all sockets share:
        # while that waits for a database which is away, no viewer would hear anything.
        await getattr(self, get_handler_name(message))(message)

    async def websocket_disconnect(self, message: dict[str, Any]) -> None:
        raise StopConsumer

    async def connect(self) -> None:
        if await _may_see(self.scope["user"]):
            await self.accept()
            await self._join()
        else:
            await self.close()  # Before it is accepted: the answer is 403.

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        match word_of(text_data):
            case Word.FULL:
                await self._send_full()
            case Word.PING:
                pass  # Some proxies cut a line on which they see nothing.
            case _:
                await self._end(NOT_UNDERSTOOD)

    async def live_counts(self, event: dict[str, list[str]]) -> None:
        """What the broadcaster sends."""
        for text in event["texts"]:
            await self.send(text)

    async def _join(self) -> None:
        self._rights_watch = asyncio.create_task(self._watch_rights())
        meters.add("websockets")
        # First this, then the counts: what changes in between comes as a delta.
        await self.channel_layer.group_add(VIEWERS, self.channel_name)
        broadcaster.join(self.channel_name)
        await self._send_full()

    async def _send_full(self) -> None:
        for text in broadcaster.full():
            await self.send(text)

    async def _watch_rights(self) -> None:
        """End when the session is over, or the role was taken away meanwhile."""
        while True:
            await asyncio.sleep(RIGHTS_AGAIN_S)
            try:
                is_viewer = await _may_see(await _user_of_cookie(self.scope["cookies"]))
            except DatabaseFailure:
                continue  # It can't be told now; no new counts come either.
            except Exception:
                log.exception("the rights of a viewer can't be told")
                is_viewer = False
            if not is_viewer:
                await self._end(NO_RIGHT)
                return

    async def _end(self, code: int) -> None:
        await self._leave()
        await self.close(code)

    async def _leave(self) -> None:
        watch, self._rights_watch = self._rights_watch, None
        if watch is None:
            return
        meters.add("websockets", -1)
        broadcaster.leave(self.channel_name)
        await self.channel_layer.group_discard(VIEWERS, self.channel_name)
        if watch is not asyncio.current_task():
            watch.cancel()


def word_of(text: str | None) -> Word | None:
    """The `type` of a message from the page; None when it is nothing that a page of ours would send."""
    if not text or len(text) > LONGEST_MESSAGE:
        return None
    try:
        message = json.loads(text)
    except ValueError:
        return None
    word = message.get("type") if isinstance(message, dict) else None
    return Word(word) if isinstance(word, str) and word in set(Word) else None


async def _may_see(user: Any) -> bool:
    return bool(await database_sync_to_async(may)(user, Action.SEE))


async def _user_of_cookie(cookies: dict[str, str]) -> Any:
    # A new session object: the one from the handshake would not notice that its time is over.
    session = import_module(settings.SESSION_ENGINE).SessionStore(cookies.get(settings.SESSION_COOKIE_NAME))
    return await get_user({"session": session})
