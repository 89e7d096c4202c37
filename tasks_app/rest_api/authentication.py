"""Who asks: tokens, and how many requests each may make."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import DisallowedHost
from django.db import Error, connections
from django.http.request import split_domain_port
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied, Throttled
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from taskstore.errors import InvalidInput

from ..access import tokens
from ..access.policy import Action, may, scope_needed
from ..access.request_limits import BY_ADDRESS, BY_TOKEN, WRONG_TOKENS, network_of
from ..conf.commands import COMMANDS_ARE_OFF, commands_are_on
from ..database.outage import is_away
from ..models import Scope, Token


class TooManyRequests(Throttled):
    default_detail = "Too many requests."
    extra_detail_singular = extra_detail_plural = "Try again in {wait} s."


def slow_down(request: Request) -> None:
    """Count the request. Raises TooManyRequests when there have been too many by its token, or from its address."""
    if BY_ADDRESS.rate:
        refuse_for(BY_ADDRESS.take(network_of(request._request)))
    if BY_TOKEN.rate and isinstance(request.auth, Token):
        refuse_for(BY_TOKEN.take(request.auth.pk))


def refuse_guesses(request: Request) -> None:
    """Raises TooManyRequests when too many wrong tokens came from there: none is looked up any more."""
    refuse_for(WRONG_TOKENS.wait_s(network_of(request._request)))


def count_guess(request: Request) -> None:
    WRONG_TOKENS.take(network_of(request._request))


def refuse_for(wait_s: int) -> None:
    if wait_s:
        raise TooManyRequests(wait_s)


SEND_TOKEN = "A token is required, in the header Authorization: Bearer TOKEN."  # noqa: S105 - no secret.
NO_TOKEN = "The token is unknown, expired or revoked."  # noqa: S105 - no secret.

FOREIGN_HOST = "must name this machine, such as localhost, because the server was started with --no-auth"

# Who asks without a token for what MachineOrToken gives.
THIS_MACHINE = Token(name="this machine", scope=Scope.READ)
# Who has one of them, or another of their kind, comes from elsewhere by a proxy on this machine.
OF_PROXIES = ("HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_HOST", "HTTP_X_FORWARDED_PROTO",
              "HTTP_X_REAL_IP", "HTTP_VIA")  # fmt: skip


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer <token>`. A session's cookie opens nothing here, so that no page of another site can."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Token] | None:
        if settings.TASKSTORE_NO_AUTH:
            refuse_web_pages(request)
            return AnonymousUser(), tokens.ANYBODY
        # Django's request: through DRF's each look costs a microsecond.
        header = request._request.META.get("HTTP_AUTHORIZATION")
        if header is None:
            return None
        asked = request._request
        token = asked.known_token if hasattr(asked, "known_token") else _looked_up(request, _secret(header))
        if token is None:
            raise AuthenticationFailed(NO_TOKEN)
        return AnonymousUser(), token

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class MachineOrToken(TokenAuthentication):
    """As TokenAuthentication, but a program on this machine may read without a token: no web page, and by no proxy."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Token] | None:
        who = super().authenticate(request)
        if who is None and is_program_of_this_machine(request):
            return AnonymousUser(), THIS_MACHINE
        return who


class MayDo(BasePermission):
    """Whether the token's scope allows what the endpoint needs. A method that the path lacks is refused later."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if not isinstance(request.auth, Token):
            return False
        needs = view.row and view.row.needs
        if needs is None or may(request.auth, needs):
            return True
        self.message = f"{scope_needed(request.auth, needs).capitalize()}."
        if needs is Action.COMMANDS and not commands_are_on():  # So that nobody makes another token in vain.
            self.message = f"Commands can't be submitted or changed, because {COMMANDS_ARE_OFF}."
        return False


def _secret(header: str) -> str:
    scheme, _, secret = header.partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise AuthenticationFailed(SEND_TOKEN)
    return secret.strip()


async def learn_token(request: Request) -> None:
    """Look the request's token up beside the event loop, so that `authenticate` need not wait for the database."""
    header = request._request.META.get("HTTP_AUTHORIZATION")
    if header is not None and not settings.TASKSTORE_NO_AUTH:
        secret = _secret(header)
        token = tokens.trusted(secret) or await sync_to_async(_looked_up_afresh)(request, secret)
        request._request.known_token = token  # type: ignore[attr-defined]


def _looked_up_afresh(request: Request, secret: str) -> Token | None:
    """As `_looked_up`, over another connection where the one at hand has broken.

    On the shortest way no request ends as Django knows it, which is when it puts such a
    connection away: all look-ups of this process would fail for ever.
    """
    had_one = any(each.connection is not None for each in connections.all(initialized_only=True))
    try:
        return _looked_up(request, secret)
    except Error as error:
        connections.close_all()
        if not (had_one and is_away(error)):  # Else it would be waited for twice.
            raise
        return _looked_up(request, secret)


def _looked_up(request: Request, secret: str) -> Token | None:
    """As `tokens.recently_valid`. Raises TooManyRequests when too many came that were none."""
    if not tokens.is_known(secret):
        refuse_guesses(request)
    token = tokens.recently_valid(secret)
    if token is None:
        count_guess(request)
    return token


def refuse_web_pages(request: Request) -> None:
    """Without tokens everything on this machine may come in: but not a page in its browser.

    A page of another site names itself in `Origin`; one that made its own name point to this
    machine is known by `Host`.
    """
    try:
        is_local = is_for_loopback(request)
    except DisallowedHost:
        is_local = False
    if not is_local:
        raise InvalidInput({"Host": [FOREIGN_HOST]})
    if is_of_another_site(request):
        raise PermissionDenied("A server started with --no-auth accepts no requests from web pages of other sites.")


def is_program_of_this_machine(request: Request) -> bool:
    """Whether no other machine can have sent it, and no page of another site."""
    is_local = is_loopback(request.META.get("REMOTE_ADDR") or "") and is_for_loopback(request)
    return is_local and not (may_come_by_proxy(request) or is_of_another_site(request))


def may_come_by_proxy(request: Request) -> bool:
    """Behind a proxy on this machine every request comes from the loopback."""
    # A project that has no such setting has not said that there is no proxy.
    is_public = getattr(settings, "TASKSTORE_PUBLIC_URL", None) != "" or getattr(settings, "TASKSTORE_PROXIES", 0)
    return bool(is_public) or any(header in request.META for header in OF_PROXIES)


def is_for_loopback(request: Request) -> bool:
    host, _ = split_domain_port(request.get_host())
    return is_loopback(host)


def is_of_another_site(request: Request) -> bool:
    own_origin = f"{request.scheme}://{request.get_host()}"
    is_foreign = request.META.get("HTTP_ORIGIN", own_origin) != own_origin
    return is_foreign or request.META.get("HTTP_SEC_FETCH_SITE") in ("cross-site", "same-site")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
