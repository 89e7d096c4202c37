"""The websocket of a console page, which sends the counts that the page asks for."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
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

from taskstore.types.scalars import whole
from taskstore.types.sentences import is_utf8

from ..access import sessions
from ..access.policy import Action, may
from ..core.meters import meters
from ..database.outage import is_away
from .broadcaster import Viewer, broadcaster
from .messages import Watch

log = logging.getLogger(__name__)

# A lost right takes effect within five seconds (see sessions.TRUSTED_S), at once in the process that removed it.
RIGHTS_AGAIN_S = 3.0
LONGEST_MESSAGE = 48_000  # Bytes. An answer is a little longer, and must fit one websocket message.
MOST_WATCHED = 200  # Groups, folders and tasks with progress of a page.
LONGEST_FILTER = 255
# A page sends a message when it is opened, changed or shown again.
MOST_WORDS, WORDS_S = 100, 10.0

# The most sockets of one person in a process, and of all people together.
OF_A_PERSON, OF_ALL = 100, 2_000

# Close codes from the range for applications.
NOT_UNDERSTOOD = 4400
OTHER_RIGHTS = 4401
NO_RIGHT = 4403
TOO_MANY = 4429
# A close code of the protocol.
TRY_AGAIN_LATER = 1013

Application = Callable[[Any, Any, Any], Awaitable[None]]


class Word(StrEnum):
    """A type of message from a page. Without the right to `SEE`, a page has no socket."""

    FULL = "full"  # Names the groups of the page, and asks for all their counts.
    PING = "ping"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A person's rights to see the contents of a page."""

    sees: bool
    payloads: bool


NO_SIGHT = Sight(sees=False, payloads=False)


class LiveConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    """A viewer: a signed-in person who may see groups, on a page of this site (asgi.py checks the origin)."""

    sight: Sight
    _viewer: Viewer | None = None  # None before it joins and after it leaves.
    _sending: asyncio.Task[None] | None = None
    _words = 0  # Messages since `_words_since_s`.
    _words_since_s = 0.0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # Not in disconnect(), which a stopping server does not call.
            self._leave()

    async def dispatch(self, message: dict[str, Any]) -> None:
        # The inherited method first closes old connections in a thread that all sockets share. During an
        # outage of the database, that would block all viewers.
        await getattr(self, get_handler_name(message))(message)

    async def websocket_disconnect(self, message: dict[str, Any]) -> None:
        raise StopConsumer

    async def connect(self) -> None:
        self.sight = await _sight_of(self.scope["user"])
        if not self.sight.sees:
            await self.close()  # Before the socket is accepted, this answers 403.
            return
        await self.accept()
        # Browsers pass the reason on only for accepted sockets.
        if reason := sockets.reason_against(self.person):
            await self.close(TOO_MANY, reason)
            return
        self._viewer = Viewer()
        sockets.add(self)
        meters.add("websockets")
        broadcaster.join(self._viewer)
        self._sending = asyncio.create_task(self._send_all(self._viewer))

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self._viewer is None:
            return  # A message may still arrive after the close.
        now_s = time.monotonic()
        if now_s - self._words_since_s > WORDS_S:
            self._words, self._words_since_s = 0, now_s
        self._words += 1
        if self._words > MOST_WORDS:
            await self._end(
                TOO_MANY, f"This page asked for numbers too often: more than {MOST_WORDS} times in {WORDS_S:g} s."
            )
            return
        match word_of(text_data):
            case Watch() as watch:
                broadcaster.show(self._viewer, replace(watch, with_texts=bool(watch.progress) and self.sight.payloads))
            case Word.PING:
                pass  # Keeps the connection open through proxies that close idle ones.
            case _:
                await self._end(NOT_UNDERSTOOD)

    @property
    def person(self) -> Any:
        return self.scope["user"].pk

    @property
    def cookie(self) -> str:
        return str(self.scope["cookies"].get(settings.SESSION_COOKIE_NAME, ""))

    async def _send_all(self, viewer: Viewer) -> None:
        """Send all messages. Only this task waits for a slow page."""
        while True:
            await self.send(await viewer.next())

    async def end_with_other_rights(self, sight: Sight) -> None:
        """Close the socket. A page whose person still sees something comes back with the present rights."""
        await self._end(OTHER_RIGHTS if sight.sees else NO_RIGHT)

    async def _end(self, code: int, reason: str | None = None) -> None:
        self._leave()
        await self.close(code, reason)

    def _leave(self) -> None:
        viewer, self._viewer = self._viewer, None
        if viewer is None:
            return
        meters.add("websockets", -1)
        sockets.remove(self)
        broadcaster.leave(viewer)
        if self._sending:
            self._sending.cancel()


class Sockets:
    """The open sockets of this process. Limits their number, and closes those of people who lose their rights.

    Rights are checked once per session, however many pages it has open.
    """

    def __init__(self) -> None:
        self._by_cookie: dict[str, set[LiveConsumer]] = {}
        self._by_person: Counter[Any] = Counter()
        self._watch: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def reason_against(self, person: Any) -> str:
        """Return the reason against another socket of this person, as a sentence; empty when there is none."""
        of_a_person = getattr(settings, "TASKSTORE_SOCKETS_PER_PERSON", OF_A_PERSON)
        if self._by_person[person] >= of_a_person:
            return f"You have {of_a_person} pages with live numbers open. Close some of them."
        if self._by_person.total() >= getattr(settings, "TASKSTORE_SOCKETS", OF_ALL):
            return "Too many pages with live numbers are open on this server. Try again later."
        return ""

    def add(self, socket: LiveConsumer) -> None:
        self._by_cookie.setdefault(socket.cookie, set()).add(socket)
        self._by_person[socket.person] += 1
        if self._watch is None:
            self._watch = asyncio.create_task(self._watch_rights())

    def remove(self, socket: LiveConsumer) -> None:
        sockets = self._by_cookie[socket.cookie]
        sockets.discard(socket)
        if not sockets:
            del self._by_cookie[socket.cookie]
        self._by_person[socket.person] -= 1
        if not self._by_person[socket.person]:
            del self._by_person[socket.person]
        if not self._by_cookie and self._watch:
            if self._watch is not asyncio.current_task():
                self._watch.cancel()
            self._watch = None

    async def _watch_rights(self) -> None:
        """Close the sockets whose session has ended, or whose person has lost the role."""
        loop, look_now = asyncio.get_running_loop(), asyncio.Event()

        def look_soon() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(look_now.set)

        unwatch = sessions.watch(look_soon)
        try:
            while self._watch is asyncio.current_task():
                with suppress(TimeoutError):
                    await asyncio.wait_for(look_now.wait(), RIGHTS_AGAIN_S)
                look_now.clear()
                for cookie in list(self._by_cookie):
                    if (sight := await _present_sight(cookie)) is not None:
                        self._end_others(cookie, sight)
        finally:
            unwatch()

    def _end_others(self, cookie: str, sight: Sight) -> None:
        for socket in list(self._by_cookie.get(cookie, ())):
            if socket.sight == sight:
                continue
            # Concurrently: closing a socket that reads nothing may take a while.
            closing = asyncio.create_task(socket.end_with_other_rights(sight))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


sockets = Sockets()


def word_of(text: str | None) -> Watch | Word | None:
    """Parse a message from a page; None when it is invalid."""
    if not text or len(text.encode(errors="replace")) > LONGEST_MESSAGE:
        return None
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None
    word = message.get("type") if isinstance(message, dict) else None
    if word == Word.PING:
        return Word.PING
    if word != Word.FULL:
        return None
    groups, folders = message.get("groups", []), message.get("folders", [])
    searched, totals = message.get("filter", ""), message.get("totals", False)
    progress, shown = message.get("progress", []), message.get("shown", [])
    if not all(isinstance(each, list) for each in (groups, folders, progress, shown)):
        return None
    if len(groups) + len(folders) + len(progress) + len(shown) > MOST_WATCHED:
        return None
    if not all(map(_is_text, [*groups, *folders, *shown, searched])) or len(searched) > LONGEST_FILTER or "" in folders:
        return None
    if not isinstance(totals, bool) or not all(map(_is_id, progress)):
        return None
    return Watch(
        groups=frozenset(groups),
        folders=frozenset(folders),
        searched=searched,
        totals=totals,
        progress=frozenset(map(int, progress)),
        shown=frozenset(shown),
    )


def _is_id(value: object) -> bool:
    return isinstance(value, str) and whole(value) is not None


def _is_text(value: object) -> bool:
    # Databases refuse NUL and lone surrogates, and no group name has them.
    return isinstance(value, str) and "\0" not in value and is_utf8(value)


async def _present_sight(cookie: str) -> Sight | None:
    """Return what the person of a session may see now; None if that can't be told."""
    try:
        return await _sight_of(await _user_of_cookie({settings.SESSION_COOKIE_NAME: cookie}))
    except DatabaseFailure:
        return None  # No new counts are sent either.
    except Exception:
        log.exception("can't read the permissions of a viewer")
        return NO_SIGHT


async def _sight_of(user: Any) -> Sight:
    def look() -> Sight:
        return Sight(sees=may(user, Action.SEE), payloads=may(user, Action.SEE_PAYLOADS))

    found: Sight = await database_sync_to_async(look)()
    return found


async def _user_of_cookie(cookies: dict[str, str]) -> Any:
    # A new session object: the one from the handshake would not notice that it has expired.
    session = import_module(settings.SESSION_ENGINE).SessionStore(cookies.get(settings.SESSION_COOKIE_NAME))
    return await get_user({"session": session})


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
