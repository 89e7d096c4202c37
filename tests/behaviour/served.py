"""A server without a socket: its event loop in a thread of its own, its writer, and its application."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

import httpx
from asgiref.sync import sync_to_async
from django.db import connections

from tasks_app.writer import Writer
from taskstore_project.asgi import application

T = TypeVar("T")

PATIENCE_S = 60


class Served:
    """While it is entered, the writer of this process runs, and every verb goes through it."""

    def __enter__(self) -> Self:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="server")
        self.thread.start()
        self.run(self._begin())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """What comes of it on the server's loop."""
        return self.start(coroutine).result(PATIENCE_S)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def request(self, method: str, path: str, **asked: Any) -> httpx.Response:
        return self.run(self.client.request(method, path, **asked))

    async def _begin(self) -> None:
        self.writer = Writer.start()
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://localhost")

    async def _end(self) -> None:
        await self.client.aclose()
        await self.writer.stop()
        # The thread in which the loop looks up tokens keeps its connection.
        await sync_to_async(connections.close_all)()
        await self.loop.shutdown_default_executor()
