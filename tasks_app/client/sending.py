"""How a call is brought to its end over connections that break: tried again for as long as that is safe and allowed.

The rules are a generator that is told what happened and says what to do next, so that they are the same with and
without asyncio. A call with an idempotency key is done once, however often it is sent.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import httpx

from ..errors import CommitUnknown, TaskStoreError
from .access import Access
from .calls import Call
from .errors import UnexpectedAnswer
from .problems import Problem, problem_of

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
            raise CommitUnknown("the server was started anew while it was at it")
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
        raise UnexpectedAnswer(f"{call.method} {call.path} was answered with something else: {problem!r}") from problem


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
    return CommitUnknown(f"nobody knows whether it happened: {error}")
