"""How many bytes of request bodies each client has at work in this process, so that none fills its memory."""

from __future__ import annotations

from collections import Counter

from django.apps import apps
from django.conf import settings

from ..offload.memory import give_back_soon
from .request_limits import beyond_proxies, network

LEAST_BYTES = 64 * 2**10  # Below this a body costs less than to count it.
MOST_BYTES = 256 * 2**20  # Where the settings say nothing.
RETRY_AFTER_S = 1
REASON = "Too many request bytes at once: wait for an answer before you send the next request."
LARGE_BYTES = 2**20

_at_work: Counter[str] = Counter()


def sender_of(authorization: str, peer: str, forwarded: str) -> str:
    """Who counts for a request: its token, where it is known to be valid, or else the address that it came from."""
    secret = authorization.partition(" ")[2].strip()
    if secret and apps.ready:  # Else it is the server of another application, which has no tokens.
        from . import tokens  # It needs the models, and servers know of this module before them.

        if tokens.is_known(secret):
            return f"token {secret}"
    return f"address {network(beyond_proxies(peer, forwarded))}"


class Charge:
    """What one request has at work, until it is answered."""

    def __init__(self, sender: str) -> None:
        self._sender = sender
        self._size = 0

    def raise_to(self, size: int) -> bool:
        """Count so many bytes. False: that is more than its sender may have at work beside others of its own."""
        if size <= max(self._size, LEAST_BYTES):
            return True
        others = _at_work[self._sender] - self._size
        if others and others + size > getattr(settings, "TASKSTORE_MAX_BYTES_IN_FLIGHT", MOST_BYTES):
            return False
        _at_work[self._sender] = others + size
        self._size = size
        return True

    def end(self) -> None:
        """The request is answered, or its client has gone. Ends once, however often it is told."""
        size, self._size = self._size, 0
        if size:
            _at_work[self._sender] -= size
            if not _at_work[self._sender]:
                del _at_work[self._sender]
        if size > LARGE_BYTES:
            give_back_soon()
