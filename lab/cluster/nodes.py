"""A cluster of real processes on this machine, in a temporary folder, which ends with the `with` block."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Self

import httpx
import psycopg
from psycopg import sql

from lab.testing import CannotTry
from lab.testing import postgresql as throw_away
from lab.testing.debian import program
from lab.testing.places import make_store, wait_until
from lab.testing.processes import LOOK_EVERY_S, PROC, is_alive
from lab.testing.servers import StoreServer

from . import configuration
from .configuration import DATABASE, DATABASES, HOST, NODES, SUPERUSER, Plan

PATIENCE_S = 5  # For the response of a local program.
SYNCHRONOUS = "SELECT application_name FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync'"


@dataclass
class Program:
    """A program with all its processes: everything that runs in its folder. Not as root, which most of them refuse."""

    command: Sequence[str]
    folder: Path
    _process: subprocess.Popen[bytes] | None = None

    def write(self, name: str, text: str) -> None:
        """Write a file that no other user can read."""
        file = self.folder / name
        file.touch(mode=0o600)
        file.write_text(text)

    def begin(self) -> None:
        throw_away.give(self.folder)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C must reach only this process, which ends it.
                **throw_away.identity(),
            )

    def kill(self) -> None:
        """Kill all its processes, and wait until they are gone. PostgreSQL does not stay a child of Patroni."""
        while alive := [pid for pid in at_work_in(self.folder) if is_alive(pid)]:
            for pid in alive:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(LOOK_EVERY_S)
        if self._process is not None:
            self._process.wait()


def at_work_in(folder: Path) -> list[int]:
    """Return the processes that work in or below the folder."""
    return [int(each.name) for each in PROC.iterdir() if each.name.isdigit() and _works_in(each, folder)]


def _works_in(process: Path, folder: Path) -> bool:
    # Not readable for ended processes and for those of other users.
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        return (process / "cwd").readlink().is_relative_to(folder)
    return False


class Cluster:
    """`say` gets a line for each step."""

    def __init__(self, parent: Path, say: Callable[[str], None]) -> None:
        self.plan, self._say = Plan.new(), say
        # The real path, because processes are found by it.
        self.folder = Path(mkdtemp(prefix="taskstore-cluster-", dir=parent)).resolve()
        # The programs' user must be able to pass through to its folders, which others can't read.
        self.folder.chmod(0o711)
        self.is_kept = False  # Whether the folder with all logs stays.
        self.parts: dict[str, Program | StoreServer] = {}  # In the order of their start.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # A second Ctrl-C must not leave processes behind.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for part in reversed(self.parts.values()):
            part.kill()
        if not self.is_kept:
            shutil.rmtree(self.folder, ignore_errors=True)

    # ---- Start

    def start(self) -> None:
        """Start everything. Raises CannotTry, also when a program is missing and can't be installed."""
        self._begin("etcd", configuration.etcd(program(("etcd",), ("etcd-server",)), self.plan), {})
        self._wait(lambda: _answers(self.plan.port["etcd"], "/health"), "etcd has a leader")
        patroni, binaries = program(("patroni",), ("patroni",)), _postgresql()
        for name in DATABASES:
            text = configuration.patroni(name, self.plan, self.folder / name, binaries)
            self._begin(name, [patroni, "patroni.json"], {"patroni.json": text})
        haproxy = [program(("haproxy",), ("haproxy",)), "-db", "-f", "haproxy.cfg"]
        self._begin("haproxy", haproxy, {"haproxy.cfg": configuration.haproxy(self.plan)})
        self._wait(self.is_whole, "PostgreSQL has a primary, and its standby follows synchronously")
        files = {
            "pgbouncer.ini": configuration.pgbouncer(self.plan),
            "users.txt": configuration.pgbouncer_users(self.plan),
        }
        self._begin("pgbouncer", [program(("pgbouncer",), ("pgbouncer",)), "pgbouncer.ini"], files)
        self._make_store()
        for name in NODES:
            self._add_node(name)
        self._wait(self.is_ready, "haproxy finds the web nodes")

    def _begin(self, name: str, command: Sequence[str], files: dict[str, str]) -> None:
        started = Program(command, self.new_folder(name))
        for file, text in files.items():
            started.write(file, text)
        self.parts[name] = started
        started.begin()

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, what)
        self._say(what)

    def new_folder(self, name: str) -> Path:
        """Create a folder that no other user can enter."""
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        return folder

    def _make_store(self) -> None:
        with psycopg.connect(self.plan.url("primary", SUPERUSER), autocommit=True) as connection:
            name, password = sql.Identifier(DATABASE), sql.Literal(self.plan.password[DATABASE])
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(name, password))
            connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(name, name))
        folder = self.new_folder("store")
        self.token = make_store(folder, self.plan.url("primary"))
        self._say("the store has been created")

    def _add_node(self, name: str) -> None:
        # haproxy passes the client's address on.
        variables = {"DATABASE_URL": self.plan.url("pgbouncer"), "TASKSTORE_PROXIES": "1"}
        server = StoreServer(("serve", "--workers", "1"), self.folder / name, variables, port=self.plan.port[name])
        self.parts[name] = server
        server.begin()
        self._wait(server.is_ready, f"{name} is ready at {server.url}")

    # ---- State

    @property
    def address(self) -> str:
        return f"{HOST}:{self.plan.port['web']}"

    def leader(self) -> str:
        """Return the name of the primary database; empty if there is none."""
        return next((name for name in DATABASES if self._is(name, "primary")), "")

    def is_whole(self) -> bool:
        """Whether the standby follows synchronously, and Patroni knows of it: it promotes no other one."""
        with (
            suppress(psycopg.OperationalError),
            psycopg.connect(self.plan.url("primary", SUPERUSER), connect_timeout=PATIENCE_S) as connection,
        ):
            is_there = len(connection.execute(SYNCHRONOUS).fetchall()) == len(DATABASES) - 1
            return is_there and any(self._is(name, "sync") for name in DATABASES)
        return False

    def _is(self, name: str, role: str) -> bool:
        return _answers(self.plan.port[f"{name}-patroni"], f"/{role}")

    def is_ready(self) -> bool:
        """Whether the store can be used through haproxy."""
        return _answers(self.plan.port["web"], "/readyz")

    def addresses(self) -> dict[str, str]:
        """Return addresses and passwords, to look around."""
        return {
            "store": f"http://{self.address}",
            "token": self.token,
            "primary": self.plan.url("primary"),
            "primary through pgbouncer": self.plan.url("pgbouncer"),
            **{name: f"http://{HOST}:{port}" for name, port in self.plan.port.items() if "patroni" in name},
            "folder": str(self.folder),
        }

    def last_words(self) -> dict[str, str]:
        """Return the last line of each log, by its name."""
        logs = sorted([*self.folder.glob("*/log"), *self.folder.glob("*.log")])
        return {
            str(log.relative_to(self.folder)): log.read_text(errors="replace").strip().rpartition("\n")[2]
            for log in logs
        }


def _postgresql() -> Path:
    """Return the folder of PostgreSQL's programs. Raises CannotTry."""
    if not throw_away.system_binaries():
        program(("postgres",), ("postgresql",))  # Installs it; Debian's is not on the PATH, so search again.
    found = throw_away.system_binaries()
    if not found:
        raise CannotTry(f"There is no PostgreSQL {throw_away.OLDEST} or later; {throw_away.REMEDY}")
    return found


def _answers(port: int, path: str) -> bool:
    with suppress(httpx.HTTPError):
        # Ignore the environment's proxies.
        return httpx.get(f"http://{HOST}:{port}{path}", timeout=PATIENCE_S, trust_env=False).status_code == 200
    return False
