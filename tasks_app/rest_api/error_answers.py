"""What is answered when something went wrong: the one place that translates the tree of `errors`."""

from __future__ import annotations

from typing import Any

from django.db import InterfaceError, InternalError, OperationalError
from rest_framework.response import Response
from rest_framework.views import exception_handler

from ..errors import (
    CommitRefused,
    Forbidden,
    InvalidInput,
    JobUnfinished,
    KeyReused,
    LimitExceeded,
    StoreBusy,
    StoreUnavailable,
    takes_no_changes,
)
from ..meters import meters
from .answers import Failure, Outcome, Problems, Refused

RETRY_AFTER_S = 1
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
            return Response(Outcome(error=Refused.of(error.refusal)))
        case Forbidden():
            return Response(Failure(detail=printable(str(error)), code=error.code), status=403)
        case KeyReused() | JobUnfinished():
            return Response(Failure(detail=str(error), code=error.code), status=409)
        case LimitExceeded():
            return Response(_problems(error), status=413)
        case InvalidInput():
            return Response(_problems(error), status=400)
        case StoreBusy() | StoreUnavailable():
            return _try_again(str(error), error.code)
        case OperationalError() | InterfaceError():
            return _try_again("the database can't be reached: try again later", StoreUnavailable.code)
        case InternalError() if takes_no_changes(error):
            return _try_again("the database takes no changes now: try again later", StoreUnavailable.code)
    response = exception_handler(error, context)
    if response is not None:
        response.data = Failure(detail=printable(str(response.data["detail"])))
    return response


def _try_again(detail: str, code: str) -> Response:
    return Response(Failure(detail=detail, code=code), status=503, headers={"Retry-After": str(RETRY_AFTER_S)})


def _problems(error: InvalidInput) -> Problems:
    errors = {printable(path)[:LONGEST_PATH] or "body": texts for path, texts in error.fields.items()}
    sentences = [f"{path}: {' '.join(texts)}" for path, texts in errors.items()]
    more = len(sentences) - MOST_IN_DETAIL
    return Problems(
        detail="; ".join(sentences[:MOST_IN_DETAIL]) + (f"; and {more} more" if more > 0 else ""), errors=errors
    )


def printable(text: str) -> str:
    """The text as it can be written in UTF-8: what comes from the request may hold lone surrogates."""
    return text.encode(errors="backslashreplace").decode()
