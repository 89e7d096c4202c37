"""Views that run on the event loop, without a thread: what they call must not wait by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import msgspec
from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse
from msgspec import Struct
from msgspec.structs import replace
from rest_framework.request import Request
from rest_framework.response import Response

from taskstore.errors import InvalidInput, refuse
from taskstore.types.bulk import AgreedTasks
from taskstore.types.requests import AskedOperation
from taskstore.types.sentences import text

from ..core.operations import ResendKey
from .authentication import learn_token
from .base import View
from .errors import JSONRenderer

KEY_LENGTH = 255


@runtime_checkable
class HasDigest(Protocol):
    """A request whose digest was made where it was decoded."""

    @property
    def clientid(self) -> int: ...

    @property
    def key(self) -> str: ...

    @property
    def digest(self) -> str: ...


WithKey = AskedOperation | HasDigest


class LoopView(View):
    """As View, but its handlers are coroutines, which DRF has none of, and return the JSON that they answer."""

    async def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:  # type: ignore[override]
        try:
            await self.admit(request)
            answer: bytes | HttpResponse = await self.handler(self.request, *args, **kwargs)
        except Exception as error:
            answer = self.handle_exception(error)
        if isinstance(answer, bytes):
            answer = HttpResponse(answer, content_type=JSONRenderer.media_type)
        return self.finished(answer)

    async def admit(self, request: HttpRequest) -> None:
        """Make `self.request` of it. Raises what DRF answers to whoever may not ask for this, or not that often."""
        self.request: Request = self.initialize_request(request, *self.args, **self.kwargs)
        # The look into the database happens beside the loop; what follows finds it done.
        if self.authentication_classes:
            await learn_token(self.request)
        self.initial(self.request, *self.args, **self.kwargs)

    @property
    def handler(self) -> Callable[..., Any]:
        """The coroutine function that serves the request; what raises MethodNotAllowed when there is none."""
        name = (self.request._request.method or "").lower()
        handler = getattr(self, name, None) if name in self.http_method_names else None
        return handler or self.http_method_not_allowed

    def finished(self, response: HttpResponse) -> HttpResponse:
        """With all that a response has beside its content."""
        self.headers = self.default_response_headers
        return self.finalize_response(self.request, response, *self.args, **self.kwargs)

    async def options(self, request: Request, *args: Any, **kwargs: Any) -> Response:  # type: ignore[override]
        # Django takes a view for asynchronous only when all its handlers are.
        return await sync_to_async(super().options)(request, *args, **kwargs)

    def key_of(self, asked: WithKey) -> ResendKey | None:
        """The idempotency key that header or body give, under the name of its holder; None without one."""
        token = self.token()
        holder = f"client {asked.clientid}" if token.pk is None else f"token {token.pk}"
        return resend_key(key_header(self.request), asked, holder)


def key_header(request: Request) -> str:
    """The idempotency key in the request's header; empty without one."""
    key: str = request._request.META.get("HTTP_IDEMPOTENCY_KEY", "")
    return key


def resend_key(header: str, asked: WithKey | AgreedTasks, holder: str) -> ResendKey | None:
    """The idempotency key that header or body give; None without one."""
    key = header or asked.key
    if not key:
        return None
    if asked.key and header and asked.key != header:
        raise InvalidInput({"key": ["must equal the header Idempotency-Key, or be absent"]})
    refuse(text("key", key, KEY_LENGTH))
    # Asked in this order: whether something has a digest takes longer to find out than to make it.
    return ResendKey(f"{holder}/{key}", digest_of(asked) if isinstance(asked, Struct) else asked.digest)


def digest_of(asked: Struct) -> str:
    """Of the request as a value: how it was written, and the key itself, do not count.

    Nor does the order in which its type names the fields: that may be another one in the next version, which a request
    that is sent again may meet.
    """
    if getattr(asked, "key", ""):
        asked = replace(asked, key="")
    try:
        value = msgspec.json.encode(asked, order="sorted")
    except UnicodeEncodeError:  # Text with a lone surrogate: what looks at the fields later refuses it by name.
        value = ascii(asked).encode()
    return hashlib.sha256(type(asked).__name__.encode() + value).hexdigest()
