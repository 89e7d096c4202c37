"""Lists as files, streamed piece by piece."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from enum import StrEnum

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


# What spreadsheets take for the beginning of a formula, also behind what they leave out. The last four are = + - @ in
# full width, which some take for the same.
FORMULA = re.compile(r"[\s\0-\x1f\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r]")


class Format(StrEnum):
    CSV = "csv"
    NDJSON = "ndjson"


MEDIA_TYPES = {Format.CSV: "text/csv; charset=utf-8", Format.NDJSON: "application/x-ndjson"}


def guarded(text: str) -> str:
    """Text of a cell that no spreadsheet takes for a formula: with an apostrophe before what looks like one."""
    return f"'{text}" if FORMULA.match(text) else text
