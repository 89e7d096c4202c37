"""This store, over HTTP."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import count
from typing import Any

import orjson

from .. import CannotMeasure
from ..load import DATA, GROUP, LEASE_MS, Verb
from .http import Connection
from .store import ADDER, StoreClient

TASK = {"group": GROUP, "data": DATA.decode()}


class RestClient(StoreClient):
    """A connection for each client."""

    connections: dict[int, Connection]

    def prepare(self) -> None:
        """Nothing: the server has made the tables."""

    async def open(self, owners: Sequence[int]) -> None:
        self._numbers = count()
        self.connections = getattr(self, "connections", {})
        for owner in owners:
            self.connections[owner] = await Connection.open(*self._address(owner))

    async def close(self) -> None:
        for connection in self.connections.values():
            connection.close()

    async def claim(self, owner: int, wait_ms: int = 0) -> Sequence[int]:
        asked: dict[str, Any] = {"clientid": owner, "group": GROUP, "duration": LEASE_MS}
        if self.load.batch > 1:
            asked["limit"] = self.load.batch
        if wait_ms:
            asked["wait"] = wait_ms
        return [task["id"] for task in await self._post(owner, b"/claim", asked)]

    async def finish(self, owner: int, tasks: Sequence[int]) -> None:
        adds = {"adds": [TASK] * len(tasks)} if self.load.verb is Verb.REPLACE else {}
        await self._post(owner, b"/update", {"clientid": owner, "deletes": tasks, **adds})

    async def put(self, tasks: int) -> None:
        await self._post(ADDER, b"/update", {"clientid": ADDER, "adds": [TASK] * tasks})

    async def _post(self, owner: int, path: bytes, asked: dict[str, Any]) -> Any:
        answer = orjson.loads(await self.connections[owner].post(path, orjson.dumps(asked), self._key()))
        if answer["error"]:
            raise CannotMeasure(f"the server refused: {answer['error']}")
        return answer["tasks"]

    def _key(self) -> bytes:
        return f"{os.getpid()}-{next(self._numbers)}".encode() if self.load.with_keys else b""

    def _address(self, owner: int) -> tuple[str, str]:
        # Where there are two servers, tasks come in by the one and are claimed from the other.
        server = self.where["servers"][-1 if owner == ADDER else 0]
        return server["url"], server["token"]
