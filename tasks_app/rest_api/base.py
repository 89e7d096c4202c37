"""The base of all views of the API, and views that run on the event loop, without a thread."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Any, NoReturn, Protocol, TypeVar, runtime_checkable

import msgspec
from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_cache_control
from django.utils.functional import cached_property
from msgspec import Struct
from msgspec.structs import replace
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import NotAuthenticated, PermissionDenied
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from taskstore.endpoints import Endpoint
from taskstore.errors import InvalidInput, refuse
from taskstore.types.bulk import AgreedTasks
from taskstore.types.requests import AskedOperation
from taskstore.types.sentences import text

from ..access.policy import actor_of, scope_of
from ..core.actors import Actor
from ..core.operations import GroupScope, ResendKey
from ..models import Token
from .answers import Body
from .authentication import SEND_TOKEN, MayDo, TokenAuthentication, learn_token, slow_down
from .errors import JSONRenderer, answer_to

HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])

KEY_LENGTH = 255


def serves(endpoint: Endpoint[Any]) -> Callable[[HandlerT], HandlerT]:
    """Mark a method of a view as the one that serves an endpoint. Its URL, rights and description follow from that."""

    def mark(handler: HandlerT) -> HandlerT:
        handler.endpoint = endpoint  # type: ignore[attr-defined]
        return handler

    return mark


class OnlyJSON(BaseContentNegotiation):
    """JSON, whatever the client says that it would rather have: clients of the original say nothing sensible."""

    def select_parser(self, request: Request, parsers: Iterable[Any]) -> Any:
        return next(iter(parsers), None)

    def select_renderer(self, request: Request, renderers: Iterable[Any], format_suffix: str | None = None) -> Any:
        renderer = next(iter(renderers))
        return renderer, renderer.media_type


class View(APIView):
    """A view answers with a Response of a value of the type that its endpoint says; what goes wrong is raised."""

    authentication_classes: Sequence[type[BaseAuthentication]] = (TokenAuthentication,)
    permission_classes: Sequence[type[BasePermission]] = (MayDo,)
    parser_classes = ()  # Bodies are read by `bodies.read`.
    renderer_classes = (JSONRenderer,)
    throttle_classes = ()
    schema = None  # schema.py describes the API.
    content_negotiation_class = OnlyJSON
    format_kwarg = None  # Nor does a path say what it wants.

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        # Not DRF's own: there are no versions and no renderers to choose from, and its throttles cost more than ours.
        self.perform_authentication(request)
        slow_down(request)
        self.check_permissions(request)

    def permission_denied(self, request: Request, message: str | None = None, code: str | None = None) -> NoReturn:
        if not isinstance(request.auth, Token):
            raise NotAuthenticated(SEND_TOKEN)
        raise PermissionDenied(message)

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response | None]:
        return answer_to

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Response:
        finalized: Response = super().finalize_response(request, response, *args, **kwargs)
        patch_cache_control(finalized, no_store=True)
        return finalized

    @classmethod
    def served(cls) -> list[Endpoint[Any]]:
        """The endpoints that the methods of this view serve."""
        handlers = [getattr(cls, method, None) for method in cls.http_method_names]
        return [handler.endpoint for handler in handlers if handler and hasattr(handler, "endpoint")]

    @property
    def endpoint(self) -> Endpoint[Any] | None:
        """What is asked for; None when the path does not have this method."""
        handler = getattr(self, (self.request._request.method or "").lower(), None)
        return getattr(handler, "endpoint", None)

    def token(self) -> Token:
        """Who asks. There is one, or the permission would have refused."""
        token: Token = self.request.auth  # type: ignore[assignment]
        return token

    @cached_property
    def actor(self) -> Actor:
        """The token as verbs that change something, and the audit log, know it."""
        return actor_of(self.token())

    def scope(self) -> GroupScope:
        """The groups that the token may touch, and whether it may change those with shell commands."""
        return scope_of(self.token())

    def must_reach(self, group: str) -> None:
        """Raise PermissionDenied when the token may not touch a group that the request names."""
        if not self.scope().allows(group):
            raise PermissionDenied(f'This token has no access to the group "{group}".')


class OpenView(View):
    """A view for which nobody needs a token."""

    authentication_classes = ()
    permission_classes = ()


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

    async def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:  # type: ignore[override]
        try:
            await self.admit(request)
            answer: Body | HttpResponseBase = await self.handler(self.request, *args, **kwargs)
        except Exception as error:
            answer = self.handle_exception(error)
        if isinstance(answer, bytes):
            answer = HttpResponse(answer, content_type=JSONRenderer.media_type)
        elif isinstance(answer, AsyncGenerator) and not isinstance(request, ASGIRequest):
            answer = HttpResponse(b"".join([piece async for piece in answer]), content_type=JSONRenderer.media_type)
        elif isinstance(answer, AsyncGenerator):
            answer = StreamingHttpResponse(answer, content_type=JSONRenderer.media_type)
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

    def finished(self, response: HttpResponseBase) -> HttpResponseBase:
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
