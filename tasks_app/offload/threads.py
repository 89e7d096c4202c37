"""Work in threads, which would keep an event loop from everybody else, and responses in pieces made there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, StreamingHttpResponse

from .helper_process import helper
from .memory import give_back_soon

LEAST_BYTES_A_SECOND = 2**16  # That a client has to read.


class SlowReader(ConnectionError):
    """The client reads a response so slowly that it is cut off: it keeps a snapshot, or the room that others need."""


class Place(Protocol):
    """What a response holds until it is sent."""

    def leave(self) -> None: ...


async def paced(
    pieces: Generator[bytes], in_thread: Callable[..., Awaitable[Any]], place: Place | None = None
) -> AsyncGenerator[bytes]:
    """Yield the pieces as the client takes them. Raises SlowReader."""
    sent, waited_s = 0, 0.0
    try:
        while (piece := await in_thread(next, pieces, None)) is not None:
            begun_s = time.monotonic()
            yield piece
            sent += len(piece)
            waited_s += time.monotonic() - begun_s
            if waited_s > settings.TASKSTORE_SLOW_CLIENT_SECONDS + sent / LEAST_BYTES_A_SECOND:
                raise SlowReader("the client reads the response too slowly")
    finally:
        if place:
            place.leave()
        await in_thread(_end, pieces)
        give_back_soon()


def going_on(first: Iterable[bytes], pieces: Iterator[bytes], place: Place | None = None) -> Generator[bytes]:
    """Yield what was made already, then the rest. To close it closes what makes the rest."""
    yield from first
    yield from pieces
    if place:
        place.leave()


def let_go(using: str) -> None:
    """Close this thread's connection, so that a slow client does not keep it from others."""
    if not connections[using].in_atomic_block:
        connections[using].close()


def _end(pieces: Generator[bytes]) -> None:
    pieces.close()  # It may hold a cursor.
    connections.close_all()  # Django closes those of a thread only after a complete response.


def streamed(
    request: HttpRequest, pieces: Iterator[bytes], content_type: str, place: Place | None = None
) -> StreamingHttpResponse:
    """Answer with the pieces, each made on demand. When one fails, the connection breaks."""
    if not request._read_started:  # type: ignore[attr-defined]
        request.body  # noqa: B018 - reading it closes its file, which Django leaves open when an answer fails.
    if not isinstance(request, ASGIRequest):  # Django's test client has no event loop.
        return StreamingHttpResponse(going_on((), pieces, place), content_type=content_type)
    # In the thread of the request, where a cursor may be open.
    return StreamingHttpResponse(paced(going_on((), pieces), _in_own_thread, place), content_type=content_type)


async def _in_own_thread(work: Callable[..., Any], *args: Any) -> Any:
    return await sync_to_async(work)(*args)


P = ParamSpec("P")
T = TypeVar("T")

_working = ThreadPoolExecutor(2, "beside-the-loop")
_writing = ThreadPoolExecutor(2, "writer")  # It has two connections on PostgreSQL.
waiting_for_locks = ThreadPoolExecutor(8, "waiting-for-locks")  # Of others, each for seconds.
_asking = ThreadPoolExecutor(1, "asking-the-helper")  # The helper does one thing at a time.


async def beside_the_loop(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Compute something in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_working, partial(work, *args, **kwargs))


async def in_a_database_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do work on the database in a thread other than the one that pages share, as it may take long."""

    def done() -> T:
        try:
            return work(*args, **kwargs)
        finally:
            # Django closes connections at the end of a request, and this thread serves none.
            connections.close_all()

    return await sync_to_async(done, thread_sensitive=False)()


async def by_the_writer(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Compute something in a thread that waits for nobody else's work."""
    return await asyncio.get_running_loop().run_in_executor(_writing, partial(work, *args, **kwargs))


async def by_the_helper(work: Callable[..., Any], *args: Any) -> list[Any]:
    """Do the work in the other process. See `Helper.run`."""
    return await asyncio.get_running_loop().run_in_executor(_asking, partial(helper.run, work, *args))
