"""From the bytes of a request to a typed value, or an answer that names every wrong field."""

from __future__ import annotations

from django.conf import settings
from django.http import UnreadablePostError
from rest_framework.request import Request

from taskstore.errors import InvalidInput, LimitExceeded

from ..offload.helper_process import helper
from ..wire import strict_json
from ..wire.strict_json import AskedT, decoded, is_light, value_of


def read(request: Request, asked: type[AskedT]) -> AskedT:
    """The body as a value of this type, whatever Content-Type it announces.

    Raises InvalidInput that names every wrong field, LimitExceeded when the body is too long.
    """
    body = body_of(request)
    if is_light(body):
        return value_of(strict_json.read(body), asked)
    value: AskedT
    [value] = helper.run(decoded, body, asked)
    return value


def body_of(request: Request) -> bytes:
    """The body as it was sent. Without Content-Length it is empty to DRF, which is why it is read here."""
    meta = request._request.META  # Not through DRF's request: that takes a microsecond each time.
    encoding = meta.get("HTTP_CONTENT_ENCODING", "identity")
    if encoding.lower() != "identity":
        raise InvalidInput({"Content-Encoding": ["must be absent or identity: the server does not decompress bodies"]})
    most = settings.TASKSTORE_MAX_REQUEST_BYTES
    length = meta.get("CONTENT_LENGTH") or "0"
    announced = int(length) if length.isascii() and length.isdigit() else 0
    try:
        # What is announced is looked at first: what is never sent must not be waited for.
        body: bytes = request._request.read(most + 1) if announced <= most else b""
    except UnreadablePostError:
        raise InvalidInput({"body": ["must be complete: the connection broke before its end"]}) from None
    if max(announced, len(body)) > most:
        raise LimitExceeded({"body": [f"must be at most {most} bytes"]})
    return body
