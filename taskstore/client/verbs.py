"""Every call there is, and how a client comes to have it as a method."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import wraps
from inspect import Signature, signature
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from .calls import Call
from .operating import Operating
from .reading import Looking
from .working import Working

P = ParamSpec("P")
T = TypeVar("T")


class Calls(Working, Looking, Operating):
    """Every call there is, in the name of a client."""

    __slots__ = ()


class Sender(Protocol):
    @property
    def id(self) -> int: ...

    def send(self, call: Call[T]) -> T: ...

    def pieces(self, call: Call[Any]) -> Iterator[bytes]: ...


class AsyncSender(Protocol):
    @property
    def id(self) -> int: ...

    async def send(self, call: Call[T]) -> T: ...

    def pieces(self, call: Call[Any]) -> AsyncGenerator[bytes, None]: ...


def verb(describe: Callable[Concatenate[Calls, P], Call[T]]) -> Callable[Concatenate[Sender, P], T]:
    """The method that sends what is described and returns what comes of it."""

    @wraps(describe)
    def send(client: Sender, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client.send(describe(Calls(client.id), *args, **kwargs))

    send.__signature__ = _signature(describe)  # type: ignore[attr-defined]
    return send


def async_verb(
    describe: Callable[Concatenate[Calls, P], Call[T]],
) -> Callable[Concatenate[AsyncSender, P], Coroutine[Any, Any, T]]:
    """The same for a client that is awaited."""

    @wraps(describe)
    async def send(client: AsyncSender, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await client.send(describe(Calls(client.id), *args, **kwargs))

    send.__signature__ = _signature(describe)  # type: ignore[attr-defined]
    return send


def _signature(describe: Callable[..., Any]) -> Signature:
    """What `help` shows: the verb answers with what comes of the call."""
    described = signature(describe)
    returned = str(described.return_annotation).removeprefix("Call[").removesuffix("]")
    return described.replace(return_annotation=returned)
