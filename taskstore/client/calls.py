"""An API call as a value, the request and the parser of its response, which both clients send as methods."""

from __future__ import annotations

import json
import secrets
import time
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from msgspec import UNSET, structs
from msgspec.json import Decoder

from ..endpoints import Endpoint
from ..types.requests import Asked, ClaimRequest, WithData
from ..types.scalars import MOST_WAIT_MS

if TYPE_CHECKING:
    from .client import AsyncClient, Client

T = TypeVar("T")
U = TypeVar("U")

NOTHING: Mapping[str, Any] = {}


P = ParamSpec("P")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request without the server's address. T is the type of its result."""

    method: str
    path: str
    read: Callable[[bytes], T]  # Parses the body of a successful response.
    query: Mapping[str, Any] = field(default_factory=dict)  # A list repeats the parameter.
    body: Asked | bytes | None = None
    key: str = ""  # The idempotency key: the server applies the call once, however often it is sent.
    once: bool = False  # Don't send it again if it may have happened.
    may_happen_twice: bool = False  # Harmless: tasks claimed twice return when their lease ends.
    may_be_missing: bool = False  # The result of a 404 is None.
    renamed: Mapping[str, str] = field(default_factory=dict)  # Paths in the body to the caller's names for them.
    wait_ms: int = 0  # How long the server may hold the call, or a series of such calls.

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
        """Return a call of this endpoint.

        `read`: the parser of the response, by default that of the endpoint's answer type. `path`: the values of the
        path parameters. `more`: other fields of Call.
        """
        read = read or (bytes if endpoint.answer is bytes else decoder(endpoint.answer))
        return Call(method=endpoint.method, path=endpoint.path_with(path), read=read, **more)

    @property
    def is_at_stake(self) -> bool:
        """Whether the caller must know if the call took effect when no response came."""
        return (bool(self.key) or self.once) and not self.may_happen_twice

    @property
    def content(self) -> bytes | None:
        return self.body if self.body is None or isinstance(self.body, bytes) else encoded(self.body)

    def turns(self) -> Iterator[Call[T]]:
        """Split a call that waits longer than the server allows into several. The caller stops at the first result."""
        until_s = time.monotonic() + self.wait_ms / 1000
        left_ms = self.wait_ms
        while True:
            if left_ms == 0:
                yield self
            else:
                wait_ms = min(left_ms, MOST_WAIT_MS)
                assert isinstance(self.body, ClaimRequest)  # noqa: S101 - No other call waits.
                body = structs.replace(self.body, wait=wait_ms)
                yield replace(self, body=body, key=new_key(), wait_ms=wait_ms)
            left_ms = int((until_s - time.monotonic()) * 1000)
            if left_ms <= 0:
                return


def new_key() -> str:
    return secrets.token_hex(16)


def encoded(body: Asked) -> bytes:
    """Return the body as JSON. Raises TypeError for a value that JSON can't represent."""
    # msgspec's own encoder rejects integers beyond 64 bits, and turns NaN into null, bytes into text.
    try:
        return json.dumps(body, default=_members, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # A lone surrogate: escape it, so that the server can name its field.
        return json.dumps(body, default=_members).encode()


def _members(value: object) -> dict[str, Any]:
    """Return the members of a part of a request, without those that have their default."""
    if not isinstance(value, Asked):
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    defaults = _defaults(type(value))
    members = {
        name: given for name, given in zip(defaults, structs.astuple(value), strict=True) if given is not defaults[name]
    }
    if isinstance(value, WithData) and value.data_base64 is not UNSET:
        members["data_base64"] = b64encode(value.data_base64).decode()
    return members


@cache
def _defaults(kind: type[Asked]) -> Mapping[str, Any]:
    return {each.encode_name: each.default for each in structs.fields(kind)}


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    """Return a parser of JSON into this type. It ignores unknown members."""
    return Decoder(kind).decode


def given(**values: Any) -> dict[str, Any]:
    """Return the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


class AnyPart:
    """A part of a client's methods, such as `client.jobs`."""

    def __init__(self, client: Any) -> None:
        self.client = client

    @property
    def id(self) -> int:
        """The client id."""
        own: int = self.client.id
        return own


class Part(AnyPart):
    client: Client

    def send(self, call: Call[T]) -> T:
        return self.client.send(call)


class AsyncPart(AnyPart):
    client: AsyncClient

    async def send(self, call: Call[T]) -> T:
        return await self.client.send(call)


class Verb(Protocol[P, T_co]):
    """A method of a client, or a coroutine method of an async one."""

    @overload
    def __get__(self, sender: None, kind: type[Any], /) -> Callable[Concatenate[Any, P], Any]: ...

    @overload
    def __get__(
        self, sender: AsyncClient | AsyncPart, kind: Any = ..., /
    ) -> Callable[P, Coroutine[Any, Any, T_co]]: ...

    @overload
    def __get__(self, sender: Client | Part, kind: Any = ..., /) -> Callable[P, T_co]: ...


def verb(describe: Callable[Concatenate[Any, P], Call[T]]) -> Verb[P, T]:
    """Make a method that sends the described call and returns its result, as a coroutine where the client does."""

    @wraps(describe)
    def send(sender: Client | Part, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return sender.send(describe(sender, *args, **kwargs))

    described = signature(describe)
    # What `help` shows: the method returns the result of the call, not the call.
    returned = str(described.return_annotation).removeprefix("Call[").removesuffix("]")
    send.__signature__ = described.replace(return_annotation=returned)  # type: ignore[attr-defined]
    return cast("Verb[P, T]", send)
