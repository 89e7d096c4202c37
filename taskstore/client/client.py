"""The clients: each verb of the API as a method, and safe by itself (docs/client.md)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Self, TypeVar

import httpx

from ..errors import StoreUnavailable
from ..types.tasks import Task
from . import transport
from .calls import Call
from .commands import AsyncCommands, Commands
from .jobs import AsyncJobs, Jobs
from .listing import Listing
from .schedules import AsyncSchedules, Schedules
from .transport import BaseClient, Happened, Pause, conversation, read
from .verbs import Calls, async_verb, verb

T = TypeVar("T")


class Client(BaseClient):
    __doc__ = BaseClient.__doc__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. The next call opens new ones."""
        mine: httpx.HTTPTransport | None = self._connections.pop(transport.of_this_process(), None)
        if mine:
            mine.close()

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
        """Tasks and jobs that are added when they are due."""
        return Schedules(self)

    def send(self, call: Call[T]) -> T:
        """What comes of a call."""
        for turn in call.turns():
            answer = read(turn, self._answer_to(turn))
            if answer:
                break
        return answer

    claim = verb(Calls.claim)
    commit = verb(Calls.commit)
    add = verb(Calls.add)
    renew = verb(Calls.renew)
    release = verb(Calls.release)
    move = verb(Calls.move)
    delete = verb(Calls.delete)
    import_tasks = verb(Calls.import_tasks)
    heartbeat = verb(Calls.heartbeat)

    task = verb(Calls.task)
    tasks = verb(Calls.tasks)
    groups = verb(Calls.groups)
    stats = verb(Calls.stats)
    history = verb(Calls.history)
    search = verb(Calls.search)
    clients = verb(Calls.clients)
    audit = verb(Calls.audit)
    health = verb(Calls.health)
    ready = verb(Calls.ready)
    metrics = verb(Calls.metrics)
    schema = verb(Calls.schema)

    pause = verb(Calls.pause)
    resume = verb(Calls.resume)
    bulk_preview = verb(Calls.bulk_preview)
    bulk_start = verb(Calls.bulk_start)
    operations = verb(Calls.operations)
    operation = verb(Calls.operation)
    operation_items = verb(Calls.operation_items)
    cancel_operation = verb(Calls.cancel_operation)
    undo_operation = verb(Calls.undo_operation)

    def group(
        self, name: str, *, limit: int = 0, owned: bool = False, labels: Mapping[str, str | None] | None = None
    ) -> Iterator[Task]:
        """The tasks of a group, the longest available first, one by one while they come in; 0: all of them.

        `owned`: also what is not available. `labels`: those that bear all of them; None stands for any value.
        """
        listing = Listing()
        for piece in self.pieces(Calls(self.id).group(name, limit=limit, owned=owned, labels=labels)):
            yield from listing.feed(piece)
        yield from listing.end()

    def export_tasks(self, query: str = "", *, format: str = "ndjson") -> Iterator[bytes]:
        """All tasks that a search finds, as a file, piece by piece: `ndjson` (see `import_tasks`) or `csv`."""
        return self.pieces(Calls(self.id).export_tasks(query, format=format))

    def pieces(self, call: Call[Any]) -> Iterator[bytes]:
        """A long answer, piece by piece while it comes in. Raises StoreUnavailable when it breaks off."""
        answer = self._answer_to(call, stream=True)
        try:
            yield from answer.iter_bytes()
        except httpx.TransportError as broken:
            raise StoreUnavailable(f"the answer broke off: {broken}") from broken
        finally:
            answer.close()

    def _answer_to(self, call: Call[Any], *, stream: bool = False) -> httpx.Response:
        talk = conversation(call, self._access, self._patience)
        happened: Happened | None = None
        try:
            while True:
                match talk.send(happened):
                    case httpx.Request() as request:
                        happened = self._ask(request, stream=stream)
                    case Pause(seconds):
                        time.sleep(seconds)
        except StopIteration as end:
            answer: httpx.Response = end.value
            return answer

    def _ask(self, request: httpx.Request, *, stream: bool) -> Happened:
        try:
            # Not through httpx.Client: what it does for the web costs as much again.
            answer = self._http().handle_request(request)
            if not (stream and answer.is_success):
                answer.read()
        except httpx.TransportError as broken:
            return broken
        return answer

    def _http(self) -> httpx.HTTPTransport:
        own = transport.of_this_process()
        mine: httpx.HTTPTransport | None = self._connections.get(own)
        if mine is None:
            made = httpx.HTTPTransport(**self._connecting)
            # Of threads that come here together one wins. No lock: a fork might leave it locked in the child.
            mine = self._connections.setdefault(own, made)
            if mine is not made:
                made.close()
        return mine


class AsyncClient(BaseClient):
    """As Client, for the tasks of one event loop: each verb is awaited."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. The next call opens new ones."""
        mine: httpx.AsyncHTTPTransport | None = self._connections.pop(transport.of_this_process(), None)
        if mine:
            await mine.aclose()

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
        """Tasks and jobs that are added when they are due."""
        return AsyncSchedules(self)

    async def send(self, call: Call[T]) -> T:
        """What comes of a call."""
        for turn in call.turns():
            answer = read(turn, await self._answer_to(turn))
            if answer:
                break
        return answer

    claim = async_verb(Calls.claim)
    commit = async_verb(Calls.commit)
    add = async_verb(Calls.add)
    renew = async_verb(Calls.renew)
    release = async_verb(Calls.release)
    move = async_verb(Calls.move)
    delete = async_verb(Calls.delete)
    import_tasks = async_verb(Calls.import_tasks)
    heartbeat = async_verb(Calls.heartbeat)

    task = async_verb(Calls.task)
    tasks = async_verb(Calls.tasks)
    groups = async_verb(Calls.groups)
    stats = async_verb(Calls.stats)
    history = async_verb(Calls.history)
    search = async_verb(Calls.search)
    clients = async_verb(Calls.clients)
    audit = async_verb(Calls.audit)
    health = async_verb(Calls.health)
    ready = async_verb(Calls.ready)
    metrics = async_verb(Calls.metrics)
    schema = async_verb(Calls.schema)

    pause = async_verb(Calls.pause)
    resume = async_verb(Calls.resume)
    bulk_preview = async_verb(Calls.bulk_preview)
    bulk_start = async_verb(Calls.bulk_start)
    operations = async_verb(Calls.operations)
    operation = async_verb(Calls.operation)
    operation_items = async_verb(Calls.operation_items)
    cancel_operation = async_verb(Calls.cancel_operation)
    undo_operation = async_verb(Calls.undo_operation)

    async def group(
        self, name: str, *, limit: int = 0, owned: bool = False, labels: Mapping[str, str | None] | None = None
    ) -> AsyncIterator[Task]:
        """The tasks of a group, as those of Client."""
        listing = Listing()
        call = Calls(self.id).group(name, limit=limit, owned=owned, labels=labels)
        async with aclosing(self.pieces(call)) as pieces:
            async for piece in pieces:
                for task in listing.feed(piece):
                    yield task
        for task in listing.end():
            yield task

    def export_tasks(self, query: str = "", *, format: str = "ndjson") -> AsyncIterator[bytes]:
        """The file of Client, piece by piece."""
        return self.pieces(Calls(self.id).export_tasks(query, format=format))

    async def pieces(self, call: Call[Any]) -> AsyncGenerator[bytes, None]:
        """As that of Client."""
        answer = await self._answer_to(call, stream=True)
        try:
            async for piece in answer.aiter_bytes():
                yield piece
        except httpx.TransportError as broken:
            raise StoreUnavailable(f"the answer broke off: {broken}") from broken
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
            # Not through httpx.Client: what it does for the web costs as much again.
            answer = await self._http().handle_async_request(request)
            if not (stream and answer.is_success):
                await answer.aread()
        except httpx.TransportError as broken:
            return broken
        return answer

    def _http(self) -> httpx.AsyncHTTPTransport:
        mine: httpx.AsyncHTTPTransport | None = self._connections.get(transport.of_this_process())
        if mine is None:
            mine = httpx.AsyncHTTPTransport(**self._connecting)
            self._connections[transport.of_this_process()] = mine
        return mine
