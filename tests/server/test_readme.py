"""Every command of README.md does what the text around it says."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from django.core.management import load_command_class

from taskstore_project.demo.wordcount_worker import Store as Rest
from taskstore_project.testing import PROJECT

from .harness import Server, Store, empty, wait_for

README = (PROJECT / "README.md").read_text()
ADDRESS = "http://127.0.0.1:8048"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def blocks(language: str, containing: str) -> list[str]:
    found = [text for name, text in BLOCKS if name == language and containing in text]
    assert found
    return found


@pytest.fixture
def server(lasting_server: Server) -> Server:
    return lasting_server


class Terminal:
    """A shell in the project, as somebody has who reads along."""

    def __init__(self, store: Store, server: Server) -> None:
        own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "DATABASE_URL": store.database_url}
        self.environment = {**os.environ, **own, "TASKSTORE_DATA": str(store.folder)}
        self.url = server.url

    def run(self, script: str) -> str:
        command = ["bash", "-euo", "pipefail", "-c", script.replace(ADDRESS, self.url)]
        done = subprocess.run(
            command, cwd=PROJECT, env=self.environment, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def terminal(lasting_store: Store, server: Server) -> Iterator[Terminal]:
    yield Terminal(lasting_store, server)
    empty(server, lasting_store.token)


@pytest.fixture
def token(terminal: Terminal) -> str:
    [making] = blocks("sh", "token create")
    return terminal.run(f'{making}\necho "$TOKEN"').strip()


def test_every_block_is_run_here():
    kinds = ("up\n", "test\n", "demo ", "token create", "curl ")
    for language, text in BLOCKS:
        assert language in ("sh", "python", "yaml")  # test_metrics.py is about the last one.
        assert language != "sh" or sum(kind in text for kind in kinds) == 1


def test_the_first_task_is_added_claimed_and_seen(terminal, token):
    script = "".join(f"{text}\necho\n" for text in blocks("sh", "curl "))
    answers = terminal.run(f"export TOKEN={token}\n{script}").splitlines()
    added, claimed, [seen], found = map(json.loads, answers)
    [first], [second] = added["tasks"], claimed["tasks"]
    assert (first["group"], first["data"]) == ("mail", "hello")
    assert second["id"] > first["id"]
    assert second["ownerid"] == 2
    assert seen == second
    assert found["tasks"] == [second]


def test_the_worker_does_the_task(terminal, token, server, tmp_path):
    [source] = blocks("python", "Worker(")
    file = tmp_path / "worker.py"
    file.write_text(source)
    environment = {**terminal.environment, "PYTHONPATH": str(PROJECT)}  # It is said to lie in the checkout.
    worker = subprocess.Popen([sys.executable, str(file)], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        with Rest(server.url, token) as store:
            store.commit(adds=[{"group": "mail", "data": "hello"}, {"group": "mail", "data": "again"}])
            wait_for(lambda: len(store.tasks("sent")) == 2, "the work")
            assert sorted(task["data"] for task in store.tasks("sent")) == ["AGAIN", "HELLO"]
            assert store.groups() == ["sent"]
        worker.terminate()
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        said, _ = worker.communicate()
    assert sorted(said.splitlines()) == ["sending again", "sending hello"]


@pytest.mark.once
def test_the_demo_counts(terminal):
    [demo] = blocks("sh", "demo ")
    said = terminal.run(f"{demo.strip()} README.md")
    assert "have the same count as in a plain count" in said


def test_the_first_command_serves(empty_place):
    store = empty_place
    plain, on_postgresql = blocks("sh", " up\n")
    command = plain
    if store.database_url:
        command = on_postgresql.replace("postgresql://user:password@host/database", f"'{store.database_url}'")
    own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TASKSTORE_DATA": str(store.folder)}
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"} | own
    # Other ports than those that it says, which may be in use here.
    script = command.replace("python3 manage.py up", "exec python3 manage.py up --port 0 --grpc-port 0")
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=PROJECT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    server = Server(process)
    try:
        server.wait_until_ready()
        assert "password" in server.said
        assert server.ask("GET", "/healthz").status_code == 200
        assert "openapi" in server.ask("GET", "/schema", store.token).text
    finally:
        server.kill()


@pytest.mark.once
def test_every_option_exists():
    commands = ("up", "serve", "test", "bench", "chaos", "token create", "bulk purge", "demo wordcount", "demo seed")
    helps = "".join(map(help_of, (*commands, "verify", "cluster demo")))
    for option in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)) - {"--help"}:
        assert option in helps


def help_of(command: str) -> str:
    name, *words = command.split()
    parser = load_command_class("taskstore_project", name).create_parser("manage.py", name)
    told = io.StringIO()
    with redirect_stdout(told), pytest.raises(SystemExit):
        parser.parse_args([*words, "--help"])
    return told.getvalue()


@pytest.mark.once
def test_what_it_leads_to_is_there():
    for place in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (PROJECT / place).exists(), place
