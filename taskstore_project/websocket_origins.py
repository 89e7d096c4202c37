"""Which pages may open a websocket: those that this server has sent itself."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host

PORTS = {"http": 80, "https": 443}


class OwnOrigin:
    """An ASGI application: hands a websocket on when a page of this server asks for it, and turns others away.

    With TASKSTORE_PUBLIC_URL browsers come by that address alone. Without it they come by one of this machine: the
    page has to be of a host that the server answers to, at the port that the socket was asked for, as cookies are sent
    to every port of a host.
    """

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name: text.decode("latin1") for name, text in scope["headers"]}
        is_own = is_own_origin(headers.get(b"origin", ""), headers.get(b"host", ""))
        await (self._application if is_own else WebsocketDenier())(scope, receive, send)


def is_own_origin(origin: str, host: str) -> bool:
    """Whether a page of `origin` is one of this server, which was asked by the name `host`."""
    try:
        page = urlsplit(origin)
        if settings.TASKSTORE_PUBLIC_URL:
            return _place(page) == _place(urlsplit(settings.TASKSTORE_PUBLIC_URL))
        asked = urlsplit(f"http://{host}")
        # No other scheme: a proxy that speaks TLS needs TASKSTORE_PUBLIC_URL.
        return page.scheme == "http" and _place(page)[2] == _place(asked)[2] and _is_ours(page) and _is_ours(asked)
    except ValueError:  # It is no address.
        return False


def _place(address: SplitResult) -> tuple[str, str | None, int | None]:
    return address.scheme, address.hostname, address.port or PORTS.get(address.scheme)


def _is_ours(address: SplitResult) -> bool:
    host, _ = split_domain_port(address.netloc)
    return bool(host) and validate_host(host, settings.ALLOWED_HOSTS)
