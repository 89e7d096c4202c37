"""The shortest way to the two views that workers call all the time.

Django's handler, its middleware and its URL resolver cost several times what the views do. None
of them matters to a request that carries a token and no cookie.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse, JsonResponse
from rest_framework.response import Response

from . import views
from .async_views import LoopView
from .errors import JSONRenderer
from .health import Healthz

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

PAUSE_AFTER_BYTES = 2**20  # Of a body.

log = logging.getLogger(__name__)

# Workers call the first two all the time. Health: whatever keeps the threads busy, the process lives.
VIEWS: Mapping[tuple[str, str], type[LoopView]] = {
    (served.endpoint.method, served.endpoint.path): view
    for view in (views.ClaimTasks, views.Update, Healthz)
    for served in view.served()
}

# What every answer says.
HEADERS = [
    (b"Content-Type", JSONRenderer.media_type.encode()),
    (b"Cache-Control", b"no-store"),
    (b"X-Content-Type-Options", b"nosniff"),
]


class HotPath:
    """An ASGI application: answers what is in `VIEWS` itself, and leaves the rest to the other one."""

    def __init__(self, others: Application) -> None:
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        view = VIEWS.get((scope.get("method", ""), scope.get("path", "")))  # A websocket has no method.
        if view is None:
            await self._others(scope, receive, send)
        elif (body := await _body(receive)) is not None:
            request = ASGIRequest(scope, BytesIO(body))
            may_wait = view is views.ClaimTasks and (len(body) > PAUSE_AFTER_BYTES or b'"wait"' in body)
            del body  # What is left of it while the request is answered is up to the view.
            answer = await _while_connected(_answer(view, request), receive, may_wait=may_wait)
            if isinstance(answer, bytes):
                await _send(200, HEADERS, answer, send)
            elif answer is not None:
                await _send(answer.status_code, _headers(answer), answer.content, send)


async def _body(receive: Receive) -> bytes | None:
    """The whole body, or as much of it as shows that it is too large; None when the client has gone."""
    chunks: list[bytes] = []
    size = last_pause = 0
    while True:
        if size - last_pause > PAUSE_AFTER_BYTES:
            last_pause = size
            await asyncio.sleep(0)  # All of it may be there already, and others wait.
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if not message.get("more_body") or size > settings.TASKSTORE_MAX_REQUEST_BYTES:
            return b"".join(chunks)


async def _answer(view_class: type[LoopView], request: ASGIRequest) -> bytes | HttpResponse:
    view = view_class()
    view.setup(request)
    try:
        answer = await view.answer(request)
        if isinstance(answer, bytes):
            return answer
        response = view.finished(answer)
        return response.render() if isinstance(response, Response) else response
    except Exception:
        number = secrets.token_hex(8)
        log.exception("request %s failed: %s %s", number, request.method, request.path)
        return JsonResponse({"detail": "Something went wrong in the server.", "request_id": number}, status=500)
    finally:
        del view.request  # It knows the view: the collector would have to find this circle, and everybody would wait.


async def _while_connected(
    answering: Awaitable[bytes | HttpResponse], receive: Receive, *, may_wait: bool
) -> bytes | HttpResponse | None:
    """The answer, or None when the client has gone before it was there: who has gone takes no task."""
    us = asyncio.current_task()
    if not may_wait or us is None:
        return await answering
    # Not a task for each of the two: thousands may wait.
    gone = asyncio.ensure_future(receive())
    gone.add_done_callback(stop := lambda _: us.cancel())
    try:
        return await answering
    except asyncio.CancelledError:
        # Cancelled by somebody else, as some servers do when the client has gone?
        if not gone.done() or us.uncancel():
            raise
        return None
    finally:
        gone.remove_done_callback(stop)
        gone.cancel()


def _headers(response: HttpResponse) -> list[tuple[bytes, bytes]]:
    own = [(name.encode("latin1"), value.encode("latin1")) for name, value in response.items()]
    return [*own, (b"X-Content-Type-Options", b"nosniff")]


async def _send(status: int, headers: list[tuple[bytes, bytes]], body: bytes, send: Send) -> None:
    length = (b"Content-Length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
