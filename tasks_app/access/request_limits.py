"""How many requests come by one token or from one address: counted in memory, by each process for itself.

A table would cost each request more than the request does, and on SQLite keep the writer waiting.
"""

from __future__ import annotations

import time
from ipaddress import ip_address, ip_network
from math import ceil
from typing import Any

from django.conf import settings
from django.http import HttpRequest

KEPT = 10_000  # Of those who asked; above that the ones who have waited long enough are forgotten.
NETWORK_BITS = 64  # Of an IPv6 address: who has one has all that begin like it.


class Allowance:
    """As many requests at once from each as the setting says, and as many more in each period; 0: no limit."""

    def __init__(self, setting: str, default: int, period_s: float) -> None:
        self._setting, self._default, self._period_s = setting, default, period_s
        self.forget()

    def forget(self) -> None:
        self._free_at_s: dict[Any, float] = {}  # When each may ask for all of it at once again.
        self._most = KEPT

    @property
    def rate(self) -> int:
        rate: int = getattr(settings, self._setting, self._default)
        return rate

    def wait_s(self, who: Any) -> int:
        """Full seconds that they have to wait before the next one; 0: none."""
        rate = self.rate
        return self._wait_s(who, self._period_s / rate, time.monotonic()) if rate else 0

    def take(self, who: Any) -> int:
        """Count a request, if it may come now. Returns `wait_s`."""
        rate = self.rate
        if not rate:
            return 0
        step_s, now_s = self._period_s / rate, time.monotonic()
        wait_s = self._wait_s(who, step_s, now_s)
        if not wait_s:
            self._free_at_s[who] = max(self._free_at_s.get(who, now_s), now_s) + step_s
            self._forget_the_patient(now_s)
        return wait_s

    def _wait_s(self, who: Any, step_s: float, now_s: float) -> int:
        over_s = self._free_at_s.get(who, now_s) + step_s - now_s - self._period_s
        # Thirds of a second do not add up to a whole one.
        return ceil(over_s) if over_s > 1e-6 else 0

    def _forget_the_patient(self, now_s: float) -> None:
        if len(self._free_at_s) > self._most:
            self._free_at_s = {who: free_at_s for who, free_at_s in self._free_at_s.items() if free_at_s > now_s}
            self._most = max(KEPT, 2 * len(self._free_at_s))


# Off: how fast workers work is theirs to know, and many may share a token or an address.
BY_TOKEN = Allowance("TASKSTORE_TOKEN_RATE", 0, 1.0)
BY_ADDRESS = Allowance("TASKSTORE_ADDRESS_RATE", 0, 1.0)
# On: each costs a look into the database, or half a second for the hash of a password.
WRONG_TOKENS = Allowance("TASKSTORE_WRONG_TOKEN_RATE", 100, 1.0)
SIGN_INS = Allowance("TASKSTORE_SIGN_IN_RATE", 30, 60.0)
ALL = (BY_TOKEN, BY_ADDRESS, WRONG_TOKENS, SIGN_INS)


def address_of(request: HttpRequest) -> str:
    """Where the request comes from: beyond the proxies that the settings number, and no further."""
    return beyond_proxies(request.META.get("REMOTE_ADDR") or "", request.META.get("HTTP_X_FORWARDED_FOR", ""))


def beyond_proxies(direct: str, forwarded: str) -> str:
    """The same by the address of the connection, and by the text of X-Forwarded-For."""
    proxies = getattr(settings, "TASKSTORE_PROXIES", 0)
    if not proxies:
        return direct
    # What stands further left the client may have written itself.
    hops = forwarded.split(",")
    named = hops[-proxies].strip() if len(hops) >= proxies else ""
    return named if _is_address(named) else direct


def network_of(request: HttpRequest) -> str:
    """As `network`, of the request's address."""
    return network(address_of(request))


def network(address: str) -> str:
    """The address, or of an IPv6 one the part that says whose it is."""
    if ":" not in address or not _is_address(address):
        return address
    return str(ip_network((address, NETWORK_BITS), strict=False))


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
