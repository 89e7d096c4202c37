"""Errors as JSON, and the renderer of all JSON answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from rest_framework.renderers import BaseRenderer
from rest_framework.response import Response
from rest_framework.views import exception_handler

from taskstore.errors import (
    CommitRefused,
    Forbidden,
    InvalidInput,
    JobUnfinished,
    KeyReused,
    LimitExceeded,
    NotHeld,
    TooManyReaders,
)
from taskstore.types.history import Failure, Problems
from taskstore.types.tasks import Outcome

from ..core.meters import meters
from ..database.outage import RETRY_AFTER_S, translated

ENCODER = msgspec.json.Encoder()


class JSONRenderer(BaseRenderer):
    """JSON in UTF-8, of the types in `answers`. Integers are exact to 64 bits."""

    media_type = "application/json"
    format = "json"
    charset = None  # It is UTF-8 by definition.

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        return b"" if data is None else ENCODER.encode(data)


MOST_IN_DETAIL = 3
LONGEST_PATH = 300  # Names of fields come from the request, and may be as long as it.


# What the verbs refuse they count themselves.
REASONS = {400: "invalid", 401: "unauthenticated", 403: "forbidden", 413: "limit", 429: "throttled"}


def answer_to(error: Exception, context: dict[str, Any]) -> Response | None:
    """The answer to what a view raised; None, which raises it on, when nobody expected it."""
    answer = _answer_to(error, context)
    if answer is not None and answer.status_code in REASONS:
        meters.add(REASONS[answer.status_code])
    return answer


def _answer_to(error: Exception, context: dict[str, Any]) -> Response | None:
    match error:
        case CommitRefused():
            # Not 409: clients of the original take every other status for a broken server.
            return Response(Outcome(error=error.refusal))
        case Forbidden():
            return Response(Failure(detail=printable(str(error)), code=error.code), status=403)
        case KeyReused() | JobUnfinished() | NotHeld():
            return Response(Failure(detail=str(error), code=error.code), status=409)
        case TooManyReaders():
            failure = Failure(detail=str(error), code=error.code)
            return Response(failure, status=429, headers={"Retry-After": str(RETRY_AFTER_S)})
        case LimitExceeded():
            return Response(_problems(error), status=413)
        case InvalidInput():
            return Response(_problems(error), status=400)
    if told := translated(error):
        failure = Failure(detail=str(told), code=told.code)
        return Response(failure, status=503, headers={"Retry-After": str(RETRY_AFTER_S)})
    response = exception_handler(error, context)
    if response is not None:
        response.data = Failure(detail=printable(str(response.data["detail"])))
    return response


def _problems(error: InvalidInput) -> Problems:
    errors = {printable(path)[:LONGEST_PATH] or "body": texts for path, texts in error.fields.items()}
    sentences = [f"{path}: {'; '.join(texts)}" for path, texts in errors.items()]
    more = len(sentences) - MOST_IN_DETAIL
    return Problems(
        detail="; ".join(sentences[:MOST_IN_DETAIL]) + (f"; and {more} more" if more > 0 else ""), errors=errors
    )


def printable(text: str) -> str:
    """The text as it can be written in UTF-8: what comes from the request may hold lone surrogates."""
    return text.encode(errors="backslashreplace").decode()
