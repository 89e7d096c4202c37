"""Clients that do as a scene tells them, and note it as all clients do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .client import HELD, Client, Orders
from .processes import StoreServer
from .stage import Stage

Task = dict[str, Any]


class Worker(Client):
    """Does what it is told, and notes it as all clients do."""

    def claimed(self, limit: int, duration_ms: int, wait_ms: int = 0) -> list[Task]:
        asked = {"group": HELD, "duration": duration_ms, "limit": limit, "order": "oldest", "wait": wait_ms}
        answer = self.post("/claim", **asked)
        return answer["tasks"] if answer else []

    def committed(self, **asked: Any) -> dict[str, Any]:
        return self.post("/update", **asked) or {}


def worker(stage: Stage, server: StoreServer, number: int) -> Worker:
    orders = Orders(
        addresses=[server.address],
        token=stage.token,
        number=number,
        file=str(stage.folder / f"client-{number}.jsonl"),
        seed=stage.seed,
    )
    return Worker(orders, Path(orders.file).open("w", buffering=1))
