"""The part of a Client that a worker needs, as a protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..types.tasks import Change, NewTask, Order

if TYPE_CHECKING:
    from ..types.history import History
    from ..types.tasks import Cancelled, Task


class ClientStatus(Protocol):
    """The last heartbeat of a worker."""

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


class Found(Protocol):
    @property
    def tasks(self) -> Sequence[Task]: ...
    @property
    def after(self) -> str | None:
        """Where the search goes on; None: at its end."""
        ...


class Store(Protocol):
    """The methods of a Client that a worker calls, from several threads."""

    @property
    def id(self) -> int:
        """The client id with which it claims and commits."""
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
        key: str = "",
    ) -> list[Task]:
        """Return the new tasks: adds, then updates. Raises CommitRefused."""
        ...

    def cancelled(self, *, after: str = "", wait_ms: int = 0) -> Cancelled: ...

    def history(self, id: int) -> History | None: ...

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

    def report_progress(self, id: int, done: float, text: str = "") -> object: ...

    def clients(self) -> Sequence[ClientStatus]: ...

    def search(self, query: str = "", *, limit: int = 50, after: str | None = None) -> Found: ...
