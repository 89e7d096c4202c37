"""Real server processes, each with a data directory and a database of its own."""

from __future__ import annotations

import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg

from lab.testing import NO_TLS, PROJECT
from lab.testing.environment import clean_environment
from lab.testing.processes import ending_with_us

from .prepared import PreparedProcess
from .prepared_workers import NAME as FORKER

START_SECONDS = 60  # The machine may be busy.
END_SECONDS = 10  # What is promised.
is_prepared = True  # Whether processes begin with their packages imported.


class Server:
    """A process of `manage.py up`, and what it has said so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said = ""
        self.url = ""
        self._complaints: list[str] = []
        # Read all the time: a process that says more than fits a pipe would stop.
        self._listening = threading.Thread(target=self._listen_to_complaints, daemon=True)
        self._listening.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    @property
    def complaints(self) -> str:
        """All that it wrote to standard error; the process has to be at its end."""
        self._listening.join(END_SECONDS)
        return "".join(self._complaints)

    @property
    def workers(self) -> list[int]:
        """The worker processes of `serve`."""
        children = map(int, Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split())
        return [pid for pid in children if Path(f"/proc/{pid}/comm").read_bytes().strip() != FORKER]

    def wait_until_ready(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.said += line
            if found := re.search(r"ready: (https?://\S+)/console/", line):
                self.url = found[1]
                return
        self.process.wait()
        raise AssertionError(f"the server ended with {self.process.returncode}: {self.complaints}")

    def ask(self, method: str, path: str, token: str = "", **body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.request(
            method, self.url + path, headers=headers, timeout=START_SECONDS, trust_env=False, verify=NO_TLS, **body
        )

    def tell(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Tell it to end, wait as long as is promised, and return its exit code."""
        self.tell(number)
        return self.process.wait(END_SECONDS)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._listening.join(END_SECONDS)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe
            pipe.close()

    def _listen_to_complaints(self) -> None:
        assert self.process.stderr
        self._complaints.extend(self.process.stderr)


class Store:
    """A data directory with its database, in which servers and commands are started."""

    def __init__(self, parent: Path, database_url: str = "") -> None:
        self.folder = parent / "data"
        self.database_url = database_url  # Empty: SQLite in the folder.
        self._environment = {**clean_environment(self.folder), "DATABASE_URL": database_url}

    def manage(
        self, *arguments: str, patience_s: float = START_SECONDS, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """A command that ends by itself."""
        with self._process(arguments, variables) as process:
            try:
                told = process.communicate(timeout=patience_s)
            finally:
                process.kill()
        return subprocess.CompletedProcess(arguments, process.returncode, *told)

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """A command that is under way; its output is one text. The caller ends it."""
        return self._process(arguments, stderr=subprocess.STDOUT)

    def start(self, *arguments: str, command: str = "up", **variables: str) -> Server:
        """A server that may not have got far yet. The caller kills it at the end."""
        own = [*command.split(), "--port", "0", "--grpc-port", "0", *arguments]
        return Server(self._process(own, variables))

    def _process(
        self, arguments: Sequence[str], variables: Mapping[str, str] = {}, stderr: int = subprocess.PIPE
    ) -> subprocess.Popen[str]:
        environment = {**self._environment, **variables}
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": stderr, "text": True}
        if is_prepared and "PYTHONPATH" not in variables:
            return PreparedProcess(arguments, cwd=PROJECT, env=environment, **pipes)
        command = ending_with_us([sys.executable, "manage.py", *arguments])
        return subprocess.Popen(command, cwd=PROJECT, env=environment, **pipes)

    @contextmanager
    def up(self, *arguments: str, command: str = "up", **variables: str) -> Iterator[Server]:
        """A server that is ready; killed at the end if it still runs."""
        server = self.start(*arguments, command=command, **variables)
        try:
            server.wait_until_ready()
            yield server
        finally:
            server.kill()

    @property
    def token(self) -> str:
        """For programs on this machine, while a server runs."""
        return str(self._shown["token"])

    @property
    def grpc(self) -> str:
        """The address of gRPC, while a server runs that has it."""
        return str(self._shown["grpc"])

    @property
    def _shown(self) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads((self.folder / "server.json").read_bytes())
        return shown

    @contextmanager
    def nobody_can_write(self) -> Iterator[None]:
        """Requests that add tasks are under way until this ends."""
        if self.database_url:
            with psycopg.connect(self.database_url) as postgresql:
                postgresql.execute("LOCK TABLE tasks_app_task IN EXCLUSIVE MODE")
                yield
        else:
            with closing(sqlite3.connect(self.folder / "taskstore.sqlite3", isolation_level=None)) as sqlite:
                sqlite.execute("BEGIN IMMEDIATE")
                yield


def empty(server: Server, token: str) -> None:
    """Delete every task, each in the name of its owner. The server may be moving commands to other groups."""
    until = time.monotonic() + 30
    while groups := server.ask("GET", "/groups", token).json():
        assert time.monotonic() < until, groups
        for group in groups:
            for task in server.ask("GET", "/group", token, params={"name": group, "owned": "yes"}).json():
                asked = {"clientid": task["ownerid"], "deletes": [task["id"]]}
                server.ask("POST", "/update", token, json=asked)


def wait_for(condition: Any, what: str) -> None:
    """Look again and again until it is so. Fails with `what` when it takes too long."""
    deadline, rest_s = time.monotonic() + START_SECONDS, 0.02
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in {START_SECONDS} s"
        time.sleep(rest_s)
        rest_s = min(1.2 * rest_s, 0.3)  # To look costs as much as what it waits for.


def accepts(server: Server) -> bool:
    """Whether the server takes a new connection."""
    try:
        with socket.create_connection(server.address):
            return True
    except ConnectionRefusedError:
        return False


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
