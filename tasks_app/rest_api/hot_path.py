"""Claims, commits and looks for cancelled tasks, which workers make all the time, and the shortest way to them.

Django's handler, its middleware and its URL resolver cost several times what the views do. None
of them matters to a request that carries a token and no cookie.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, nullcontext
from io import BytesIO
from typing import Any, NamedTuple, cast

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse, JsonResponse
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.response import Response

from taskstore import endpoints
from taskstore.types.requests import CancelledRequest, ClaimRequest, UpdateRequest
from taskstore.types.tasks import Cancelled

from ..access.tokens import waiting_tokens
from ..control.cancelling import watch
from ..core.validation import refuse_owner
from ..models import Task as StoredTask
from ..wire.requests import claim_of, update_of
from . import health  # noqa: F401 - its handlers.
from .answers import Body, JSONRenderer, outcome_of
from .authentication import NO_TOKEN
from .base import View, Who, serves
from .bodies import LargeUpdate

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

PAUSE_AFTER_BYTES = 2**20  # Of a body.

log = logging.getLogger(__name__)


@serves(endpoints.UPDATE)
async def update(asked: UpdateRequest | LargeUpdate, who: Who) -> Body:
    is_large, key = isinstance(asked, LargeUpdate), who.key_of(asked)
    operation = asked.operation(who.scope, key) if isinstance(asked, LargeUpdate) else update_of(asked, who.scope, key)
    return await outcome_of(await StoredTask.objects.aperform(operation, is_checked=is_large))


@serves(endpoints.CLAIM)
async def claim(asked: ClaimRequest, who: Who) -> Body:
    who.must_reach(*asked.wanted)
    operation = claim_of(asked, who.scope, who.key_of(asked))
    if not asked.wait:
        return await outcome_of(await StoredTask.objects.aperform(operation))
    async with waiting_tokens.while_valid(who.token, AuthenticationFailed(NO_TOKEN)):
        return await outcome_of(await StoredTask.objects.aperform(operation))


@serves(endpoints.CANCELLED)
async def cancelled(asked: CancelledRequest, who: Who) -> Cancelled:
    refuse_owner(who.scope, asked.clientid)
    async with waiting_tokens.while_valid(who.token, AuthenticationFailed(NO_TOKEN)):
        return await watch.cancelled(asked.clientid, asked.after, asked.wait, who.scope)


ClaimView, UpdateView, CancelledView = [
    View.of(endpoint) for endpoint in (endpoints.CLAIM, endpoints.UPDATE, endpoints.CANCELLED)
]
# Workers call the first three all the time. Health: whatever keeps the threads busy, the process lives.
VIEWS: Mapping[tuple[str, str], type[View]] = {
    (row.method, row.path): view
    for view in (ClaimView, UpdateView, CancelledView, View.of(endpoints.HEALTHZ))
    for row in view.rows.values()
}

# What every answer says.
HEADERS = (
    (b"Content-Type", JSONRenderer.media_type.encode()),
    (b"Cache-Control", b"no-store"),
    (b"X-Content-Type-Options", b"nosniff"),
)


class Answer(NamedTuple):
    status: int
    headers: tuple[tuple[bytes, bytes], ...]  # All but the length.
    body: Body


class HotPath:
    """An ASGI application: answers what is in `VIEWS` itself, and leaves the rest to the other one."""

    def __init__(self, others: Application) -> None:
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = VIEWS.get((scope.get("method", ""), scope.get("path", "")))  # A websocket has no method.
        if kind is None:
            await self._others(scope, receive, send)
            return
        body = await _body(receive)
        if body is None:
            return
        view, request = kind(), ASGIRequest(scope, BytesIO(body))
        view.setup(request)
        may_wait = (kind is ClaimView and (len(body) > PAUSE_AFTER_BYTES or b'"wait"' in body)) or kind is CancelledView
        del body  # What is left of it while the request is answered is up to the view.
        answer: Answer | None = None
        with _while_connected(receive) if may_wait else nullcontext():
            try:
                await view.admit(request)
                answer = Answer(200, HEADERS, cast("Body", await view.answer({})))
            except Exception as error:
                answer = _failure(error, view)
            finally:
                del view.request  # It knows the view: the collector would have to find this circle, and everybody wait.
        if answer is None:
            return
        if isinstance(answer.body, bytes):
            length = (b"Content-Length", b"%d" % len(answer.body))
            await send({"type": "http.response.start", "status": answer.status, "headers": [*answer.headers, length]})
            await send({"type": "http.response.body", "body": answer.body})
            return
        with _while_connected(receive):
            await send({"type": "http.response.start", "status": answer.status, "headers": [*answer.headers]})
            async with aclosing(answer.body) as pieces:
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body"})


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


def failure_of(kind: type[View], error: Exception) -> Answer:
    """The answer to a request whose operation has failed, without the request."""
    [row] = kind.rows.values()
    scope = {"type": "http", "method": row.method, "path": row.path, "headers": []}
    view, request = kind(), ASGIRequest(scope, BytesIO())
    view.setup(request)
    view.request = view.initialize_request(request)
    try:
        return _failure(error, view)
    finally:
        del view.request


def _failure(error: Exception, view: View) -> Answer:
    """What to answer; the log has the number of what nobody expected."""
    try:
        response = cast("HttpResponse", view.finished(view.handle_exception(error)))
        if isinstance(response, Response):
            response.render()
    except Exception:
        number = secrets.token_hex(8)
        request = view.request._request
        log.exception("request %s failed: %s %s", number, request.method, request.path)
        response = JsonResponse({"detail": "Internal server error.", "request_id": number}, status=500)
    own = [(name.encode("latin1"), value.encode("latin1")) for name, value in response.items()]
    return Answer(response.status_code, (*own, (b"X-Content-Type-Options", b"nosniff")), response.content)


@contextmanager
def _while_connected(receive: Receive) -> Iterator[None]:
    """End what is within when the client has gone: who has gone takes no task."""
    us = asyncio.current_task()
    if us is None:
        yield
        return
    # Not a task for each of the two: thousands may wait.
    gone = asyncio.ensure_future(receive())
    gone.add_done_callback(stop := lambda _: us.cancel())
    try:
        yield
    except asyncio.CancelledError:
        # Cancelled by somebody else, as some servers do when the client has gone?
        if not gone.done() or us.uncancel():
            raise
    finally:
        gone.remove_done_callback(stop)
        gone.cancel()
