"""The websocket of the console's pages, in an ASGI application."""

from __future__ import annotations

from functools import cached_property
from typing import Any
from urllib.parse import SplitResult, urlsplit

from django.conf import settings
from django.http.request import split_domain_port, validate_host
from django.urls import Resolver404, resolve

from ..conf import LIVE

PORTS = {"http": 80, "https": 443}
LOOPBACK = {"localhost", "127.0.0.1", "::1"}
# What Django itself takes for allowed while DEBUG is on and ALLOWED_HOSTS is empty.
HOSTS_OF_A_DEVELOPER = [".localhost", "127.0.0.1", "[::1]"]


class LiveCounts:
    """An ASGI application: `inner`, and the websocket of the console, below whatever prefix its URLs are included.

    In a project's `asgi.py`: `application = LiveCounts(get_asgi_application())`.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self._inner({**scope, LIVE: True}, receive, send)
        elif scope["type"] == "websocket" and _is_live(scope):
            await (self._socket if is_own_origin(scope) else self._denier)(scope, receive, send)
        else:
            await self._inner(scope, receive, send)

    @cached_property
    def _socket(self) -> Any:
        # Not with this module: a project imports it before its apps are ready.
        from channels.auth import AuthMiddlewareStack

        from .consumer import ClosedInOutage, LiveConsumer

        return ClosedInOutage(AuthMiddlewareStack(LiveConsumer.as_asgi()))

    @cached_property
    def _denier(self) -> Any:
        from channels.security.websocket import WebsocketDenier

        return WebsocketDenier.as_asgi()


def _is_live(scope: Any) -> bool:
    try:
        return resolve(scope["path"].removeprefix(scope.get("root_path", ""))).view_name == "tasks_app:live"
    except Resolver404:
        return False


def is_own_origin(scope: Any) -> bool:
    """Return whether the websocket was opened by a page of this site: others must not, with the visitor's cookie.

    With TASKSTORE_PUBLIC_URL, the page must have that origin. Without it, it must be one of CSRF_TRUSTED_ORIGINS, or
    have the host, scheme and port of the websocket, because browsers send cookies to every port of a host.
    """
    headers = {name: text.decode("latin1") for name, text in scope["headers"]}
    is_secure = scope.get("scheme") == "wss"
    if settings.SECURE_PROXY_SSL_HEADER:
        name, value = settings.SECURE_PROXY_SSL_HEADER
        is_secure |= headers.get(name.removeprefix("HTTP_").replace("_", "-").lower().encode()) == value
    addressed = headers.get(b"x-forwarded-host" if settings.USE_X_FORWARDED_HOST else b"host", "")
    try:
        page = urlsplit(headers.get(b"origin", ""))
        if public := getattr(settings, "TASKSTORE_PUBLIC_URL", ""):
            return _place(page) == _place(urlsplit(public))
        if page.hostname and any(_place(page) == _place(urlsplit(origin)) for origin in settings.CSRF_TRUSTED_ORIGINS):
            return True
        asked = urlsplit(f"{'https' if is_secure else 'http'}://{addressed}")
        (scheme, host, port), theirs = _place(asked), _place(page)
        # This machine has several names. Any other host has to be the same: a project may allow all, by "*".
        is_same = theirs[1] == host or {theirs[1], host} <= LOOPBACK
        return (theirs[0], theirs[2]) == (scheme, port) and is_same and _is_ours(page) and _is_ours(asked)
    except ValueError:  # Not a valid address.
        return False


def _place(address: SplitResult) -> tuple[str, str | None, int | None]:
    return address.scheme, address.hostname, address.port or PORTS.get(address.scheme)


def _is_ours(address: SplitResult) -> bool:
    host, _ = split_domain_port(address.netloc)
    allowed = settings.ALLOWED_HOSTS or (HOSTS_OF_A_DEVELOPER if settings.DEBUG else [])
    return bool(host) and validate_host(host, allowed)
