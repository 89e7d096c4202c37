"""The units of docs/deployment: systemd accepts them, and what they start works."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.testing.debian import program
from lab.testing.environment import clean_environment

from .deployed import DEPLOYMENT, INSTALLED, Unit, taskstore_in, variables_of
from .harness import END_SECONDS, START_SECONDS, Server, Store, wait_for

pytestmark = pytest.mark.once

UNITS = sorted(path.name for path in DEPLOYMENT.iterdir() if path.suffix in (".service", ".timer"))
SERVICES = [name for name in UNITS if name.endswith(".service")]
OF_A_PROJECT = "/srv/shop/.venv/bin/python"
HTTPS = {"X-Forwarded-Proto": "https", "Host": "tasks.example.org"}  # As the proxy says it.
JOB = """
from taskstore import job


@job
def count_words(text):
    return len(text.split())
"""


@pytest.fixture
def taskstore(tmp_path):
    return taskstore_in(tmp_path)


class Machine:
    """What systemd gives a service: variables, folders and a socket that hears of its state."""

    def __init__(self, folder: Path, store: Store, taskstore: Path) -> None:
        self.data = folder / "state" / "taskstore"
        self.data.mkdir(parents=True)
        self.backups = folder / "state" / "taskstore-backups"
        self.backups.mkdir()
        self._store, self._taskstore = store, taskstore

    def command(self, name: str) -> list[str]:
        """ExecStart, with the installed program where this test has it."""
        line = Unit(name)["Service"]["ExecStart"]
        assert INSTALLED in line
        line = (
            line.replace(INSTALLED, str(self._taskstore)).replace("%%", "%").replace("$$", "$").replace("%I", "reports")
        )
        return shlex.split(line)

    def environment(self, name: str) -> dict[str, str]:
        service = Unit(name)["Service"]
        own, _, value = service.get("Environment", "").partition("=")
        environment = clean_environment(self.data) | {"DATABASE_URL": self._store.database_url}
        environment |= variables_of(Path(service["EnvironmentFile"]).name)
        if own:
            environment[own] = value.replace("%S", str(self.data.parent))
        return environment | {"STATE_DIRECTORY": str(self.backups)}

    @contextmanager
    def up(self, folder: Path) -> Iterator[Server]:
        """The server as its unit starts it, on any free ports; entered when systemd was told that it serves."""
        environment = self.environment("taskstore.service") | {"NOTIFY_SOCKET": str(folder / "notify")}
        command = [*self.command("taskstore.service"), "--port", "0", "--grpc-port", "0"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.bind(environment["NOTIFY_SOCKET"])
            told.settimeout(START_SECONDS)
            pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            server = Server(subprocess.Popen(command, env=environment, text=True, **pipes))
            try:
                assert told.recv(100) == b"READY=1"
                server.url = json.loads((self.data / "server.json").read_bytes())["url"]
                yield server
                assert server.end() == 0
                assert told.recv(100) == b"STOPPING=1"
            finally:
                server.kill()

    @property
    def token(self) -> str:
        return str(json.loads((self.data / "server.json").read_bytes())["token"])


@pytest.fixture
def machine(tmp_path, empty_place, taskstore):
    return Machine(tmp_path, empty_place, taskstore)


def test_systemd_finds_nothing_to_say(tmp_path):
    analyze = program(("systemd-analyze",), ("systemd",))
    for name in UNITS:
        # What is not there on this machine would be said.
        (tmp_path / name).write_text(
            (DEPLOYMENT / name).read_text().replace(INSTALLED, "/bin/true").replace(OF_A_PROJECT, "/bin/true")
        )
    names = [str(tmp_path / name) for name in UNITS]
    told = subprocess.run([analyze, "verify", *names], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


@pytest.mark.parametrize("name", SERVICES)
def test_what_it_installs_is_named_in_its_first_line(name):
    first = (DEPLOYMENT / name).read_text().partition("\n")[0]
    assert f"/etc/systemd/system/{name}" in first


def test_the_server_can_do_little_else_than_serve():
    analyze = program(("systemd-analyze",), ("systemd",))
    command = [analyze, "security", "--offline=true", "--threshold=20", str(DEPLOYMENT / "taskstore.service")]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout  # Of 100, which is a service without any limits.


def test_the_server_works_and_says_so(machine, tmp_path):
    with machine.up(tmp_path) as server:
        assert server.ask("GET", "/readyz").status_code == 200
        page = httpx.get(f"{server.url}/console/login", headers=HTTPS, timeout=START_SECONDS, trust_env=False)
        assert page.status_code == 200
        assert "Strict-Transport-Security" in page.headers


def test_a_backup_is_made_beside_the_server(machine, tmp_path):
    with machine.up(tmp_path):
        command, environment = (
            machine.command("taskstore-backup.service"),
            machine.environment("taskstore-backup.service"),
        )
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    [backup] = machine.backups.iterdir()
    assert zipfile.ZipFile(backup).testzip() is None


def test_a_worker_does_jobs_and_ends_in_time(machine, tmp_path):
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "reports.py").write_text(JOB)
    with machine.up(tmp_path) as server:
        command = machine.command("taskstore-worker@.service")
        environment = machine.environment("taskstore-worker@.service")
        environment |= {"TASKSTORE_URL": server.url, "TASKSTORE_TOKEN": machine.token}
        worker = subprocess.Popen(command, cwd=jobs, env=environment)
        try:
            asked = {"function": "reports.count_words", "args": ["to be or not"]}
            job = server.ask("POST", "/jobs", machine.token, json=asked).json()["id"]
            path = f"/jobs/{job}"
            wait_for(lambda: server.ask("GET", path, machine.token).json()["status"] == "succeeded", "the job")
            assert server.ask("GET", path, machine.token).json()["result"] == 4
            worker.terminate()
            assert worker.wait(2 * END_SECONDS) == 0
        finally:
            worker.kill()
            worker.wait()
