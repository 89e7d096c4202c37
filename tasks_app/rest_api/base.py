"""The one view of the API: it answers a request by the row of its endpoint and the function that serves it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from functools import cached_property
from inspect import iscoroutinefunction
from typing import Any, ClassVar, NoReturn, Self, TypeVar, cast

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import transaction
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_cache_control
from msgspec import structs
from rest_framework.exceptions import MethodNotAllowed, NotAuthenticated, NotFound, PermissionDenied
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from taskstore.endpoints import Endpoint
from taskstore.types.requests import Asked

from ..access.policy import actor_of, scope_of
from ..core.actors import Actor
from ..core.operations import GroupScope, ResendKey
from ..models import Token
from .answers import ENCODER, Body, JSONRenderer, answer_to
from .authentication import SEND_TOKEN, MachineOrToken, MayDo, TokenAuthentication, learn_token, slow_down
from .bodies import WithKey, asked_in, resend_key

AskedT = TypeVar("AskedT", bound=Asked)
HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])

HANDLERS: dict[Endpoint[..., Any, Any], Callable[..., Any]] = {}


def serves(*rows: Endpoint[..., AskedT, Any]) -> Callable[[HandlerT], HandlerT]:
    """Make a function serve an endpoint: it takes the request and who sends it, and returns the answer.

    None stands for what the row calls missing.

    A coroutine function runs on the event loop, any other in a thread.
    """

    def bind(handler: HandlerT) -> HandlerT:
        HANDLERS.update(dict.fromkeys(rows, handler))
        return handler

    return bind


class Who:
    """Who sends a request: the token, what it may do, and the request that it came with."""

    def __init__(self, request: HttpRequest, token: Token) -> None:
        self.request, self.token = request, token

    @cached_property
    def actor(self) -> Actor:
        """The token as verbs that change something, and the audit log, know it."""
        return actor_of(self.token)

    @cached_property
    def scope(self) -> GroupScope:
        """The groups that the token may touch, and whether it may change those with shell commands."""
        return scope_of(self.token)

    def must_reach(self, *groups: str) -> None:
        """Raise PermissionDenied when the token may not touch a group that the request names."""
        for group in groups:
            if not self.scope.allows(group):
                raise PermissionDenied(f'This token has no access to the group "{group}".')

    def key_of(self, asked: WithKey, holder: str = "") -> ResendKey | None:
        """The idempotency key that header or body give, under the name of its holder; None without one."""
        header: str = self.request.META.get("HTTP_IDEMPOTENCY_KEY", "")
        if not (header or asked.key):
            return None
        if not holder:
            holder = f"token {self.token.pk}" if self.token.pk is not None else f"client {asked.clientid}"
        return resend_key(header, asked, holder)


class OnlyJSON(BaseContentNegotiation):
    """JSON, whatever the client says that it would rather have: clients of the original say nothing sensible."""

    def select_parser(self, request: Request, parsers: Iterable[Any]) -> Any:
        return next(iter(parsers), None)

    def select_renderer(self, request: Request, renderers: Iterable[Any], format_suffix: str | None = None) -> Any:
        renderer = next(iter(renderers))
        return renderer, renderer.media_type


class View(APIView):
    """The endpoints of a path. What goes wrong is raised."""

    rows: ClassVar[Mapping[str, Endpoint[..., Any, Any]]] = {}  # By method.
    parser_classes = ()  # Bodies are read by `asked_in`.
    renderer_classes = (JSONRenderer,)
    throttle_classes = ()
    schema = None  # schema.py describes the API.
    content_negotiation_class = OnlyJSON
    format_kwarg = None  # Nor does a path say what it wants.
    view_is_async = True

    @classmethod
    def of(cls, *rows: Endpoint[..., Any, Any]) -> type[Self]:
        """Make the view of a path."""
        authentication = MachineOrToken if rows[0].is_local else TokenAuthentication
        needs_token = rows[0].needs is not None
        return type(
            rows[0].name,
            (cls,),
            {
                "rows": {row.method: row for row in rows},
                "authentication_classes": [authentication] if needs_token else [],
                "permission_classes": [MayDo] if needs_token else [],
                **{row.method.lower(): HANDLERS[row] for row in rows},  # By which Django and DRF know the methods.
            },
        )

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        return transaction.non_atomic_requests(super().as_view(**initkwargs))

    @property
    def row(self) -> Endpoint[..., Any, Any] | None:
        """What is asked for; None when the path does not have this method."""
        method = self.request._request.method or ""
        return self.rows.get("GET" if method == "HEAD" else method)

    async def dispatch(self, request: HttpRequest, *args: Any, **path: Any) -> HttpResponseBase:  # type: ignore[override]
        try:
            await self.admit(request)
            answer = await self.answer(path)
        except Exception as error:
            answer = self.handle_exception(error)
        if isinstance(answer, AsyncGenerator) and isinstance(request, ASGIRequest):
            answer = StreamingHttpResponse(answer, content_type=JSONRenderer.media_type)
        elif isinstance(answer, AsyncGenerator):
            answer = b"".join([piece async for piece in answer])
        if isinstance(answer, bytes):
            status = self.row.status if self.row else 200
            answer = HttpResponse(answer, content_type=JSONRenderer.media_type, status=status)
        return self.finished(answer)

    async def admit(self, request: HttpRequest) -> None:
        """Make `self.request` of it. Raises what DRF answers to whoever may not ask for this, or not that often."""
        self.request: Request = self.initialize_request(request, *self.args, **self.kwargs)
        # The look into the database happens beside the loop; what follows finds it done.
        if self.authentication_classes:
            await learn_token(self.request)
        # Not DRF's own `initial`: there are no versions and no renderers to choose from, and its throttles cost more.
        self.perform_authentication(self.request)
        slow_down(self.request)
        self.check_permissions(self.request)

    async def answer(self, path: Mapping[str, str]) -> Body | HttpResponseBase:
        """Read what is asked for, and do it."""
        row, request = self.row, self.request._request
        if row is None:
            if request.method == "OPTIONS":
                return await sync_to_async(self.options)(self.request)
            raise MethodNotAllowed(request.method or "")
        who = Who(request, cast("Token", self.request.auth))
        asked, handler = await asked_in(row, request, path), HANDLERS[row]
        if iscoroutinefunction(handler):
            return _as_body(await handler(asked, who), row, asked)
        return await sync_to_async(lambda: _as_body(handler(asked, who), row, asked))()

    def permission_denied(self, request: Request, message: str | None = None, code: str | None = None) -> NoReturn:
        if not isinstance(request.auth, Token):
            raise NotAuthenticated(SEND_TOKEN)
        raise PermissionDenied(message)

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response | None]:
        return answer_to

    def finished(self, response: HttpResponseBase) -> HttpResponseBase:
        """With all that a response has beside its content."""
        self.headers = self.default_response_headers
        finalized = self.finalize_response(self.request, cast("Response", response), *self.args, **self.kwargs)
        patch_cache_control(finalized, no_store=True)
        return finalized


def _as_body(value: Any, row: Endpoint[..., Any, Any], asked: Any) -> Body | HttpResponseBase:
    if value is None and row.missing:
        raise NotFound(row.missing.format(**structs.asdict(asked)))
    return value if isinstance(value, bytes | HttpResponseBase | AsyncGenerator) else ENCODER.encode(value)
