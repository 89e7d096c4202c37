"""Workers that ask a server at the same time: the API on an event loop with a writer, without sockets."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
from asgiref.sync import async_to_sync
from django.core.asgi import get_asgi_application

from tasks_app.rest_api.hot_path import HotPath
from tasks_app.writer import Writer, running

PATIENCE_S = 30
LONG_MS = 60_000  # A claim that waits as long as this and ends in the test was woken.

Answer = tuple[int, Any]


class Worker:
    """A client with a token."""

    def __init__(self, secret: str) -> None:
        self._headers = {"authorization": f"Bearer {secret}", "host": "localhost"}

    async def post(self, path: str, body: Any, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        transport = httpx.ASGITransport(app=HotPath(get_asgi_application()))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            response = await http.post(path, json=body, headers=self._headers | named, timeout=PATIENCE_S)
        return response.status_code, response.json()

    async def add(self, group: str = "mail", **fields: Any) -> dict[str, Any]:
        status, answer = await self.post("/update", {"clientid": 1, "adds": [{"group": group, **fields}]})
        assert (status, answer["error"]) == (200, None)
        return dict(answer["tasks"][0])

    async def claim(self, group: str = "mail", **body: Any) -> Answer:
        named = {} if "groups" in body else {"group": group}
        return await self.post("/claim", {"clientid": 2, **named, **body})

    def begin_claim(self, group: str = "mail", **body: Any) -> asyncio.Task[Answer]:
        """A claim that is under way, and waits if it finds nothing."""
        return asyncio.create_task(self.claim(group, **{"wait": LONG_MS, **body}))


def with_writer(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on an event loop that has a writer, as a server has."""

    @functools.wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        async_to_sync(_between_start_and_stop)(test, *arguments, **fixtures)

    return run


async def _between_start_and_stop(test: Callable[..., Coroutine[Any, Any, None]], *arguments: Any, **fixtures: Any):
    writer = Writer.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await test(*arguments, **fixtures)
    finally:
        await writer.stop()


async def until_waiting(count: int) -> None:
    """Return when so many claims wait."""
    writer = running("default")
    assert writer
    while writer.waiting != count:  # noqa: ASYNC110 - it tells nobody when that changes.
        await asyncio.sleep(0.001)
