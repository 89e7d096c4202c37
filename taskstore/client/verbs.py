"""Turn the description of a call into a method of a client, sync or async."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import wraps
from inspect import Signature, signature
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from .calls import Call

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C")  # The class that describes the calls of a client or of a part of it.
C_co = TypeVar("C_co", covariant=True)


class Sender(Protocol[C_co]):
    @property
    def calls(self) -> C_co: ...

    def send(self, call: Call[T]) -> T: ...

    def pieces(self, call: Call[Any]) -> Iterator[bytes]: ...


class AsyncSender(Protocol[C_co]):
    @property
    def calls(self) -> C_co: ...

    async def send(self, call: Call[T]) -> T: ...

    def pieces(self, call: Call[Any]) -> AsyncGenerator[bytes, None]: ...


class Part(Generic[C]):
    """A part of a client's methods, such as `client.jobs`."""

    def __init__(self, client: Sender[Any], calls: C) -> None:
        self.client = client
        self.calls = calls

    def send(self, call: Call[T]) -> T:
        return self.client.send(call)

    def pieces(self, call: Call[Any]) -> Iterator[bytes]:
        return self.client.pieces(call)


class AsyncPart(Generic[C]):
    """A part of an async client's methods."""

    def __init__(self, client: AsyncSender[Any], calls: C) -> None:
        self.client = client
        self.calls = calls

    async def send(self, call: Call[T]) -> T:
        return await self.client.send(call)

    def pieces(self, call: Call[Any]) -> AsyncGenerator[bytes, None]:
        return self.client.pieces(call)


def verb(describe: Callable[Concatenate[C, P], Call[T]]) -> Callable[Concatenate[Sender[C], P], T]:
    """Return a method that sends the described call and returns its result."""

    @wraps(describe)
    def send(sender: Sender[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return sender.send(describe(sender.calls, *args, **kwargs))

    send.__signature__ = _signature(describe)  # type: ignore[attr-defined]
    return send


def async_verb(
    describe: Callable[Concatenate[C, P], Call[T]],
) -> Callable[Concatenate[AsyncSender[C], P], Coroutine[Any, Any, T]]:
    """Return a coroutine method that sends the described call and returns its result."""

    @wraps(describe)
    async def send(sender: AsyncSender[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await sender.send(describe(sender.calls, *args, **kwargs))

    send.__signature__ = _signature(describe)  # type: ignore[attr-defined]
    return send


def _signature(describe: Callable[..., Any]) -> Signature:
    """Return the signature that `help` shows: the method returns the result of the call, not the call."""
    described = signature(describe)
    returned = str(described.return_annotation).removeprefix("Call[").removesuffix("]")
    return described.replace(return_annotation=returned)
