"""A call of the API as a value: what is sent, and how the answer is read. `Client` and `AsyncClient` both send it."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, overload

from msgspec.json import Decoder

from ..endpoints import Endpoint

T = TypeVar("T")
U = TypeVar("U")

NOTHING: Mapping[str, Any] = {}

MOST_WAIT_MS = 60_000  # What the server holds a claim for at most.


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """Everything about one request but where the server is. T: what comes of it."""

    method: str
    path: str
    read: Callable[[bytes], T]  # The body of an answer that went well.
    query: Mapping[str, Any] = field(default_factory=dict)  # Lists stand for several of the name.
    body: Mapping[str, Any] | bytes | None = None
    key: str = ""  # The idempotency key: the server does it once, however often it is sent.
    once: bool = False  # It must not be sent again when it may have happened.
    may_happen_twice: bool = False  # It harms nobody: what a claim took comes back when its lease ends.
    may_be_missing: bool = False  # 404 is an answer: None.
    renamed: Mapping[str, str] = field(default_factory=dict)  # Items of the body, by what the caller calls them.
    wait_ms: int = 0  # How long the server may hold it, or several such calls one after the other.

    @overload
    @staticmethod
    def of(
        endpoint: Endpoint[Any], *, read: Callable[[bytes], U], path: Mapping[str, str | int] = ..., **more: Any
    ) -> Call[U]: ...

    @overload
    @staticmethod
    def of(endpoint: Endpoint[U], *, path: Mapping[str, str | int] = ..., **more: Any) -> Call[U]: ...

    @staticmethod
    def of(
        endpoint: Endpoint[Any],
        *,
        read: Callable[[bytes], Any] | None = None,
        path: Mapping[str, str | int] = NOTHING,
        **more: Any,
    ) -> Call[Any]:
        """Return a call of this endpoint. `path`: values for its parameters; `more`: what else a call has.

        `read`: how to read the answer, if not as the type that the endpoint says.
        """
        read = read or (bytes if endpoint.answer is bytes else decoder(endpoint.answer))
        return Call(method=endpoint.method, path=endpoint.path_with(path), read=read, **more)

    @property
    def is_at_stake(self) -> bool:
        """Whether it matters if it happened when no answer came."""
        return (bool(self.key) or self.once) and not self.may_happen_twice

    @property
    def content(self) -> bytes | None:
        return self.body if self.body is None or isinstance(self.body, bytes) else encoded(self.body)

    def turns(self) -> Iterator[Call[T]]:
        """The calls that make up one that waits longer than the server does: until one is answered with something."""
        until_s = time.monotonic() + self.wait_ms / 1000
        left_ms = self.wait_ms
        while True:
            yield self if left_ms == 0 else self._waiting(min(left_ms, MOST_WAIT_MS))
            left_ms = int((until_s - time.monotonic()) * 1000)
            if left_ms <= 0:
                return

    def _waiting(self, wait_ms: int) -> Call[T]:
        body = {**self.body, "wait": wait_ms} if isinstance(self.body, Mapping) else self.body
        return replace(self, body=body, key=new_key(), wait_ms=wait_ms)


def new_key() -> str:
    return secrets.token_hex(16)


def encoded(body: Mapping[str, Any]) -> bytes:
    """As JSON. Raises TypeError when there is something in it that JSON does not have."""
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # Lone surrogates: the server names the field that they are in.
        return json.dumps(body).encode()


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    """Return what reads a JSON answer as this type. Members that the type does not know are left out."""
    return Decoder(kind).decode


def given(**values: Any) -> dict[str, Any]:
    """Those that are not None."""
    return {name: value for name, value in values.items() if value is not None}
