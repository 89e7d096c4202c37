"""The stage of a scene: a separate store with its servers and clients."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

from lab.testing.places import Places, wait_until
from lab.testing.servers import StoreServer

from .client import Orders, Worker
from .history import History, events_in
from .load import at_work, set_limits
from .pace import Pace
from .proxy import Proxy
from .truth import truth_of

T = TypeVar("T")


class Database(StrEnum):
    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


@dataclass
class Stage:
    places: Places
    database: Database
    folder: Path
    database_url: str  # Empty: SQLite.
    token: str
    seed: str
    pace: Pace
    _stack: ExitStack = field(default_factory=ExitStack)
    _servers: list[StoreServer] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def chance(self) -> random.Random:
        return random.Random(self.seed)  # noqa: S311 - reproducible, not secret.

    @property
    def is_sqlite(self) -> bool:
        return self.database is Database.SQLITE

    def server(self, *words: str, **variables: str) -> StoreServer:
        """Start a server, which is killed at the end of the scene. The first one's folder has the SQLite file."""
        folder = self.folder / ("data" if not self._servers else f"data-{len(self._servers)}")
        variables = {"DATABASE_URL": self.database_url, "TASKSTORE_RETENTION": "tree/dead=1s", **variables}
        server = self.until_the_end(StoreServer(words or self.usual_command, folder, variables))
        self._servers.append(server)
        server.start()
        return server

    def until_the_end(self, what: AbstractContextManager[T]) -> T:
        """Enter a context that ends with the scene."""
        return self._stack.enter_context(what)

    @property
    def usual_command(self) -> Sequence[str]:
        return ("up",) if self.is_sqlite else ("serve", "--workers", "1")

    def servers(self) -> list[StoreServer]:
        """Start as many servers as the database allows, up to two."""
        return [self.server() for _ in range(1 if self.is_sqlite else 2)]

    def worker(self, server: StoreServer, number: int) -> Worker:
        """Return a client with this number that the scene controls."""
        file = self.folder / f"client-{number}.jsonl"
        orders = Orders(addresses=[server.address], token=self.token, number=number, file=str(file), seed=self.seed)
        return Worker(orders, file.open("w", buffering=1))

    @contextmanager
    def load(self, servers: Sequence[StoreServer | Proxy], **options: Any) -> Iterator[None]:
        """Run clients on these servers until the block ends. `options`: those of `at_work`."""
        set_limits(self._servers[0].url, self.token)
        addresses = [server.address for server in servers]
        with at_work(addresses, self.token, self.folder, count=self.pace.clients, seed=self.seed, **options):
            yield

    def history(self, server: StoreServer, *, may_be_unavailable: bool = False) -> History:
        """Return what the clients recorded, with the tables and the server's counts."""
        requests = list(events_in(self.folder.glob("client-*.jsonl")))
        wait_until(server.is_ready, "the store is ready again")
        truth = truth_of(server.folder, server.variables["DATABASE_URL"], server.url, self.token)
        return History(requests, truth, may_be_unavailable)

    def pause(self, least_s: float, most_s: float) -> None:
        """Sleep for a random time, so that the next fault hits any moment."""
        time.sleep(self.chance.uniform(least_s, most_s))


@contextmanager
def stage(places: Places, name: str, database: Database, seed: str, pace: Pace) -> Iterator[Stage]:
    """Create the stage of one scene."""
    folder = places.new_folder(name)
    if database is Database.SQLITE:
        made, token = places.sqlite
        shutil.copytree(made, folder / "data")
        url = ""
    else:
        template, token = places.template()
        (folder / "data").mkdir()
        url = places.cluster.new_database(folder.name, template)
    with Stage(places, database, folder, url, token, f"{seed}/{name}/{database}", pace) as found:
        yield found
    shutil.rmtree(folder, ignore_errors=True)
