"""Where a benchmark runs: servers, client processes, databases."""

from __future__ import annotations

import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import psycopg

from lab.testing import PROJECT
from lab.testing.environment import clean_environment
from lab.testing.places import Places
from lab.testing.postgresql import Cluster
from lab.testing.processes import cpu_by_process
from lab.testing.servers import StoreServer

from . import CannotMeasure
from .contenders import Contender, Database
from .pace import Load

PATIENCE_S = 600  # For filling a store with a million tasks over HTTP.


@dataclass(frozen=True, slots=True)
class ClientProcess:
    process: subprocess.Popen[bytes]
    orders: IO[bytes]
    answers: IO[bytes]
    log: Path  # What it complains of.

    def ask(self, load: Load, do: str, **order: Any) -> Any:
        """Give an order, and return its answer.

        Raises CannotMeasure when the client fails or does not answer.
        """
        self.tell({"do": do, "load": load.as_json(), **order})
        return self.answer()

    def tell(self, line: Mapping[str, Any]) -> None:
        try:
            self.orders.write(json.dumps(line).encode() + b"\n")
        except BrokenPipeError:
            raise CannotMeasure(self._last_words()) from None

    def answer(self) -> Any:
        # One line, written at once.
        readable, _, _ = select.select([self.answers], [], [], PATIENCE_S)
        line = self.answers.readline() if readable else b""
        if not line:
            raise CannotMeasure(self._last_words() if readable else f"the client was silent for {PATIENCE_S} s")
        found = json.loads(line)
        if isinstance(found, dict) and "problem" in found:
            raise CannotMeasure(found["problem"])
        return found

    def _last_words(self) -> str:
        self.process.wait()
        said = self.log.read_text(errors="replace").strip()
        return said.rpartition("\n")[2] or f"the client ended with exit code {self.process.returncode}"


@contextmanager
def client_process(
    client: str, where: Mapping[str, Any], folder: Path, settings: Mapping[str, str]
) -> Iterator[ClientProcess]:
    """A client that waits for orders. `folder`: the place's, `settings`: this store's, as environment variables."""
    log = folder / "client.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "lab.benchmarks.clients"],
            bufsize=0,
            cwd=PROJECT,
            env={**clean_environment(folder / "data"), **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
        )
    found = ClientProcess(process, cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout), log)
    try:
        found.tell({"client": client, "where": where})
        yield found
    finally:
        # All of its workers with it.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


class Storage:
    """A database: by itself the file of SQLite, which has no server and no log that can be read."""

    pid: int | None = None  # Of its server.
    variables: Mapping[str, str] = {}  # By which this store's settings find it.
    where: Mapping[str, Any] = {}  # By which clients find it.

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def number(self, question: str) -> int:
        """Ask for a number."""
        with closing(sqlite3.connect(self._folder / "data" / "taskstore.sqlite3")) as connection:
            return int(connection.execute(question).fetchone()[0])

    def settle(self) -> None:
        """Do now what filling it has left to do later, which would fall into the measurement."""

    def strangers(self) -> set[int]:
        """Processes of its server that work for others."""
        return set()

    def log_position(self) -> str:
        """The end of its log; empty where it has none that can be read."""
        return ""

    def logged(self, start: str, end: str) -> dict[str, float]:
        """The bytes of its log between two positions, and those of them that are copies of whole pages."""
        return {}


class PostgreSQLStorage(Storage):
    def __init__(self, server: Cluster, name: str, url: str, observer: psycopg.Connection[Any]) -> None:
        self.pid = server.process.pid
        self.variables = {"DATABASE_URL": url}
        self.where = {"url": url}
        self._name, self._url = name, url
        self._observer = observer  # In another database, so that it is a stranger itself.

    def number(self, question: str) -> int:
        with psycopg.connect(self._url, autocommit=True) as connection:
            found = connection.execute(question.encode()).fetchone()
        return int(found[0]) if found else 0

    def settle(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE)")
            connection.execute("CHECKPOINT")

    def strangers(self) -> set[int]:
        # Servers that wait for their turn have a database each, in which they look around all the time.
        found = self._observer.execute("SELECT pid FROM pg_stat_activity WHERE datname <> %s", [self._name])
        return {pid for (pid,) in found}

    def log_position(self) -> str:
        [position] = self._observer.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone() or [""]
        return str(position)

    def logged(self, start: str, end: str) -> dict[str, float]:
        try:
            self._observer.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
            [total, images] = self._observer.execute(
                "SELECT sum(combined_size), sum(fpi_size) FROM pg_get_wal_stats(%s, %s)", [start, end]
            ).fetchone() or [0, 0]
        except psycopg.Error:
            return {}  # The extension is not installed, or that part of the log has been recycled.
        return {"log_bytes": float(total), "log_image_bytes": float(images)}


@dataclass(frozen=True, slots=True)
class Account:
    """What the database says."""

    left: int  # Tasks that can be claimed.
    claimed: int | None  # Claims so far; None where no trace of them is kept.


@dataclass(slots=True, kw_only=True)
class Place:
    contender: Contender
    storage: Storage
    servers: Sequence[StoreServer]
    client: ClientProcess | None  # None: programs do it all.
    environment: Mapping[str, str]  # Of this store's commands, to work here.
    known_rates: dict[Load, float] = field(default_factory=dict)  # Tasks a second, as measured so far.
    kept: dict[str, Any] = field(default_factory=dict)  # What one measurement leaves for the next.

    def ask(self, load: Load, do: str, **order: Any) -> Any:
        """Have the client do something that is not measured."""
        return self._client.ask(load, do, **order)

    @property
    def _client(self) -> ClientProcess:
        if self.client is None:
            raise CannotMeasure("this contender takes part with a program of its own only")
        return self.client

    def work(self, load: Load, lead_s: float, seconds: float) -> dict[str, Any]:
        """Let the client work. What it answers, with the cores and the log that were used meanwhile."""
        window = self.ask(load, "work", lead_s=lead_s, seconds=seconds)
        before_s, log_start = self._used_until(window["begins_s"])
        after_s, log_end = self._used_until(window["ends_s"])
        strangers = self.storage.strangers()
        done = self._client.answer()
        used = {
            # The time of a process that has ended meanwhile is in its parent's figure now, with what it used before.
            f"{name}_cores": (all_but(strangers, after_s[name]) - all_but(strangers, before_s[name])) / seconds
            for name in before_s
            if before_s[name]
        }
        return {**done, "client_cores": done["cores"], **used, **self.storage.logged(log_start, log_end)}

    def left(self) -> int:
        """The number of tasks that can be claimed."""
        return self.storage.number(self.contender.ledger.left)

    def account(self) -> Account:
        question = self.contender.ledger.claimed
        return Account(self.left(), self.storage.number(question) if question else None)

    def _used_until(self, moment_s: float) -> tuple[dict[str, dict[int, float]], str]:
        """The processor time of each process of the servers and of the database, and where the log ends then."""
        time.sleep(max(0.0, moment_s - time.monotonic()))
        used = {"server": {pid: s for server in self.servers for pid, s in cpu_by_process(server.pid).items()}}
        if self.storage.pid:
            used["database"] = cpu_by_process(self.storage.pid)
        return used, self.storage.log_position()


def all_but(strangers: Collection[int], used_s: Mapping[int, float]) -> float:
    return sum(seconds for pid, seconds in used_s.items() if pid not in strangers)


@contextmanager
def place_for(contender: Contender, places: Places) -> Iterator[Place]:
    """A new place: its tables are there, its servers run, and a client waits for orders."""
    folder = places.new_folder(contender.name)
    with ExitStack() as stack:
        storage = stack.enter_context(_storage(contender, folder, places))
        settings = storage.variables
        servers = []
        if contender.server:
            checkout = contender.checkout or PROJECT
            server = StoreServer(contender.server, folder / "data", settings, checkout=checkout)
            servers.append(stack.enter_context(server))
            server.start()
        where = {**storage.where, "servers": [{"url": server.url, "token": server.token} for server in servers]}
        (folder / "data").mkdir(mode=0o700, exist_ok=True)  # A store in the process of a client has no server.
        client = None
        if not contender.program:
            client = stack.enter_context(client_process(contender.client_name, where, folder, settings))
            client.ask(Load(clients=1), "prepare")
        environment = {**clean_environment(folder / "data"), **settings}
        yield Place(contender=contender, storage=storage, servers=servers, client=client, environment=environment)


@contextmanager
def _storage(contender: Contender, folder: Path, places: Places) -> Iterator[Storage]:
    if contender.database is Database.SQLITE:
        yield Storage(folder)
    else:
        server = places.cluster
        # A peer makes its own tables.
        is_peer = contender.program and contender.program.packages
        template = "template1" if is_peer else places.template(contender.checkout or PROJECT)[0]
        url = server.new_database(folder.name, template)
        with psycopg.connect(server.url, autocommit=True) as observer:
            yield PostgreSQLStorage(server, folder.name, url, observer)
        # Somebody may be on their way out still.
        server.execute(f'DROP DATABASE "{folder.name}" WITH (FORCE)')
