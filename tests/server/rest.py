"""The few requests over REST by which tests with a server look on."""

from __future__ import annotations

import secrets
from typing import Any, Self

import httpx

LEASE_MS = 3_000
Task = dict[str, Any]


class Rest:
    def __init__(self, url: str, token: str) -> None:
        self.client_id = secrets.randbits(48)
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=30, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def claim(self, group: str, limit: int) -> list[Task]:
        asked = {"clientid": self.client_id, "group": group, "duration": LEASE_MS, "limit": limit}
        tasks: list[Task] = self._ask("POST", "/claim", json=asked)["tasks"]
        return tasks

    def commit(self, **asked: Any) -> bool:
        """False: refused, because something of it is gone or another's."""
        return self._ask("POST", "/update", json={"clientid": self.client_id, **asked})["error"] is None

    def tasks(self, group: str) -> list[Task]:
        """The tasks of a group, also those that somebody holds."""
        tasks: list[Task] = self._ask("GET", "/group", params={"name": group, "owned": "yes"})
        return tasks

    def groups(self) -> list[str]:
        names: list[str] = self._ask("GET", "/groups")
        return names

    def _ask(self, method: str, path: str, **asked: Any) -> Any:
        return self._http.request(method, path, **asked).raise_for_status().json()
