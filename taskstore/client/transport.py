"""One request and its retries: where the server is, who asks, and the HTTP connection."""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import getproxies, proxy_bypass

import httpx

from ..errors import CommitUnknown, InvalidInput, TaskStoreError
from .calls import Call
from .errors import UnexpectedAnswer
from .retries import Problem, problem_of

# What every client can write exactly, JavaScript's too. 0 is the owner that nobody is.
LARGEST = 2**53 - 1


class _Identity:
    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.number = 1 + secrets.randbelow(LARGEST)


_identity = _Identity()
os.register_at_fork(after_in_child=_identity.renew)


def of_this_process() -> int:
    """The number of this process. Two processes that shared one could delete each other's tasks."""
    return _identity.number


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
            log.warning("the token is sent to %s unencrypted: anyone on the way can read it", self.url)

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
        raise InvalidInput({"url": [f"must be an address such as {DEFAULT_URL}, not {url!r}"]})


TIMEOUT_S, PATIENCE_S = 30.0, 60.0
# Each thread of a worker may wait for a task.
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30)


class BaseClient:
    """The store at an address. Threads may share a client, and so may processes that fork.

    `url` and `token`: see `access`. `client_id`: in whose name tasks are claimed; by default a number of this
    process, and another one in each child. A call that goes wrong on the way, or that the server can't answer now,
    is tried again for `patience_s`; each try has `timeout_s` for its answer to begin.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        client_id: int | None = None,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._access = Access(url, token)
        self._client_id = client_id
        self._patience = Patience(timeout_s=timeout_s, patience_s=patience_s)
        # By the number of the process: on those of its parent both would read each other's answers.
        self._connections: dict[int, Any] = {}

    @property
    def id(self) -> int:
        """In whose name tasks are claimed and committed."""
        return of_this_process() if self._client_id is None else self._client_id

    @property
    def url(self) -> str:
        return self._access.url

    @property
    def _connecting(self) -> dict[str, Any]:
        """How the connections are made."""
        return {
            "limits": LIMITS,
            "proxy": proxy_to(self._access.url),
            # Without TLS there is no use in loading the certificates of the world, which takes a while.
            "verify": self._access.url.startswith("https:"),
        }


T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0
LONGEST_CONNECT_S = 10.0
JITTER = secrets.SystemRandom()


@dataclass(frozen=True, slots=True)
class Pause:
    """Come back after so long."""

    seconds: float


Happened = httpx.Response | httpx.TransportError
# A request is to be sent; what happened comes back.
Conversation = Generator[httpx.Request | Pause, Any, httpx.Response]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long one try waits for the answer to begin, and for how long a call is tried again."""

    timeout_s: float
    patience_s: float


class Pauses:
    """How long to wait before each further try of one call: longer each time, and by chance not all at once."""

    def __init__(self, patience: Patience) -> None:
        self._until_s = time.monotonic() + patience.patience_s
        self._longest_s = FIRST_PAUSE_S

    def next_s(self, problem: Problem) -> float | None:
        """None: there is no further try."""
        pause_s = max(problem.least_pause_s, self._longest_s * JITTER.uniform(0.5, 1))
        self._longest_s = min(LONGEST_PAUSE_S, self._longest_s * 2)
        is_over = time.monotonic() + pause_s > self._until_s
        return None if is_over or not problem.may_pass else pause_s


def conversation(call: Call[Any], access: Access, patience: Patience) -> Conversation:
    """Each step until an answer that went well, which is returned. Raises a TaskStoreError when none comes."""
    pauses, content = Pauses(patience), call.content
    token, may_have_happened = access.token, False
    while True:
        if may_have_happened and access.token != token:
            # The server knows the key by the token that it came with: it would do it a second time.
            raise CommitUnknown("the server restarted during the request")
        url, token = access.url, access.token
        happened: Happened = yield _request(call, content, url, token, patience.timeout_s)
        problem = problem_of(call, happened)
        if problem is None:
            return happened  # type: ignore[return-value]  # What has no problem is an answer.
        may_have_happened |= call.is_at_stake and problem.may_have_happened
        if problem.is_of_access:
            access.refresh()
            if (access.url, access.token) != (url, token):  # By us, or by another thread meanwhile.
                continue
        is_over = call.once and may_have_happened
        if is_over or (pause_s := pauses.next_s(problem)) is None:
            raise _unknown(problem.error) if may_have_happened else problem.error
        yield Pause(pause_s)


def read(call: Call[T], answer: httpx.Response) -> T:
    """What the answer says. Raises CommitRefused when it is that, UnexpectedAnswer when it is no answer of ours."""
    if answer.status_code == httpx.codes.NOT_FOUND:
        return None  # type: ignore[return-value]
    try:
        return call.read(answer.content)
    except (ValueError, KeyError, TypeError) as problem:
        raise UnexpectedAnswer(f"{call.method} {call.path} had an unexpected answer: {problem!r}") from problem


def _request(call: Call[Any], content: bytes | None, url: str, token: str, timeout_s: float) -> httpx.Request:
    return httpx.Request(
        call.method,
        _address(url + call.path),
        params=call.query or None,
        content=content,
        headers=_headers(call, token),
        extensions={"timeout": _timeout(timeout_s, call).as_dict()},
    )


@lru_cache(100)
def _address(url: str) -> httpx.URL:
    return httpx.URL(url)


def _headers(call: Call[Any], token: str) -> dict[str, str]:
    headers = {"User-Agent": "taskstore"}
    if call.body is not None:
        headers["Content-Type"] = "application/json"
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if call.key:
        headers["Idempotency-Key"] = call.key
    return headers


def _timeout(timeout_s: float, call: Call[Any]) -> httpx.Timeout:
    return httpx.Timeout(timeout_s + call.wait_ms / 1000, connect=min(timeout_s, LONGEST_CONNECT_S), pool=None)


def _unknown(error: TaskStoreError) -> CommitUnknown:
    return CommitUnknown(f"it is unknown whether the request was carried out: {error}")
