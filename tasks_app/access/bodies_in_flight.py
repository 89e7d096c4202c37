"""Limit the bytes of request bodies that a client has in this process at once, so that none fills its memory."""

from __future__ import annotations

from collections import Counter

from django.apps import apps
from django.conf import settings

from ..offload.memory import give_back_soon
from .request_limits import beyond_proxies, network

LEAST_BYTES = 64 * 2**10  # Counting a smaller body costs more than the body.
MOST_BYTES = 256 * 2**20  # The default of the setting.
RETRY_AFTER_S = 1
REASON = "Too many request bytes at once: wait for a response before you send the next request."
LARGE_BYTES = 2**20

_at_work: Counter[str] = Counter()


def sender_of(authorization: str, peer: str, forwarded: str) -> str:
    """Return the client that a request counts for: its token if it is known to be valid, otherwise its address."""
    secret = authorization.partition(" ")[2].strip()
    if secret and apps.ready:  # The server may serve another application, without tokens.
        from . import tokens  # It needs the models, and servers import this module before them.

        if tokens.is_known(secret):
            return f"token {secret}"
    return f"address {network(beyond_proxies(peer, forwarded))}"


class Charge:
    """The counted bytes of one request, until it is answered."""

    def __init__(self, sender: str) -> None:
        self._sender = sender
        self._size = 0

    def raise_to(self, size: int) -> bool:
        """Count so many bytes. Returns False when that exceeds the limit of the sender's concurrent requests."""
        if size <= max(self._size, LEAST_BYTES):
            return True
        others = _at_work[self._sender] - self._size
        if others and others + size > getattr(settings, "TASKSTORE_MAX_BYTES_IN_FLIGHT", MOST_BYTES):
            return False
        _at_work[self._sender] = others + size
        self._size = size
        return True

    def end(self) -> None:
        """Stop counting the request. Calling it again has no effect."""
        size, self._size = self._size, 0
        if size:
            _at_work[self._sender] -= size
            if not _at_work[self._sender]:
                del _at_work[self._sender]
        if size > LARGE_BYTES:
            give_back_soon()
