"""What a worker needs of the store. A Client is one, and so is whatever has the same verbs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..types.tasks import Change, NewTask, Order

if TYPE_CHECKING:
    from ..types.tasks import Task


class Heard(Protocol):
    """A client as the store last heard of it."""

    @property
    def client_id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def info(self) -> Mapping[str, Any]: ...
    @property
    def age_ms(self) -> int: ...


class Store(Protocol):
    """The verbs of a worker. They mean what they mean of a Client; threads may call them at the same time."""

    @property
    def id(self) -> int:
        """The number in whose name it claims and commits."""
        ...

    def claim(
        self,
        groups: str | Iterable[str],
        *,
        duration_ms: int = 60_000,
        limit: int = 1,
        wait_ms: int = 0,
        order: Order = Order.RANDOM,
        depends: Iterable[int] = (),
    ) -> list[Task]: ...

    def commit(
        self,
        *,
        adds: Iterable[NewTask] = (),
        updates: Iterable[Change] = (),
        deletes: Iterable[int] = (),
        depends: Iterable[int] = (),
        client_id: int | None = None,
    ) -> list[Task]:
        """The new tasks: adds first, then updates. Raises CommitRefused."""
        ...

    def tasks(self, ids: Iterable[int]) -> list[Task | None]: ...

    def heartbeat(
        self,
        *,
        name: str = "",
        host: str = "",
        pid: int | None = None,
        groups: Iterable[str] = (),
        version: str = "",
        info: Mapping[str, Any] | None = None,
    ) -> object: ...

    def clients(self) -> Sequence[Heard]: ...
