"""Stream lists as files, piece by piece."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from enum import StrEnum

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, StreamingHttpResponse


def streamed(request: HttpRequest, pieces: Iterator[bytes], content_type: str) -> StreamingHttpResponse:
    """Answer with the pieces, each made on demand. When one fails, the connection breaks."""
    request.body  # noqa: B018 - reading it closes its file, which Django leaves open when an answer fails.
    # The server's event loop must not wait for a piece; Django's test client has no loop.
    is_asynchronous = isinstance(request, ASGIRequest)
    return StreamingHttpResponse(asynchronous(pieces) if is_asynchronous else pieces, content_type=content_type)


async def asynchronous(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces in an event loop; each is made on demand in the thread of the request."""
    next_piece = sync_to_async(lambda: next(pieces, None))
    try:
        while (piece := await next_piece()) is not None:
            yield piece
    except Exception:
        # Django closes the thread's connections only after a complete answer.
        await sync_to_async(connections.close_all)()
        raise


# Characters that start a formula in a spreadsheet, also after ones that it ignores. The last four are = + - @ in full
# width, which some programs treat alike.
FORMULA = re.compile(r"[\s\0-\x1f\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r]")


class Format(StrEnum):
    CSV = "csv"
    NDJSON = "ndjson"


MEDIA_TYPES = {Format.CSV: "text/csv; charset=utf-8", Format.NDJSON: "application/x-ndjson"}


def guarded(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would run as a formula."""
    return f"'{text}" if FORMULA.match(text) else text
