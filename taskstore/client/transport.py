"""The server's address and token, the id of this process, one request, and which failures are retried."""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import getproxies, proxy_bypass

import httpx

from .. import errors
from .calls import Call
from .errors import NotAllowed, NotFound, TooOften, UnexpectedAnswer

LARGEST_ID = 2**53 - 1  # JavaScript can't represent larger integers exactly.

# The request was not sent.
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
# httpx rejects the request, and would again.
NEVER_SENT = (httpx.LocalProtocolError, httpx.UnsupportedProtocol)
# A proxy lost the server, maybe while it handled the request.
BROKEN_BEHIND = (502, 504)
SHOWN = 200  # Characters of an unexpected response.
BY_CODE = {
    kind.code: kind for kind in (errors.StoreBusy, errors.StoreUnavailable, errors.StoreDamaged, errors.CommitUnknown)
}


class _Identity:
    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.number = 1 + secrets.randbelow(LARGEST_ID)  # Not 0, which means that a task has no owner.


_identity = _Identity()
os.register_at_fork(after_in_child=_identity.renew)


def id_of_this_process() -> int:
    """Return the random client id of this process. Processes that shared one could delete each other's tasks."""
    return _identity.number


DEFAULT_URL = "http://127.0.0.1:8048"

log = logging.getLogger(__name__)


class Access:
    """The server's `url`, without a trailing slash, and its `token`, which may be empty.

    They are taken from the arguments, else from TASKSTORE_URL and TASKSTORE_TOKEN, else from the `server.json` of a
    server that runs on this machine. Raises InvalidInput for a URL that is not HTTP.
    """

    accepted = ""  # The token that the server has accepted last.

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        self._url = url or os.environ.get("TASKSTORE_URL") or ""
        self._token = os.environ.get("TASKSTORE_TOKEN", "") if token is None else token
        # token="" means no token, not that of the file.
        self._takes_token_of_file = token is None and not self._token
        self._take(_server_file())
        try:
            is_http = httpx.URL(self.url).scheme in ("http", "https") and bool(httpx.URL(self.url).host)
        except httpx.InvalidURL:
            is_http = False
        if not is_http:
            raise errors.InvalidInput({"url": [f"must be an address such as {DEFAULT_URL}, not {self.url!r}"]})
        if self.token and not (self.is_loopback or self.url.startswith("https:")):
            log.warning("the token is sent to %s unencrypted: anyone on the network path can read it", self.url)

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.url)

    def refresh(self) -> None:
        """Read the file again, because a server has a new token after each start.

        Without a file, while the server restarts, nothing changes.
        """
        if found := _server_file():
            self._take(found)

    def _take(self, found: Mapping[str, str]) -> None:
        self.url = (self._url or found.get("url") or DEFAULT_URL).rstrip("/")
        self.token = self._token.strip()
        # Never send the token of this machine's server to another one.
        if self._takes_token_of_file and found and _is_same(self.url, found.get("url", "")):
            self.token = found.get("token", "")


def proxy_to(url: str) -> str | None:
    """Return the proxy for this address from the environment. Loopback addresses never use one."""
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
    """Return the first `server.json` found, or an empty mapping if no server of this user runs here."""
    folders = [Path("var"), Path(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")) / "taskstore"]
    if configured := os.environ.get("TASKSTORE_DATA"):
        folders = [Path(configured)]
    for folder in folders:
        try:
            found: Mapping[str, str] = json.loads((folder / "server.json").read_bytes())
        except (OSError, ValueError):
            continue
        return found
    return {}


TIMEOUT_S, PATIENCE_S = 30.0, 60.0
# No limit on connections: each thread of a worker may wait for a task.
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30)


class BaseClient:
    """A client of the task store at `url`. It may be shared between threads and used after a fork.

    `url` and `token` default to TASKSTORE_URL and TASKSTORE_TOKEN, else to the server that runs on this machine.
    `client_id`: the owner of the tasks it claims; by default a random number, another one in each process.
    `timeout_s`: how long one attempt waits for a response to begin. `patience_s`: how long a call is retried when
    the connection fails or the server is unavailable. Methods raise errors of `taskstore.TaskStoreError`.
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
        # By process id: if a child used its parent's connections, they would read each other's responses.
        self._connections: dict[int, Any] = {}

    @property
    def id(self) -> int:
        """The client id, which becomes the owner of claimed tasks."""
        return id_of_this_process() if self._client_id is None else self._client_id

    @property
    def url(self) -> str:
        """The server's address, without a trailing slash."""
        return self._access.url

    @property
    def _connecting(self) -> dict[str, Any]:
        return {
            "limits": LIMITS,
            "proxy": proxy_to(self._access.url),
            # Loading the root certificates is slow, and not needed without TLS.
            "verify": self._access.url.startswith("https:"),
        }


T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0
LONGEST_CONNECT_S = 10.0
DOUBT_S = 3.0
JITTER = secrets.SystemRandom()


@dataclass(frozen=True, slots=True)
class Pause:
    """Ask the sender to sleep before it continues."""

    seconds: float


Happened = httpx.Response | httpx.TransportError
# Yields requests to send, and receives what happened to each.
Conversation = Generator[httpx.Request | Pause, Any, httpx.Response]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long one attempt waits for the response to begin, and how long a call is retried."""

    timeout_s: float
    patience_s: float
    longest_pause_s: float = LONGEST_PAUSE_S  # Unless the server asks for more.


class Pauses:
    """Exponential backoff with jitter between the attempts of one call."""

    def __init__(self, patience: Patience) -> None:
        self._until_s = time.monotonic() + patience.patience_s
        self._longest_s, self._most_s = FIRST_PAUSE_S, patience.longest_pause_s

    def next_s(self, problem: Problem) -> float | None:
        """Return how long to pause before the next attempt; None: don't try again."""
        pause_s = max(problem.least_pause_s, self._longest_s * JITTER.uniform(0.5, 1))
        self._longest_s = min(self._most_s, self._longest_s * 2)
        is_over = time.monotonic() + pause_s > self._until_s
        return None if is_over or not problem.may_pass else pause_s


def conversation(call: Call[Any], access: Access, patience: Patience) -> Conversation:
    """Yield requests and pauses until a response is successful, and return it. Raises a TaskStoreError otherwise."""
    pauses, content = Pauses(patience), call.content
    token, may_have_happened, is_doubted = access.token, False, False
    while True:
        if may_have_happened and access.token != token:
            # Idempotency keys belong to a token: under a new one the server would apply the call again.
            raise errors.CommitUnknown("the server restarted during the request")
        url, token = access.url, access.token
        timeout_s = patience.timeout_s
        timeout = httpx.Timeout(timeout_s + call.wait_ms / 1000, connect=min(timeout_s, LONGEST_CONNECT_S), pool=None)
        headers = {"User-Agent": "taskstore"}
        if content is not None:
            headers["Content-Type"] = "application/json"
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if call.key:
            headers["Idempotency-Key"] = call.key
        happened: Happened = yield httpx.Request(
            call.method,
            _address(url + call.path),
            params=call.query or None,
            content=content,
            headers=headers,
            extensions={"timeout": timeout.as_dict()},
        )
        problem = problem_of(call, happened)
        if problem is None:
            access.accepted = token
            return happened  # type: ignore[return-value]  # Without a problem it is a response.
        may_have_happened |= call.is_at_stake and problem.may_have_happened
        if problem.is_of_access:
            access.refresh()
            if (access.url, access.token) != (url, token):  # Refreshed here, or by another thread.
                continue
            if token and access.accepted == token and not (problem.may_pass or is_doubted):
                log.warning("the server refuses the token that it has accepted before; asking again in %g s", DOUBT_S)
                is_doubted = True
                yield Pause(DOUBT_S)
                continue
            if not problem.may_pass:
                access.accepted = ""
        is_over = call.once and may_have_happened
        if is_over or (pause_s := pauses.next_s(problem)) is None:
            if may_have_happened:
                raise errors.CommitUnknown(f"it is unknown whether the request was carried out: {problem.error}")
            raise problem.error
        yield Pause(pause_s)


def read(call: Call[T], answer: httpx.Response) -> T:
    """Parse the result of a call. Raises CommitRefused, or UnexpectedAnswer if the response can't be parsed."""
    if answer.status_code == httpx.codes.NOT_FOUND:
        return None  # type: ignore[return-value]
    try:
        return call.read(answer.content)
    except (ValueError, KeyError, TypeError) as problem:
        raise UnexpectedAnswer(f"{call.method} {call.path} had an unexpected response: {problem!r}") from problem


@lru_cache(100)
def _address(url: str) -> httpx.URL:
    return httpx.URL(url)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A failed attempt. `error` is raised if the call is not retried or no retry succeeds."""

    error: errors.TaskStoreError
    may_pass: bool = False
    may_have_happened: bool = False
    is_of_access: bool = False  # A new address or token may help at once.
    least_pause_s: float = 0


def problem_of(call: Call[Any], happened: httpx.Response | httpx.TransportError) -> Problem | None:
    """Return why the attempt failed; None if it succeeded."""
    if isinstance(happened, NEVER_SENT):
        return Problem(error=errors.InvalidInput({"request": [_why(happened)]}))
    if isinstance(happened, NOT_SENT):
        error = errors.StoreUnavailable(f"the server can't be reached: {_why(happened)}")
        return Problem(error=error, may_pass=True, is_of_access=True)
    if isinstance(happened, httpx.TransportError):
        error = errors.StoreUnavailable(f"the connection broke: {_why(happened)}")
        return Problem(error=error, may_pass=True, may_have_happened=True)
    if happened.is_success or (call.may_be_missing and happened.status_code == 404 and _detail(happened)):
        return None
    return _of_answer(call, happened)


def _why(broken: httpx.TransportError) -> str:
    return str(broken) or type(broken).__name__


def _of_answer(call: Call[Any], answer: httpx.Response) -> Problem:
    detail = _detail(answer) or _shown(call, answer)
    match answer.status_code:
        case 400:
            return Problem(error=errors.InvalidInput(_fields(call, answer, detail)))
        case 401:
            return Problem(error=NotAllowed(detail), is_of_access=True)
        case 403:
            return Problem(error=NotAllowed(detail))
        case 404:
            return Problem(error=NotFound(detail))
        case 409:
            conflicts = {each.code: each for each in (errors.JobUnfinished, errors.NotHeld)}
            return Problem(error=conflicts.get(_members(answer).get("code", ""), errors.KeyReused)(detail))
        case 413:
            return Problem(error=errors.LimitExceeded(_fields(call, answer, detail)))
        case 429:
            pause_s = _retry_after_s(answer)
            return Problem(error=TooOften(detail, pause_s), may_pass=True, least_pause_s=pause_s)
        case 503:
            error = BY_CODE.get(_members(answer).get("code", ""), errors.StoreUnavailable)(detail)
            is_unknown = isinstance(error, errors.CommitUnknown)
            pause_s = _retry_after_s(answer)
            return Problem(error=error, may_pass=True, may_have_happened=is_unknown, least_pause_s=pause_s)
    if answer.status_code in BROKEN_BEHIND:
        return Problem(error=errors.StoreUnavailable(detail), may_pass=True, may_have_happened=True)
    return Problem(error=UnexpectedAnswer(_shown(call, answer)))


def _members(answer: httpx.Response) -> Mapping[str, Any]:
    try:
        tree = json.loads(answer.content)
    except ValueError:
        return {}
    return tree if isinstance(tree, dict) else {}


def _detail(answer: httpx.Response) -> str:
    return str(_members(answer).get("detail", ""))


def _fields(call: Call[Any], answer: httpx.Response, detail: str) -> Mapping[str, list[str]]:
    fields: Mapping[str, list[str]] = _members(answer).get("errors") or {"request": [detail]}
    paths = [path.partition(".") for path in fields]
    return {call.renamed.get(item, item) + dot + name: fields[item + dot + name] for item, dot, name in paths}


def _shown(call: Call[Any], answer: httpx.Response) -> str:
    return f"{call.method} {call.path} failed with status {answer.status_code}: {answer.text[:SHOWN]}"


def _retry_after_s(answer: httpx.Response) -> float:
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0  # Proxies may send a date.
