"""The servers that contenders stand on, started when the first one asks: throw-away, and as durable as by default."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psycopg
from psycopg import sql

from lab.testing import PROJECT, CannotTry
from lab.testing.environment import clean_environment
from lab.testing.postgresql import Cluster
from taskstore_project.base_command import CannotRun

from . import CannotMeasure

START_S = 60
STOP_S = 15


class PostgreSQL(Cluster):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._with_tables: dict[Path, str] = {}

    @property
    def pid(self) -> int:
        return self.process.pid

    def version(self) -> str:
        with psycopg.connect(self.url) as connection:
            return connection.info.parameter_status("server_version") or ""

    def tables_of(self, checkout: Path) -> str:
        """A database with the tables of the store in this folder, to be copied."""
        if checkout not in self._with_tables:
            name = f"store{len(self._with_tables)}"
            environment = {**clean_environment(self.folder / name), "DATABASE_URL": self.new_database(name)}
            command = [sys.executable, "-m", "taskstore_project", "migrate", "--verbosity=0", "--skip-checks"]
            subprocess.run(command, cwd=checkout, env=environment, check=True)
            self._with_tables[checkout] = name
        return self._with_tables[checkout]

    def drop(self, name: str) -> None:
        # Somebody may be on their way out still.
        self.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreServer:
    """A server of this store."""

    url: str
    grpc: str  # Its address; empty where it speaks none.
    token: str
    pid: int


@dataclass
class Services:
    """What has been started so far; all of it ends with the `with` block."""

    parent: Path  # Where the folders of the databases are made.
    _stack: ExitStack = field(default_factory=ExitStack)
    _postgresql: PostgreSQL | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def postgresql(self) -> PostgreSQL:
        if self._postgresql is None:
            try:
                self._postgresql = self._stack.enter_context(PostgreSQL(self.new_folder("postgresql")).running())
            except CannotTry as problem:
                raise CannotRun(str(problem)) from None
        return self._postgresql

    def versions(self) -> dict[str, str]:
        """Of those that have been started."""
        return {"PostgreSQL": self._postgresql.version()} if self._postgresql else {}

    def new_folder(self, name: str) -> Path:
        """One that goes at the end."""
        # Side by side, not in one: PostgreSQL's is given to another user, who has to reach it.
        folder = Path(tempfile.mkdtemp(prefix=f"taskstore-{name}-", dir=self.parent))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder


@contextmanager
def store_server(
    command: tuple[str, ...], folder: Path, variables: Mapping[str, str], checkout: Path
) -> Iterator[StoreServer]:
    """A server of the store in `checkout`, ready. `folder`: for all that is its own, `variables`: its settings."""
    data, log = folder / "data", folder / "log"
    environment = {**clean_environment(data), **variables}
    with _running([sys.executable, "-m", "taskstore_project", *command], log, environment, checkout) as process:
        _wait_until(lambda: b"ready: http" in log.read_bytes(), process, log)
        found = json.loads((data / "server.json").read_bytes())
        yield StoreServer(url=found["url"], grpc=found["grpc"], token=found["token"], pid=process.pid)


@contextmanager
def _running(
    command: list[str], log: Path, environment: dict[str, str] | None = None, cwd: Path = PROJECT
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for us, who stop it.
        )
    try:
        yield process
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_until(is_ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + START_S
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline_s:
            said = log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise CannotMeasure(f"a server did not start: {said}")
        time.sleep(0.02)
