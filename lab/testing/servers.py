"""Servers that can be killed and started again."""

from __future__ import annotations

import json
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import httpx

from . import NO_TLS, PROJECT, CannotTry
from .environment import clean_environment
from .processes import LOOK_EVERY_S, kill_family

START_S = 60.0  # For a busy machine.
END_S = 30.0
PORTS = range(20_000, 32_000)  # Below those that the system gives to outgoing connections: it stays free for a restart.
CHANCE = random.SystemRandom()
THE_PROJECT = ("-m", "taskstore_project")


class StoreServer:
    """A server of the store in this checkout, always on the same port. `command`: `up` or `serve`, with options."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        variables: Mapping[str, str],
        port: int = 0,
        checkout: Path = PROJECT,
    ) -> None:
        self._command, self.checkout = command, checkout
        self.folder = folder
        self.variables = variables
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder.with_suffix(".log")
        self._instances: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        """That of this machine, with all rights, as soon as the server has started."""
        return str(json.loads((self.folder / "server.json").read_bytes())["token"])

    @property
    def pid(self) -> int:
        if self._process is None:
            raise CannotTry("the server was not started")
        return self._process.pid

    def start(self, **variables: str) -> float:
        """Start it and wait until it serves. Returns the seconds that took."""
        began_s = time.monotonic()
        self.begin(**variables)
        self.wait_until_it_serves()
        return time.monotonic() - began_s

    def begin(self, **variables: str) -> None:
        if is_taken(self.port):
            raise CannotTry(f"somebody else listens on port {self.port}")
        name, *options = self._command
        words = [*THE_PROJECT, name, "--port", str(self.port), "--grpc-port", "0", *options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *words],
                cwd=self.checkout,
                env={**clean_environment(self.folder), **self.variables, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C must reach only this process, which ends it.
            )

    def wait_until_it_serves(self) -> None:
        """Wait until this start of it answers, not a previous one."""
        deadline = time.monotonic() + START_S
        while (instance := self.instance()) in {"", *self._instances}:
            if instance or time.monotonic() > deadline or not self.is_running:
                raise CannotTry(f"a server did not start: {self.last_words()}")
            time.sleep(LOOK_EVERY_S)
        self._instances.add(instance)

    def instance(self) -> str:
        """Return the instance id of the process that answers now; empty if none does."""
        try:
            return str(
                httpx.get(f"{self.url}/healthz", timeout=END_S, trust_env=False, verify=NO_TLS).json()["instance"]
            )
        except httpx.HTTPError:
            return ""

    def long_turns(self) -> int:
        """How many transactions kept all others from writing for over 250 ms."""
        headers = {"Authorization": f"Bearer {self.token}"}
        page = httpx.get(f"{self.url}/metrics", headers=headers, trust_env=False, verify=NO_TLS).text
        counts = dict(re.findall(r'^taskstore_sqlite_writing_seconds_bucket{le="(0.25|.Inf)"} (\S+)$', page, re.M))
        return int(float(counts["+Inf"]) - float(counts["0.25"]))

    def is_ready(self) -> bool:
        """Whether it is ready, including its database."""
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/readyz", timeout=END_S, trust_env=False, verify=NO_TLS).status_code == 200
        return False

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill it with all its processes."""
        if self._process is not None:
            kill_family(self._process)

    def end(self) -> int:
        """Shut it down with SIGTERM. Returns its exit code; raises CannotTry if it takes too long."""
        if self._process is None:
            raise CannotTry("the server was not started")
        self._process.terminate()
        try:
            return self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise CannotTry(f"a server did not end within {END_S:g} s of SIGTERM") from None

    def last_words(self) -> str:
        return self.log.read_text(errors="replace").strip().rpartition("\n")[2]


def free_port() -> int:
    """Return a port that is free now."""
    while is_taken(port := CHANCE.choice(PORTS)):
        pass
    return port


def is_taken(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=END_S).close()
    except OSError:
        return False
    return True


def command(*words: str, folder: Path, checkout: Path = PROJECT, **variables: str) -> str:
    """Run a command of the project in a checkout, and return its output. Raises CannotTry if it fails."""
    done = subprocess.run(
        [sys.executable, *THE_PROJECT, *words],
        cwd=checkout,
        env={**clean_environment(folder), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CannotTry(f"{' '.join(words)}: {done.stderr.strip().rpartition(chr(10))[2]}")
    return done.stdout.strip()
