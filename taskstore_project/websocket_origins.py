"""Accept websockets only from pages of this server."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host

PORTS = {"http": 80, "https": 443}


class OwnOrigin:
    """An ASGI application that passes on websockets from pages of this server, and refuses others.

    With TASKSTORE_PUBLIC_URL, a page must have that origin. Without it, a page must have an allowed host and the port
    of the websocket, because browsers send cookies to every port of a host.
    """

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name: text.decode("latin1") for name, text in scope["headers"]}
        is_own = is_own_origin(headers.get(b"origin", ""), headers.get(b"host", ""))
        await (self._application if is_own else WebsocketDenier())(scope, receive, send)


def is_own_origin(origin: str, host: str) -> bool:
    """Return whether `origin` is this server, which was addressed as `host`."""
    try:
        page = urlsplit(origin)
        if settings.TASKSTORE_PUBLIC_URL:
            return _place(page) == _place(urlsplit(settings.TASKSTORE_PUBLIC_URL))
        asked = urlsplit(f"http://{host}")
        # No other scheme: a proxy that speaks TLS needs TASKSTORE_PUBLIC_URL.
        return page.scheme == "http" and _place(page)[2] == _place(asked)[2] and _is_ours(page) and _is_ours(asked)
    except ValueError:  # Not a valid address.
        return False


def _place(address: SplitResult) -> tuple[str, str | None, int | None]:
    return address.scheme, address.hostname, address.port or PORTS.get(address.scheme)


def _is_ours(address: SplitResult) -> bool:
    host, _ = split_domain_port(address.netloc)
    return bool(host) and validate_host(host, settings.ALLOWED_HOSTS)
