"""An API call as a value, the request and the parser of its response, which both clients send as methods."""

from __future__ import annotations

import json
import secrets
import time
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from msgspec import NODEFAULT, Struct, structs
from msgspec.json import Decoder

from ..endpoints import Endpoint, Repeat
from ..errors import refuse
from ..types.checks import Walk
from ..types.requests import Asked, CancelledRequest, ClaimRequest, WithData
from ..types.scalars import MOST_WAIT_MS

if TYPE_CHECKING:
    from .client import AsyncClient, Client

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request without the server's address. T is the type of its result."""

    row: Endpoint[..., Any, Any]
    asked: Asked
    read: Callable[[bytes], T]  # Parses the body of a successful response.
    lines: bytes | None = None  # The body, if it is NDJSON.
    key: str = ""  # The idempotency key: the server applies the call once, however often it is sent.
    may_happen_twice: bool = False  # Harmless: tasks claimed twice return when their lease ends.
    may_be_missing: bool = False  # The result of a 404 is None.
    renamed: Mapping[str, str] = field(default_factory=dict)  # Paths in the body to the caller's names for them.
    wait_ms: int = 0  # How long the server may hold the call, or a series of such calls.

    @overload
    @staticmethod
    def of(
        row: Endpoint[..., Any, Any], asked: Asked, *, read: Callable[[bytes], U], key: str = ..., **more: Any
    ) -> Call[U]: ...

    @overload
    @staticmethod
    def of(row: Endpoint[..., Any, U], asked: Asked, *, key: str = ..., **more: Any) -> Call[U]: ...

    @staticmethod
    def of(
        row: Endpoint[..., Any, Any],
        asked: Asked,
        *,
        read: Callable[[bytes], Any] | None = None,
        key: str = "",
        **more: Any,
    ) -> Call[Any]:
        """Return a call of this endpoint. Raises InvalidInput for what would be the path of something else.

        `read`: the parser of the response, by default that of the endpoint's answer type. `more`: other fields of Call.
        """
        walk = Walk()
        for name in row.in_path:
            walk.along(getattr(asked, name), row.fields[name].type, name)
        refuse(walk.problems)
        read = read or (bytes if row.answer is bytes else decoder(row.answer))
        key = key or (new_key() if row.repeat is Repeat.BY_KEY else "")
        return Call(row=row, asked=asked, read=read, key=key, **more)

    @property
    def method(self) -> str:
        return self.row.method

    @property
    def path(self) -> str:
        return self.row.path_of(self.asked)

    @property
    def query(self) -> Mapping[str, Any]:
        """The parameters of the query; a list repeats the parameter."""
        given = members_of(self.asked) if self.row.in_query else {}
        return {name: value for name, value in given.items() if name in self.row.in_query}

    @property
    def once(self) -> bool:
        """Whether not to send it again if it may have happened."""
        return self.row.repeat is Repeat.NEVER

    @property
    def is_at_stake(self) -> bool:
        """Whether the caller must know if the call took effect when no response came."""
        return self.row.repeat is not Repeat.SAFE and not self.may_happen_twice

    @property
    def content(self) -> bytes | None:
        """The body. Raises TypeError for a value that JSON can't represent."""
        if self.lines is not None or not self.row.in_body:
            return self.lines
        if not self.row.in_path:
            return encoded(self.asked)
        return encoded({name: value for name, value in members_of(self.asked).items() if name in self.row.in_body})

    def turns(self) -> Iterator[Call[T]]:
        """Split a call that waits longer than the server allows into several. The caller stops at the first result."""
        until_s = time.monotonic() + self.wait_ms / 1000
        left_ms = self.wait_ms
        while True:
            if left_ms == 0:
                yield self
            else:
                wait_ms = min(left_ms, MOST_WAIT_MS)
                assert isinstance(self.asked, ClaimRequest | CancelledRequest)  # noqa: S101 - No other call waits.
                asked = structs.replace(self.asked, wait=wait_ms)
                yield replace(self, asked=asked, key=new_key(), wait_ms=wait_ms)
            left_ms = int((until_s - time.monotonic()) * 1000)
            if left_ms <= 0:
                return


def new_key() -> str:
    return secrets.token_hex(16)


def encoded(body: Asked | Mapping[str, Any]) -> bytes:
    """Return the body as JSON. Raises TypeError for a value that JSON can't represent."""
    # msgspec's own encoder rejects integers beyond 64 bits, and turns NaN into null, bytes into text.
    try:
        return json.dumps(body, default=members_of, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # A lone surrogate: escape it, so that the server can name its field.
        return json.dumps(body, default=members_of).encode()


def members_of(value: object) -> dict[str, Any]:
    """Return the members of a part of a request, without those that have their default."""
    if not isinstance(value, Struct):
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    members = {
        name: given
        for (name, default, made), given in zip(_defaults(type(value)), structs.astuple(value), strict=True)
        if given is not default and given != made
    }
    if isinstance(value, WithData) and value.data_base64 is not None:
        members["data_base64"] = b64encode(value.data_base64).decode()
    return members


@cache
def _defaults(kind: type[Struct]) -> Sequence[tuple[str, Any, Any]]:
    """Return the name of each member, its default, and what is made anew where that is a list or an object.

    An older server does not know a newer member, and refuses one that has nothing in it, too.
    """
    return [
        (each.encode_name, each.default, None if each.default_factory is NODEFAULT else each.default_factory())
        for each in structs.fields(kind)
    ]


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    """Return a parser of JSON into this type. It ignores unknown members."""
    return Decoder(kind).decode


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


def calls(describe: Callable[Concatenate[Any, P], Call[T]]) -> Verb[P, T]:
    """Make a method that sends the described call and returns its result, as a coroutine where the client does."""

    @wraps(describe)
    def send(sender: Client | Part, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return sender.send(describe(sender, *args, **kwargs))

    described = signature(describe)
    # What `help` shows: the method returns the result of the call, not the call.
    returned = str(described.return_annotation).removeprefix("Call[").removesuffix("]")
    send.__signature__ = described.replace(return_annotation=returned)  # type: ignore[attr-defined]
    return cast("Verb[P, T]", send)


def verb(row: Endpoint[P, Any, T]) -> Verb[P, T]:
    """Make the method that calls an endpoint: it takes the fields of the request, and returns the answer."""
    return asking(row, row.asks)


def verb_or_none(row: Endpoint[P, Any, T]) -> Verb[P, T | None]:
    """The same, but what does not exist is None."""
    return asking(row, row.asks, may_be_missing=True)


def asking(row: Endpoint[..., Any, T], asks: Callable[P, Asked], **more: Any) -> Verb[P, T]:
    """Make the method that calls an endpoint with a request of this type."""

    def send(sender: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return sender.send(Call.of(row, asks(*args, **kwargs), **more))

    send.__name__, send.__doc__ = row.name, row.says
    fields = [each.replace(annotation=Parameter.empty) for each in signature(asks).parameters.values()]
    sender = Parameter("self", Parameter.POSITIONAL_ONLY)
    send.__signature__ = signature(send).replace(parameters=[sender, *fields])  # type: ignore[attr-defined]
    return cast("Verb[P, T]", send)
