"""Classify the failure of one attempt of a call, and whether to retry it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from ..errors import (
    CommitUnknown,
    InvalidInput,
    JobUnfinished,
    KeyReused,
    LimitExceeded,
    NotHeld,
    StoreBusy,
    StoreUnavailable,
    TaskStoreError,
)
from .calls import Call
from .errors import NotAllowed, NotFound, TooOften, UnexpectedAnswer

# The request was not sent.
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
# httpx rejects the request, and would again.
NEVER_SENT = (httpx.LocalProtocolError, httpx.UnsupportedProtocol)
# A proxy lost the server, maybe while it handled the request.
BROKEN_BEHIND = (502, 504)
SHOWN = 200  # Characters of an unexpected response.
BY_CODE = {kind.code: kind for kind in (StoreBusy, StoreUnavailable, CommitUnknown)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A failed attempt. `error` is raised if the call is not retried or no retry succeeds."""

    error: TaskStoreError
    may_pass: bool = False
    may_have_happened: bool = False
    is_of_access: bool = False  # A new address or token may help at once.
    least_pause_s: float = 0


def problem_of(call: Call[Any], happened: httpx.Response | httpx.TransportError) -> Problem | None:
    """Return why the attempt failed; None if it succeeded."""
    if isinstance(happened, NEVER_SENT):
        return Problem(error=InvalidInput({"request": [_why(happened)]}))
    if isinstance(happened, NOT_SENT):
        error = StoreUnavailable(f"the server can't be reached: {_why(happened)}")
        return Problem(error=error, may_pass=True, is_of_access=True)
    if isinstance(happened, httpx.TransportError):
        error = StoreUnavailable(f"the connection broke: {_why(happened)}")
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
            return Problem(error=InvalidInput(_fields(call, answer, detail)))
        case 401:
            return Problem(error=NotAllowed(detail), is_of_access=True)
        case 403:
            return Problem(error=NotAllowed(detail))
        case 404:
            return Problem(error=NotFound(detail))
        case 409:
            conflicts = {each.code: each for each in (JobUnfinished, NotHeld)}
            return Problem(error=conflicts.get(_members(answer).get("code", ""), KeyReused)(detail))
        case 413:
            return Problem(error=LimitExceeded(_fields(call, answer, detail)))
        case 429:
            pause_s = _retry_after_s(answer)
            return Problem(error=TooOften(detail, pause_s), may_pass=True, least_pause_s=pause_s)
        case 503:
            error = BY_CODE.get(_members(answer).get("code", ""), StoreUnavailable)(detail)
            is_unknown = isinstance(error, CommitUnknown)
            pause_s = _retry_after_s(answer)
            return Problem(error=error, may_pass=True, may_have_happened=is_unknown, least_pause_s=pause_s)
    if answer.status_code in BROKEN_BEHIND:
        return Problem(error=StoreUnavailable(detail), may_pass=True, may_have_happened=True)
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
