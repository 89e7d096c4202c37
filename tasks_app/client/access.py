"""Where the server is, and the token that it wants.

Each comes from the argument, else from the environment (TASKSTORE_URL, TASKSTORE_TOKEN), else from the file
`server.json` that a server on this machine keeps in its data folder while it runs.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.request import getproxies, proxy_bypass

import httpx

from ..errors import InvalidInput

DEFAULT_URL = "http://127.0.0.1:8048"

log = logging.getLogger(__name__)


class Access:
    """An address without a slash at its end, and a token; empty: none."""

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        self._url = url or os.environ.get("TASKSTORE_URL") or ""
        self._token = os.environ.get("TASKSTORE_TOKEN", "") if token is None else token
        # Who says that there is no token means it.
        self._takes_token_of_file = token is None and not self._token
        self._take(_server_file())
        _refuse_other_kinds(self.url)
        if self.token and not (self.is_loopback or self.url.startswith("https:")):
            log.warning("the token goes to %s in plain text: whoever is between can read it", self.url)

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.url)

    def refresh(self) -> None:
        """Read the file again: each start of the server has another token.

        While there is none, as the server is between two starts, all stays as it was.
        """
        if found := _server_file():
            self._take(found)

    def _take(self, found: Mapping[str, str]) -> None:
        self.url = (self._url or found.get("url") or DEFAULT_URL).rstrip("/")
        self.token = self._token.strip()
        # The token of this machine's server is for nobody else.
        if self._takes_token_of_file and found and _is_same(self.url, found.get("url", "")):
            self.token = found.get("token", "")


def proxy_to(url: str) -> str | None:
    """The proxy that the environment names for this address; never one to this machine: it would lead out of it."""
    there = httpx.URL(url)
    if is_loopback(url) or proxy_bypass(there.host):
        return None
    proxies = getproxies()
    return proxies.get(there.scheme) or proxies.get("all")


def is_loopback(url: str) -> bool:
    host = httpx.URL(url).host
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _is_same(url: str, other: str) -> bool:
    both_here = is_loopback(url) and is_loopback(other)
    return url == other or (both_here and httpx.URL(url).port == httpx.URL(other).port)


def _server_file() -> Mapping[str, str]:
    """What the first `server.json` says; nothing when no server runs here."""
    for folder in _data_folders():
        try:
            found: Mapping[str, str] = json.loads((folder / "server.json").read_bytes())
        except (OSError, ValueError):
            continue
        return found
    return {}


def _data_folders() -> Iterator[Path]:
    """Where a server of this user keeps its data: as it was told, in a checkout, beside the user's other data."""
    if told := os.environ.get("TASKSTORE_DATA"):
        yield Path(told)
        return
    yield Path("var")
    yield Path(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")) / "taskstore"


def _refuse_other_kinds(url: str) -> None:
    try:
        is_right = httpx.URL(url).scheme in ("http", "https") and bool(httpx.URL(url).host)
    except httpx.InvalidURL:
        is_right = False
    if not is_right:
        raise InvalidInput({"url": [f"an address like {DEFAULT_URL}, not {url!r}"]})
