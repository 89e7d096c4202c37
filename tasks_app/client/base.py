"""What both clients are: an address, a token, a name, and patience."""

from __future__ import annotations

from typing import Any

import httpx

from . import identity
from .access import Access, proxy_to
from .sending import Patience

TIMEOUT_S, PATIENCE_S = 30.0, 60.0
# Each thread of a worker may wait for a task.
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30)


class BaseClient:
    """The store at an address. Threads may share a client, and so may processes that fork.

    `url` and `token`: see `access`. `client_id`: in whose name tasks are claimed; by default a number of this
    process, and another one in each child. A call that goes wrong on the way, or that the server can't answer now,
    is tried again for `patience_s`; each try has `timeout_s` for its answer to begin.
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
        # By the number of the process: on those of its parent both would read each other's answers.
        self._connections: dict[int, Any] = {}

    @property
    def id(self) -> int:
        """In whose name tasks are claimed and committed."""
        return identity.of_this_process() if self._client_id is None else self._client_id

    @property
    def url(self) -> str:
        return self._access.url

    @property
    def _connecting(self) -> dict[str, Any]:
        """How the connections are made."""
        return {
            "limits": LIMITS,
            "proxy": proxy_to(self._access.url),
            # Without TLS there is no use in loading the certificates of the world, which takes a while.
            "verify": self._access.url.startswith("https:"),
        }
