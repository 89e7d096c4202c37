"""Where a benchmark runs: a database, a server, and clients in processes of their own."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from lab.testing import PROJECT
from lab.testing.environment import clean_environment
from lab.testing.places import Places
from lab.testing.postgresql import Cluster
from lab.testing.servers import StoreServer

from . import CannotMeasure
from .contenders import Contender, Database
from .pace import Load

PATIENCE_S = 600  # For filling a store over HTTP.


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """A database of PostgreSQL, or the file of SQLite in the folder.

    `look`: a connection to this database that stays, so that what we ask is not counted as work of the database.
    """

    folder: Path
    server: Cluster | None = None
    look: psycopg.Connection[tuple[int, ...]] | None = None

    @property
    def url(self) -> str:
        return self.server.url_of(self.folder.name) if self.server else ""

    def number(self, question: str) -> int:
        if self.look:
            found = self.look.execute(question.encode()).fetchone()
            return int(found[0]) if found else 0
        with closing(sqlite3.connect(self.folder / "data" / "taskstore.sqlite3")) as connection:
            return int(connection.execute(question).fetchone()[0])

    def settle(self) -> None:
        """Do now what filling it has left to do later, which would fall into the measurement."""
        if self.server:
            self.server.execute("VACUUM (ANALYZE)", self.folder.name)
            self.server.execute("CHECKPOINT")

    def log_bytes(self) -> int:
        """How much its log (WAL) has grown so far; 0 for SQLite."""
        return self.number("SELECT pg_current_wal_flush_lsn() - '0/0'") if self.server else 0

    def strangers(self) -> list[int]:
        """Return the processes of its server that work for others, or for us."""
        if not self.look:
            return []
        # Servers that wait for their turn have a database each, in which they look around all the time.
        question = "SELECT pid FROM pg_stat_activity WHERE datname <> current_database() OR pid = pg_backend_pid()"
        return [pid for (pid,) in self.look.execute(question)]


@dataclass(slots=True, kw_only=True)
class Place:
    contender: Contender
    storage: Storage
    server: StoreServer | None
    environment: Mapping[str, str]  # Of this store's commands, to work here.
    checkout: Path  # Whose commands these are.
    known_rates: dict[Load, float] = field(default_factory=dict)  # Tasks a second, as measured so far.
    is_prepared: bool = False

    def ask(self, load: Load, do: str, **order: Any) -> Any:
        """Have a client do something, and return what it says of it. Raises CannotMeasure."""
        where = {"database": self.storage.url}
        if self.server:
            where |= {"url": self.server.url, "token": self.server.token}
        asked = {"client": self.contender.client_name, "where": where, "load": asdict(load), "do": do, "order": order}
        done = subprocess.run(
            [sys.executable, "-m", "lab.benchmarks.clients", json.dumps(asked)],
            cwd=PROJECT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        if done.returncode:
            raise CannotMeasure(done.stderr.strip().rpartition("\n")[2])
        return json.loads(done.stdout)

    def pids(self) -> dict[str, int]:
        """Return the processes that do the work, each with its children."""
        database = self.storage.server
        return {
            **({"server": self.server.pid} if self.server else {}),
            **({"database": database.process.pid} if database else {}),
        }

    def left(self) -> int:
        """Return the number of tasks that can be claimed."""
        return self.storage.number(self.contender.ledger.left)

    def claimed(self) -> int | None:
        """Return the number of claims so far; None where no trace of them is kept."""
        question = self.contender.ledger.claimed
        return self.storage.number(question) if question else None


@contextmanager
def place_for(contender: Contender, places: Places) -> Iterator[Place]:
    """A new place: its tables are there, and its server runs."""
    folder = places.new_folder(contender.name)
    checkout = places.checkout(contender.revision) if contender.revision else PROJECT
    with ExitStack() as stack:
        storage, variables = Storage(folder=folder), {}
        if contender.database is Database.POSTGRESQL:
            # A peer makes its own tables.
            is_peer = contender.program and contender.program.packages
            template = "template1" if is_peer else places.template(checkout)[0]
            variables = {"DATABASE_URL": places.cluster.new_database(folder.name, template)}
            # Somebody may be on their way out still.
            stack.callback(places.cluster.execute, f'DROP DATABASE "{folder.name}" WITH (FORCE)')
            look = stack.enter_context(psycopg.connect(variables["DATABASE_URL"], autocommit=True))
            storage = Storage(folder=folder, server=places.cluster, look=look)
        server = None
        if contender.server:
            server = StoreServer(contender.server, folder / "data", variables, checkout=checkout)
            stack.enter_context(server).start()
        (folder / "data").mkdir(mode=0o700, exist_ok=True)  # A store in the process of a client has no server.
        environment = {**clean_environment(folder / "data"), **variables}
        place = Place(contender=contender, storage=storage, server=server, environment=environment, checkout=checkout)
        if not contender.program:
            place.ask(Load(clients=1), "prepare")
        yield place
