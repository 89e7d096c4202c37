"""How large a request may be, and the answers to those that never reach the application. Both servers use them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import unquote, urlsplit

from django.apps import apps
from django.conf import settings

from tasks_app.access.bodies_in_flight import LEAST_BYTES, REASON, RETRY_AFTER_S, Charge, sender_of
from taskstore_project.sessions import is_signed_in

MOST_HEAD_BYTES = 32 * 1024  # Request line and headers; a claim of a thousand ids fits.
NOT_HTTP = {"request": ["must be valid HTTP/1.1"]}  # What is wrong, as the API tells it.
MOST_SOCKET_BYTES = 64 * 1024  # Pages send a word or two over their socket.

FORM_BYTES = 2**20  # A form of someone who is not signed in, and all fields beside the data of a task.
ENCODED = 6  # A form sends the end of a line as %0D%0A; any other byte takes three at most.
PAGES = frozenset({"", "console", "admin", "docs"})  # First parts of the paths where Django reads forms.
UPLOAD = "/console/import"


class Body:
    """The body of one request while it comes in: how large it may be, and what its sender has at work with it.

    Only for bodies of more than `unchecked_bytes()`; `headers` by their names in small letters.
    """

    def __init__(self, target: str, headers: Mapping[str, str], peer: str) -> None:
        self._target, self._headers = target, headers
        self._most_bytes = most_bytes(target, headers.get("cookie", ""))
        self._charge = Charge(sender_of(headers.get("authorization", ""), peer, headers.get("x-forwarded-for", "")))

    def refusal(self, size: int) -> bytes | None:
        """Return the answer that ends the request if it may not have `size` bytes; else None."""
        if size <= self._most_bytes:
            if self._charge.raise_to(size):
                return None
            return refusal_of(HTTPStatus.TOO_MANY_REQUESTS, REASON, f"Retry-After: {RETRY_AFTER_S}\r\n")
        if not apps.ready:  # The server of another application, which has no pages of ours.
            reason = f"The request must be at most {self._most_bytes} bytes."
            return refusal_of(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
        # It needs the models, and servers know this module before them.
        from taskstore_project.error_pages import too_large

        # A page for browsers, JSON for everyone else.
        response = too_large(_path_of(self._target), self._headers, self._most_bytes)
        lines = "".join(f"{name}: {value}\r\n" for name, value in response.items())
        return closing_answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, lines, response.content)

    def end(self) -> None:
        """The request is answered, or its client has gone."""
        self._charge.end()


def unchecked_bytes() -> int:
    """Return how many bytes the body of any request may have without a look at who sends it."""
    return min(LEAST_BYTES, int(settings.TASKSTORE_MAX_REQUEST_BYTES))


def most_bytes(target: str, cookies: str) -> int:
    """Return how many bytes the body of a request for this target may have.

    The API takes up to TASKSTORE_MAX_REQUEST_BYTES, and so does the import of someone who is signed in. Any other
    form of theirs may hold the largest data of a task, encoded. A form of anyone else is small.
    """
    most = int(settings.TASKSTORE_MAX_REQUEST_BYTES)
    path = _path_of(target)
    if path.strip("/").partition("/")[0] not in PAGES:
        return most
    if not is_signed_in(cookies):
        return min(FORM_BYTES, most)
    if path == UPLOAD:
        return most
    return min(FORM_BYTES + ENCODED * int(settings.TASKSTORE_MAX_DATA_BYTES), most)


def _path_of(target: str) -> str:
    """Return the path that the application sees: decoded, and without the host, if the target names one."""
    if not target.startswith("/"):
        try:
            target = urlsplit(target).path
        except ValueError:  # It is no address, and gets the smallest limit.
            return ""
    return unquote(re.split("[?#]", target, maxsplit=1)[0])


def detail(reason: str, **more: object) -> bytes:
    """The body of an answer that never reached the application."""
    return json.dumps({"detail": reason, **more}).encode()


def refusal_of(status: HTTPStatus, reason: str, headers: str = "", **more: object) -> bytes:
    """Return an answer in JSON to a request that never reached the application. The connection closes with it."""
    return closing_answer(status, f"Content-Type: application/json\r\n{headers}", detail(reason, **more))


def not_http() -> bytes:
    """Return the answer to bytes that are not HTTP."""
    return refusal_of(HTTPStatus.BAD_REQUEST, "The request must be valid HTTP/1.1.", errors=NOT_HTTP)


def long_head() -> bytes:
    """Return the answer to a request line and headers of more than MOST_HEAD_BYTES."""
    reason = f"Request line and headers must be at most {MOST_HEAD_BYTES} bytes together."
    return refusal_of(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, reason)


def closing_answer(status: HTTPStatus, headers: str, body: bytes) -> bytes:
    """Return the bytes of a whole answer after which the connection closes."""
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\n{headers}"
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
