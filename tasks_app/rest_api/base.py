"""What every view of the API has in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

from django.utils.cache import patch_cache_control
from django.utils.functional import cached_property
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import NotAuthenticated, PermissionDenied
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from taskstore.endpoints import Endpoint

from ..access.policy import actor_of, scope_of
from ..core.actors import Actor
from ..core.operations import GroupScope
from ..models import Token
from .authentication import SEND_TOKEN, MayDo, TokenAuthentication, slow_down
from .errors import JSONRenderer, answer_to

HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])


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
