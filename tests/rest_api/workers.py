"""Workers that ask a server at the same time."""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import httpx

from tasks_app.writer.writer import running

PATIENCE_S = 30
LONG_MS = 60_000  # A claim that waits as long as this and ends in the test was woken.

# Nobody needs it here, but each client would make one, which takes longer than to answer it.
TLS = ssl.create_default_context()

Answer = tuple[int, Any]


class Worker:
    """A client with a token. Each of its requests has a connection of its own."""

    def __init__(self, url: str, secret: str) -> None:
        self._url = url
        self._headers = {"authorization": f"Bearer {secret}"}

    async def post(self, path: str, body: Any, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self._ask("POST", path, json=body, headers=self._headers | named)

    async def get(self, path: str) -> Answer:
        return await self._ask("GET", path, headers=self._headers)

    async def _ask(self, method: str, path: str, **sent: Any) -> Answer:
        async with httpx.AsyncClient(base_url=self._url, verify=TLS, trust_env=False) as http:
            response = await http.request(method, path, timeout=PATIENCE_S, **sent)
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


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on an event loop of its own."""

    @functools.wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **fixtures), PATIENCE_S))

    return run


async def until_waiting(count: int) -> None:
    """Return when so many claims wait."""
    writer = running("default")
    assert writer
    while writer.waiting != count:  # noqa: ASYNC110 - it tells nobody when that changes.
        await asyncio.sleep(0.001)
