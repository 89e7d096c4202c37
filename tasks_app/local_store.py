"""The store as a worker in a Django project sees it: `Task.objects` of its own process, and no server.

Beside the worker a writer runs, on an event loop in a thread: what its threads commit shares transactions,
claims wait without a connection, the house is kept, and what schedules are due for is added, where no server does it.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from django.db import Error, close_old_connections

from taskstore.client.errors import NotFound
from taskstore.client.transport import id_of_this_process
from taskstore.errors import StoreUnavailable
from taskstore.types.groups import ClientStatus
from taskstore.types.history import History
from taskstore.types.progress import Progress
from taskstore.types.tasks import Cancelled, Task, answer_of

from .commands import progress as sharing
from .control.cancelling import watch
from .control.progress import Reports, report
from .core.operations import Claim, Commit, ResendKey, TaskRecord, told_task
from .database import dialect_of
from .database.outage import translated
from .models import Client
from .models import Task as StoredTask
from .reading import clients
from .reading.history import history_of
from .reading.pages import Cursor
from .reading.search import grammar
from .reading.search.finding import find
from .schedules import Scheduler
from .writer.connection import ended
from .writer.writer import Writer

T = TypeVar("T")

LOOK_EVERY_S = 0.05  # At the file of SQLite, whether another process has written.


class LocalStore:
    """The store that a worker needs (taskstore/worker/store.py). Enter it before use. Threads may share it."""

    def __init__(self) -> None:
        self.id = id_of_this_process()
        self._using = StoredTask.objects.writing_alias
        self._ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._serve, name="writer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Claims that wait find nothing. Whatever else was asked is answered first."""
        loop, stop = self._ready.result()
        if self._thread.is_alive():
            with suppress(RuntimeError):  # The loop has ended since.
                loop.call_soon_threadsafe(stop.set)
            self._thread.join()

    def claim(self, groups: str | Iterable[str], *, depends: Iterable[int] = (), **asked: Any) -> list[Task]:
        names = (groups,) if isinstance(groups, str) else tuple(groups)
        claim = Claim(groups=names, owner=self.id, depends=tuple(depends), **asked)
        return list(map(answer_of, StoredTask.objects.with_data(self._perform(claim))))

    def for_claims(self, before_again: Callable[[], object] = lambda: None) -> ClaimingStore:
        """Return a store in the same name whose waiting claim can be broken off, for a worker that stops.

        It makes one attempt, so that `before_again` is never called.
        """
        return ClaimingStore(self)

    def _perform(self, claim: Claim) -> list[TaskRecord]:
        return StoredTask.objects.perform(claim)

    def commit(self, *, client_id: int | None = None, key: str = "", **changes: Iterable[Any]) -> list[Task]:
        kept: dict[str, Any] = {name: tuple(each) for name, each in changes.items()}
        resend = ResendKey(f"local/{key}", digest=key) if key else None
        commit = Commit(owner=self.id if client_id is None else client_id, key=resend, **kept)
        return list(map(told_task, StoredTask.objects.with_data(StoredTask.objects.perform(commit))))

    def cancelled(self, *, after: str = "", wait_ms: int = 0) -> Cancelled:
        return self._awaited(watch.cancelled(self.id, after, wait_ms))

    def _awaited(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._ready.result()[0]).result()

    def tasks(self, ids: Iterable[int]) -> list[Task | None]:
        with _fresh_connections():
            return [answer_of(task) if task else None for task in StoredTask.objects.find(ids)]

    def history(self, id: int) -> History | None:
        with _fresh_connections():
            return history_of(id)

    def heartbeat(
        self, *, groups: Iterable[str] = (), info: Mapping[str, Any] | None = None, **said: Any
    ) -> ClientStatus:
        client = Client(id=self.id, groups=list(groups), info=json.dumps(dict(info or {})), **said)
        with _fresh_connections():
            return sharing.hear(client)

    def report_progress(self, id: int, done: float, text: str = "") -> Progress:
        with _fresh_connections():
            if reported := report(id, owner=self.id, done=done, text=text):
                return reported
        raise NotFound(f"Task {id} does not exist.")

    def clients(self) -> list[ClientStatus]:
        with _fresh_connections():
            return [seen.as_answer() for seen in clients.seen()]

    def search(self, query: str = "", *, limit: int = 50, after: str | None = None) -> Found:
        """The tasks that meet every term of the query, as `GET /search` finds them."""
        with _fresh_connections():
            found = find(grammar.parse(query), limit=limit, after=Cursor.read(after))
            tasks = [answer_of(task) for task in StoredTask.objects.find(found.ids) if task]
            return Found(tasks=tasks, after=str(found.after) if found.after else None)

    def _serve(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as problem:
            if self._ready.done():
                raise
            self._ready.set_exception(problem)

    async def _work(self) -> None:
        companions, stop = (Scheduler(), Reports(self._using)), asyncio.Event()
        writer = Writer.start(self._using)
        for companion in companions:
            writer.keep(companion)
        watching = asyncio.create_task(self._watch(writer))
        self._ready.set_result((asyncio.get_running_loop(), stop))
        try:
            await stop.wait()
        finally:
            await ended(watching)
            await writer.stop()

    async def _watch(self, writer: Writer) -> None:
        """Where the database is a file, nobody tells what other processes commit, but the file shows that they have."""
        path = dialect_of(self._using).file
        if path is None:
            return
        # No wait for a lock: it would be the event loop's.
        with closing(sqlite3.connect(path, timeout=0)) as file:
            version = None
            while True:
                with suppress(sqlite3.OperationalError):  # Locked: what is being committed shows at the next look.
                    newest = file.execute("PRAGMA data_version").fetchone()
                    if newest != version:
                        version = newest
                        writer.look_around()
                await asyncio.sleep(LOOK_EVERY_S)


class ClaimingStore(LocalStore):
    """Waits on the writer of another store, and can break that off. See `LocalStore.for_claims`."""

    def __init__(self, store: LocalStore) -> None:
        self.id, self._using, self._ready, self._thread = store.id, store._using, store._ready, store._thread
        self._waiting: Future[Any] | None = None
        self._has_ended = False

    def hang_up(self) -> None:
        """Break off what another thread waits for, and refuse all further ones with StoreUnavailable.

        The writer gives back what a claim took that was broken off.
        """
        self._has_ended = True
        if self._waiting:
            self._waiting.cancel()

    def close(self) -> None:
        """Leave the writer running: it is the other store's."""

    def _perform(self, claim: Claim) -> list[TaskRecord]:
        return self._awaited(StoredTask.objects.aperform(claim))

    def _awaited(self, work: Coroutine[Any, Any, T]) -> T:
        if self._has_ended:
            work.close()
        else:
            self._waiting = waiting = asyncio.run_coroutine_threadsafe(work, self._ready.result()[0])
            if self._has_ended:  # Since the first look: `hang_up` may have missed this one.
                waiting.cancel()
            with suppress(CancelledError):
                return waiting.result()
        raise StoreUnavailable("this store has been stopped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    tasks: Sequence[Task]
    after: str | None


@contextmanager
def _fresh_connections() -> Iterator[None]:
    """As in a request: what the settings call old, or what broke, is not used. Raises StoreUnavailable."""
    close_old_connections()
    try:
        yield
    except Error as error:
        if told := translated(error):
            raise told from error
        raise
    finally:
        close_old_connections()
