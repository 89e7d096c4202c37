"""`Client` and `AsyncClient`: every API call as a method, with retries (docs/client.md)."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from weakref import WeakSet

import httpx

from .. import endpoints
from ..errors import StoreUnavailable
from ..types.history import ExportRequest
from ..types.requests import GroupByQuery
from ..types.tasks import Task
from . import transport
from .batches import AsyncBatches, AsyncNewBatch, Batches, NewBatch
from .calls import Call
from .commands import AsyncCommands, Commands
from .jobs import AsyncJobs, AsyncSchedules, Jobs, Schedules
from .transport import BaseClient, Happened, Pause, conversation, read
from .verbs import TaskListParser, Verbs

if TYPE_CHECKING:
    from ..types.history import FileFormat

T = TypeVar("T")

LONGEST_PAUSE_S = 1.0  # Of a worker's claims and renewals.


class Client(Verbs):
    __doc__ = BaseClient.__doc__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. The next call opens new ones."""
        mine: httpx.HTTPTransport | None = self._connections.pop(transport.id_of_this_process(), None)
        if mine:
            mine.close()

    def in_a_hurry(self) -> Self:
        """Return this client with pauses of at most a second between attempts, for a worker's renewals and results."""
        hurried = copy(self)
        hurried._patience = replace(self._patience, longest_pause_s=LONGEST_PAUSE_S)
        return hurried

    def for_claims(self, before_again: Callable[[], object] = lambda: None) -> ClaimingClient:
        """Return a client in the same name whose waiting claim can be broken off, for a worker that stops.

        `before_again` is called before each attempt but the first.
        """
        return ClaimingClient(self, before_again)

    @property
    def batches(self) -> Batches:
        """Tasks that end together, and what is added when they have."""
        return Batches(self)

    def batch(self, name: str = "", **options: Any) -> NewBatch:
        """Collect the tasks of a new batch: `with store.batch("import 42", then=NewTask(...)) as batch`.

        In the block, `batch.add` takes each. They are added when it ends. The options are those of `batches.create`.
        """
        return NewBatch(self, name, options)

    @property
    def jobs(self) -> Jobs:
        """Functions that workers run."""
        return Jobs(self)

    @property
    def commands(self) -> Commands:
        """Shell commands that workers run in lists."""
        return Commands(self)

    @property
    def schedules(self) -> Schedules:
        """Tasks and jobs that are added at set times."""
        return Schedules(self)

    def send(self, call: Call[T]) -> T:
        """Send a call, retrying it as needed, and return its result."""
        for turn in call.turns():
            answer = read(turn, self._answer_to(turn))
            if answer:
                break
        return answer

    def group(
        self, name: str, *, limit: int = 0, owned: bool = False, labels: Mapping[str, str | None] | None = None
    ) -> Iterator[Task]:
        """Yield the tasks of a group while they arrive, oldest available time first.

        `limit`: the maximum number of tasks; 0 means no limit. `owned`: include tasks that are not available now.
        `labels`: only tasks with all of these labels; a value of None matches any value.
        Raises StoreUnavailable if the connection breaks.
        """
        parser = TaskListParser()
        for piece in self.pieces(_group(name, limit=limit, owned=owned, labels=labels)):
            yield from parser.feed(piece)
        yield from parser.end()

    def export_tasks(self, query: str = "", *, format: str = "ndjson") -> Iterator[bytes]:
        """Export all tasks that match a search, in chunks of bytes. `format`: `ndjson` (see `import_tasks`) or `csv`.

        Raises StoreUnavailable if the connection breaks.
        """
        return self.pieces(Call.of(endpoints.EXPORT, ExportRequest(query, cast("FileFormat", format))))

    def pieces(self, call: Call[Any]) -> Iterator[bytes]:
        """Yield a long response in chunks while it arrives. Raises StoreUnavailable if the connection breaks."""
        answer = self._answer_to(call, stream=True)
        try:
            yield from answer.iter_bytes()
        except httpx.TransportError as broken:
            raise StoreUnavailable(f"the response broke off: {broken}") from broken
        finally:
            answer.close()

    def _answer_to(self, call: Call[Any], *, stream: bool = False) -> httpx.Response:
        talk = conversation(call, self._access, self._patience)
        happened: Happened | None = None
        try:
            while True:
                match talk.send(happened):
                    case httpx.Request() as request:
                        if happened is not None:
                            self._before_again()
                        happened = self._ask(request, stream=stream)
                    case Pause(seconds):
                        time.sleep(seconds)
        except StopIteration as end:
            answer: httpx.Response = end.value
            return answer

    def _before_again(self) -> object:
        """Wait before another attempt for something that should come first."""

    def _ask(self, request: httpx.Request, *, stream: bool) -> Happened:
        try:
            # Not through httpx.Client, whose redirects, cookies and hooks would double the cost.
            answer = self._http().handle_request(request)
            if not (stream and answer.is_success):
                answer.read()
        except httpx.TransportError as broken:
            return broken
        return answer

    def _http(self) -> httpx.HTTPTransport:
        own = transport.id_of_this_process()
        mine: httpx.HTTPTransport | None = self._connections.get(own)
        if mine is None:
            made = httpx.HTTPTransport(**self._connecting)
            # Threads may race here and one wins. Not a lock: a fork might leave it locked in the child.
            mine = self._connections.setdefault(own, made)
            if mine is not made:
                made.close()
        return mine


def _group(name: str, *, limit: int, owned: bool, labels: Mapping[str, str | None] | None) -> Call[list[Task]]:
    label = tuple(key if value is None else f"{key}:{value}" for key, value in (labels or {}).items())
    return Call.of(endpoints.GROUP_BY_QUERY, GroupByQuery(name=name, limit=limit, owned=owned, label=label))


class ClaimingClient(Client):
    """A client with connections of its own, which can break off a claim that waits. See `Client.for_claims`."""

    def __init__(self, client: Client, before_again: Callable[[], object]) -> None:
        self._access, self._client_id = client._access, client._client_id
        self._patience = client.in_a_hurry()._patience
        self._wait_for = before_again
        self._connections = {}
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._has_ended = False

    def hang_up(self) -> None:
        """Break off the call that another thread waits for, and refuse all further ones with StoreUnavailable.

        The server hands out no tasks to a disconnected client. What it has sent already is received; call it once more
        to wait for that no longer.
        """
        how = socket.SHUT_RDWR if self._has_ended else socket.SHUT_WR
        self._has_ended = True
        for each in list(self._sockets):
            with suppress(OSError):
                # Not the method of a TLS socket, which is not made for being called beside a thread that reads.
                socket.socket.shutdown(each, how)

    def _before_again(self) -> object:
        return self._wait_for()

    def _ask(self, request: httpx.Request, *, stream: bool) -> Happened:
        request.extensions["trace"] = self._note
        happened = None if self._has_ended else super()._ask(request, stream=stream)
        if happened is None or (self._has_ended and not isinstance(happened, httpx.Response)):
            raise StoreUnavailable("this client has been stopped")
        return happened

    def _note(self, event: str, info: Mapping[str, Any]) -> None:
        """Hear from httpcore what it is doing."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            connected = info["return_value"].get_extra_info("socket")
            self._sockets.add(connected)
            if self._has_ended:
                self.hang_up()


class AsyncClient(Verbs):
    """A client for asyncio with the methods of `Client`, as coroutines. Use it in one event loop only."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. The next call opens new ones."""
        mine: httpx.AsyncHTTPTransport | None = self._connections.pop(transport.id_of_this_process(), None)
        if mine:
            await mine.aclose()

    @property
    def batches(self) -> AsyncBatches:
        """Tasks that end together, and what is added when they have."""
        return AsyncBatches(self)

    def batch(self, name: str = "", **options: Any) -> AsyncNewBatch:
        """Collect the tasks of a new batch, as `Client.batch` does: `async with store.batch(...) as batch`."""
        return AsyncNewBatch(self, name, options)

    @property
    def jobs(self) -> AsyncJobs:
        """Functions that workers run."""
        return AsyncJobs(self)

    @property
    def commands(self) -> AsyncCommands:
        """Shell commands that workers run in lists."""
        return AsyncCommands(self)

    @property
    def schedules(self) -> AsyncSchedules:
        """Tasks and jobs that are added at set times."""
        return AsyncSchedules(self)

    async def send(self, call: Call[T]) -> T:
        """Send a call, retrying it as needed, and return its result."""
        for turn in call.turns():
            answer = read(turn, await self._answer_to(turn))
            if answer:
                break
        return answer

    async def group(
        self, name: str, *, limit: int = 0, owned: bool = False, labels: Mapping[str, str | None] | None = None
    ) -> AsyncIterator[Task]:
        """Yield the tasks of a group while they arrive, like `Client.group`."""
        parser = TaskListParser()
        call = _group(name, limit=limit, owned=owned, labels=labels)
        async with aclosing(self.pieces(call)) as pieces:
            async for piece in pieces:
                for task in parser.feed(piece):
                    yield task
        for task in parser.end():
            yield task

    def export_tasks(self, query: str = "", *, format: str = "ndjson") -> AsyncIterator[bytes]:
        """Export all tasks that match a search, like `Client.export_tasks`."""
        return self.pieces(Call.of(endpoints.EXPORT, ExportRequest(query, cast("FileFormat", format))))

    async def pieces(self, call: Call[Any]) -> AsyncGenerator[bytes, None]:
        """Yield a long response in chunks, like `Client.pieces`."""
        answer = await self._answer_to(call, stream=True)
        try:
            async for piece in answer.aiter_bytes():
                yield piece
        except httpx.TransportError as broken:
            raise StoreUnavailable(f"the response broke off: {broken}") from broken
        finally:
            await answer.aclose()

    async def _answer_to(self, call: Call[Any], *, stream: bool = False) -> httpx.Response:
        talk = conversation(call, self._access, self._patience)
        happened: Happened | None = None
        try:
            while True:
                match talk.send(happened):
                    case httpx.Request() as request:
                        happened = await self._ask(request, stream=stream)
                    case Pause(seconds):
                        await asyncio.sleep(seconds)
        except StopIteration as end:
            answer: httpx.Response = end.value
            return answer

    async def _ask(self, request: httpx.Request, *, stream: bool) -> Happened:
        try:
            answer = await self._http().handle_async_request(request)
            if not (stream and answer.is_success):
                await answer.aread()
        except httpx.TransportError as broken:
            return broken
        return answer

    def _http(self) -> httpx.AsyncHTTPTransport:
        mine: httpx.AsyncHTTPTransport | None = self._connections.get(transport.id_of_this_process())
        if mine is None:
            mine = httpx.AsyncHTTPTransport(**self._connecting)
            self._connections[transport.id_of_this_process()] = mine
        return mine
