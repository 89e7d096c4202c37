"""Long answers, piece by piece, from any of our servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, StreamingHttpResponse


def streamed(request: HttpRequest, pieces: Iterator[bytes], content_type: str) -> StreamingHttpResponse:
    """The pieces as the answer; each is made when it is asked for. When one fails, the connection breaks."""
    request.body  # noqa: B018 - reading it closes its file, which Django leaves open when an answer fails.
    # The server's event loop must not wait for the next piece; Django's test client has no loop.
    is_asynchronous = isinstance(request, ASGIRequest)
    return StreamingHttpResponse(asynchronous(pieces) if is_asynchronous else pieces, content_type=content_type)


async def asynchronous(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The same for an event loop: pieces are made in the thread of the request, one when it is asked for."""
    next_piece = sync_to_async(lambda: next(pieces, None))
    try:
        while (piece := await next_piece()) is not None:
            yield piece
    except Exception:
        # Django lets go of the thread's connections after a whole answer only.
        await sync_to_async(connections.close_all)()
        raise
