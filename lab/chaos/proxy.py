"""A TCP proxy between clients and a server that cuts connections, swallows answers and delays, by chance."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

CHANCE = 0.04  # The probability of a fault for each chunk from a client.
PIECE_BYTES = 65_536
DELAY_S = (0.05, 0.5)


class Proxy:
    """A proxy with random faults. `faults`: the number of faults by kind."""

    def __init__(self, target: int, seed: str) -> None:
        self.target = target
        self.port = 0
        self.faults: Counter[str] = Counter()
        self._chance = random.Random(seed)  # noqa: S311 - reproducible, not secret.
        self._ready = Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator[None]:
        loop = asyncio.new_event_loop()
        serving = Thread(target=loop.run_until_complete, args=[self._serve()])
        serving.start()
        self._ready.wait()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(self._end.set)
            serving.join()
            loop.close()

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        listener = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        self._ready.set()
        async with listener:
            await self._end.wait()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            to_client.transport.abort()
            return
        back = asyncio.create_task(copy(server, to_client))
        try:
            while piece := await client.read(PIECE_BYTES):
                await self._pass_on(piece, to_server, back)
        except (OSError, asyncio.CancelledError):
            pass  # One side has closed, or this connection was cut.
        finally:
            back.cancel()
            to_client.transport.abort()
            to_server.transport.abort()

    async def _pass_on(self, piece: bytes, to_server: asyncio.StreamWriter, back: asyncio.Task[None]) -> None:
        if self._chance.random() < CHANCE:
            fault = self._chance.choice(FAULTS)
            self.faults[fault.__name__] += 1
            await fault(self, piece, to_server, back)
        else:
            await send(piece, to_server)

    # ---- Faults. All but the last end the connection.

    async def cut_before(self, piece: bytes, to_server: asyncio.StreamWriter, back: asyncio.Task[None]) -> None:
        raise ConnectionAbortedError

    async def cut_within(self, piece: bytes, to_server: asyncio.StreamWriter, back: asyncio.Task[None]) -> None:
        await send(piece[: len(piece) // 2], to_server)
        raise ConnectionAbortedError

    async def cut_after(self, piece: bytes, to_server: asyncio.StreamWriter, back: asyncio.Task[None]) -> None:
        await send(piece, to_server)
        raise ConnectionAbortedError

    async def swallow_answer(self, piece: bytes, to_server: asyncio.StreamWriter, back: asyncio.Task[None]) -> None:
        """Let the server finish and respond, but don't pass the response on."""
        back.cancel()
        await send(piece, to_server)
        await asyncio.sleep(self._chance.uniform(*DELAY_S))
        raise ConnectionAbortedError

    async def delay(self, piece: bytes, to_server: asyncio.StreamWriter, back: asyncio.Task[None]) -> None:
        await asyncio.sleep(self._chance.uniform(*DELAY_S))
        await send(piece, to_server)


Fault = Callable[[Proxy, bytes, asyncio.StreamWriter, "asyncio.Task[None]"], Awaitable[None]]
FAULTS: tuple[Fault, ...] = (Proxy.cut_before, Proxy.cut_within, Proxy.cut_after, Proxy.swallow_answer, Proxy.delay)


async def send(piece: bytes, to: asyncio.StreamWriter) -> None:
    to.write(piece)
    await to.drain()


async def copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    """Copy until the source ends, then close the other side."""
    with suppress(OSError):
        while piece := await source.read(PIECE_BYTES):
            await send(piece, to)
    to.close()
