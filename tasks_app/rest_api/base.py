"""What every view of the API has in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django.utils.cache import patch_cache_control
from django.utils.functional import cached_property
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import PermissionDenied
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ..access.policy import Action, actor_of, may, scope_of
from ..core.actors import Actor
from ..core.operations import GroupScope
from ..models import Token
from .authentication import MayDo, TokenAuthentication, slow_down
from .errors import JSONRenderer, answer_to


class OnlyJSON(BaseContentNegotiation):
    """JSON, whatever the client says that it would rather have: clients of the original say nothing sensible."""

    def select_parser(self, request: Request, parsers: Iterable[Any]) -> Any:
        return next(iter(parsers), None)

    def select_renderer(self, request: Request, renderers: Iterable[Any], format_suffix: str | None = None) -> Any:
        renderer = next(iter(renderers))
        return renderer, renderer.media_type


class View(APIView):
    """A view answers with a Response of a value of `answers`; what goes wrong is raised."""

    needs: Action  # What the token must allow.

    authentication_classes: Sequence[type[BaseAuthentication]] = (TokenAuthentication,)
    permission_classes: Sequence[type[BasePermission]] = (MayDo,)
    parser_classes = ()  # Bodies are read by `bodies.read`.
    renderer_classes = (JSONRenderer,)
    throttle_classes = ()
    content_negotiation_class = OnlyJSON
    format_kwarg = None  # Nor does a path say what it wants.

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        # Not DRF's own: there are no versions and no renderers to choose from, and its throttles cost more than ours.
        self.perform_authentication(request)
        slow_down(request)
        self.check_permissions(request)

    def get_exception_handler(self) -> Callable[[Exception, dict[str, Any]], Response | None]:
        return answer_to

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Response:
        finalized: Response = super().finalize_response(request, response, *args, **kwargs)
        patch_cache_control(finalized, no_store=True)
        return finalized

    def token(self) -> Token:
        """Who asks. There is one, or the permission would have refused."""
        token: Token = self.request.auth  # type: ignore[assignment]
        return token

    @cached_property
    def actor(self) -> Actor:
        """The token as verbs that change something, and the audit, know it."""
        return actor_of(self.token())

    def scope(self) -> GroupScope:
        """The groups that the token may touch, and whether it may change those with shell commands."""
        return scope_of(self.token())

    def must_reach(self, group: str) -> None:
        """Raise PermissionDenied when the token may not touch a group that the request names."""
        if not may(self.token(), self.needs, group):
            raise PermissionDenied(f'This token may not touch the group "{group}".')


class OpenView(View):
    """A view for which nobody needs a token."""

    authentication_classes = ()
    permission_classes = ()
