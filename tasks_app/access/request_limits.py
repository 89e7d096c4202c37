"""Limits per token and per address, counted in memory by each process: requests, and bytes of bodies under way.

A table would cost more than the requests themselves, and on SQLite delay the writer.
"""

from __future__ import annotations

import time
from collections import Counter
from ipaddress import ip_address, ip_network
from math import ceil
from typing import Any

from django.apps import apps
from django.conf import settings
from django.http import HttpRequest

from ..offload.memory import give_back_soon

KEPT = 10_000  # Clients to remember; above that, those without a wait are removed.
NETWORK_BITS = 64  # An owner of an IPv6 address has its whole /64 network.

LEAST_BYTES = 64 * 2**10  # Counting a smaller body costs more than the body.
MOST_BYTES = 256 * 2**20  # The default of the setting.
RETRY_AFTER_S = 1
REASON = "Too many request bytes at once: wait for a response before you send the next request."
LARGE_BYTES = 2**20

_at_work: Counter[str] = Counter()


class Allowance:
    """A rate limit: so many requests at once as the setting says, and as many more in each period; 0: no limit."""

    def __init__(self, setting: str, default: int, period_s: float) -> None:
        self._setting, self._default, self._period_s = setting, default, period_s
        self.forget()

    def forget(self) -> None:
        self._free_at_s: dict[Any, float] = {}  # When each client has its full allowance again.
        self._most = KEPT

    @property
    def rate(self) -> int:
        rate: int = getattr(settings, self._setting, self._default)
        return rate

    def wait_s(self, client: Any) -> int:
        """Return the full seconds that the client has to wait; 0: none."""
        rate = self.rate
        return self._wait_s(client, self._period_s / rate, time.monotonic()) if rate else 0

    def take(self, client: Any) -> int:
        """Count a request if it is allowed now. Returns `wait_s`."""
        rate = self.rate
        if not rate:
            return 0
        step_s, now_s = self._period_s / rate, time.monotonic()
        wait_s = self._wait_s(client, step_s, now_s)
        if not wait_s:
            self._free_at_s[client] = max(self._free_at_s.get(client, now_s), now_s) + step_s
            if len(self._free_at_s) > self._most:
                self._free_at_s = {key: free_at_s for key, free_at_s in self._free_at_s.items() if free_at_s > now_s}
                self._most = max(KEPT, 2 * len(self._free_at_s))
        return wait_s

    def _wait_s(self, client: Any, step_s: float, now_s: float) -> int:
        over_s = self._free_at_s.get(client, now_s) + step_s - now_s - self._period_s
        # Tolerates rounding: three thirds of a second may exceed one second.
        return ceil(over_s) if over_s > 1e-6 else 0


# Off by default: workers may be fast, and many may share a token or an address.
BY_TOKEN = Allowance("TASKSTORE_TOKEN_RATE", 0, 1.0)
BY_ADDRESS = Allowance("TASKSTORE_ADDRESS_RATE", 0, 1.0)
# On by default: each costs a database query, or half a second for the hash of a password.
WRONG_TOKENS = Allowance("TASKSTORE_WRONG_TOKEN_RATE", 100, 1.0)
SIGN_INS = Allowance("TASKSTORE_SIGN_IN_RATE", 30, 60.0)
ALL = (BY_TOKEN, BY_ADDRESS, WRONG_TOKENS, SIGN_INS)


def address_of(request: HttpRequest) -> str:
    """Return the client's address, behind as many trusted proxies as the setting says."""
    return beyond_proxies(request.META.get("REMOTE_ADDR") or "", request.META.get("HTTP_X_FORWARDED_FOR", ""))


def beyond_proxies(direct: str, forwarded: str) -> str:
    """Return the same for the address of the connection and the text of X-Forwarded-For."""
    proxies = getattr(settings, "TASKSTORE_PROXIES", 0)
    if not proxies:
        return direct
    # The client may have written the entries further left.
    hops = forwarded.split(",")
    named = hops[-proxies].strip() if len(hops) >= proxies else ""
    return named if _is_address(named) else direct


def network_of(request: HttpRequest) -> str:
    """Return the `network` of the request's address."""
    return network(address_of(request))


def network(address: str) -> str:
    """Return the address, or the /64 network of an IPv6 address."""
    if ":" not in address or not _is_address(address):
        return address
    return str(ip_network((address, NETWORK_BITS), strict=False))


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


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
