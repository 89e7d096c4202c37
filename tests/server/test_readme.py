"""Every command of README.md, and of the pages that it begins with, does what the text around it says."""

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
from click import Context
from django.core.management import get_commands, load_command_class

from lab.demo.wordcount_worker import Store as Rest
from lab.testing import PROJECT
from taskstore.cli.change import BULK_COMMANDS

from .harness import Server, Store, empty, wait_for

README = (PROJECT / "README.md").read_text()
DOCS = PROJECT / "docs"
COMMANDS = (DOCS / "manage.md").read_text()
ADDRESS = "http://127.0.0.1:8048"


def blocks_of(page: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


BLOCKS = blocks_of(README)


def blocks(language: str, containing: str, page: str = README) -> list[str]:
    found = [text for name, text in blocks_of(page) if name == language and containing in text]
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

    def run(self, script: str, folder: Path = PROJECT) -> str:
        command = ["bash", "-euo", "pipefail", "-c", script.replace(ADDRESS, self.url)]
        done = subprocess.run(
            command, cwd=folder, env=self.environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def terminal(lasting_store: Store, server: Server) -> Iterator[Terminal]:
    yield Terminal(lasting_store, server)
    empty(server, lasting_store.token)


@pytest.fixture
def token(terminal: Terminal) -> str:
    [making] = blocks("sh", "token create", (DOCS / "tokens.md").read_text())
    return terminal.run(f'{making}\necho "$TOKEN"').strip()


@pytest.mark.once
def test_every_block_is_run_here():
    kinds = ("up\n", "test\n", "demo ", "add mail")
    for language, text in BLOCKS:
        assert language in ("sh", "python")
        assert language != "sh" or sum(kind in text for kind in kinds) == 1


def test_a_task_is_found_by_its_words_and_by_its_labels(terminal, token, server):
    by_words, by_labels = blocks("sh", "curl ", (DOCS / "search.md").read_text())
    with Rest(server.url, token) as store:
        labels = {"tier": "gold", "region": "eu"}
        store.commit(adds=[{"group": "mail", "data": "hello", "labels": labels}, {"group": "mail", "data": "again"}])
    [labelled] = json.loads(terminal.run(f"export TOKEN={token}\n{by_labels}"))
    assert labelled["data"] == "hello"
    with Rest(server.url, token) as store:
        store.claim("mail", 2)
    found = json.loads(terminal.run(f"export TOKEN={token}\n{by_words}"))
    assert [task["data"] for task in found["tasks"]] == ["hello"]


@pytest.mark.once
def test_the_command_adds_a_task(terminal, token, server):
    [script] = blocks("sh", "add mail")
    adding, _ = script.splitlines()
    assert terminal.run(adding).startswith("added task")
    with Rest(server.url, token) as store:
        assert [task["data"] for task in store.tasks("mail")] == ["hello"]


@pytest.mark.once
def test_the_first_task_is_added_claimed_and_seen(terminal, token):
    script = "".join(f"{text}\necho\n" for text in blocks("sh", "curl ", (DOCS / "first-hour.md").read_text()))
    answers = terminal.run(f"export TOKEN={token}\n{script}").splitlines()
    added, claimed, [seen] = map(json.loads, answers)
    [first], [second] = added["tasks"], claimed["tasks"]
    assert (first["group"], first["data"]) == ("mail", "hello")
    assert second["id"] > first["id"]
    assert second["ownerid"] == 2
    assert seen == second


FIRST_HOUR = (DOCS / "first-hour.md").read_text()

# What the reader waits for, who sees both terminals; what only one who is asked can type; and what is elsewhere here.
SEEN = {
    "python3 manage.py ls sent": "until manage ls sent | grep ann@; do sleep 0.4; done",
    "sleep 2\nkill -9 $MAILER": "until grep 'sending to bob@' said; do sleep 0.4; done\nkill -9 $MAILER",
    "python3 manage.py search group:mail/failed": "until manage ls mail/failed | grep hello; do sleep 0.4; done",
    "sleep 10": "until manage ls mail/failed | grep carl; do sleep 0.4; done",
    "kill $MAILER\nwait": "until manage ls sent | grep bob@; do sleep 0.4; done\nkill $MAILER\nwait",
    "purge group:count/output": "purge group:count/output --type count/output --yes",
    "60000": "1000",
    "python3 manage.py": "manage",
    "mailer.py &": "mailer.py >> said 2>&1 &",
    ".venv/bin/python": sys.executable,
}


@pytest.mark.once
def test_the_first_hour_goes_as_it_is_told(terminal, tmp_path):
    """Each file and each command in their order, but those of the browser; the minute of client 2 is a second."""
    told = blocks_of(FIRST_HOUR)
    assert [each for each in SEEN if not any(each in text for _, text in told)] == []
    lines = (PROJECT / "LICENSE").read_text().splitlines(keepends=True)
    (tmp_path / "LICENSE").write_text("".join(lines[:40]))  # All of it takes as long as anybody wants to watch.
    script = "".join(step(language, text) for language, text in told if text != "python3 manage.py up\n")
    manage = f'manage() {{ {sys.executable} {PROJECT}/manage.py "$@"; }}\nexport PYTHONPATH={PROJECT}\n'
    said = terminal.run(manage + script, tmp_path)
    assert "bob@example.org" in terminal.run("python3 manage.py ls sent")
    assert "right: the " in said
    assert "count/output" not in terminal.run("python3 manage.py groups")


def step(language: str, text: str) -> str:
    if language == "python":
        name = text.partition("\n")[0].removeprefix("# ")
        assert re.search(f"Save (this|the script) as `{name}`", " ".join(FIRST_HOUR.split()))
        return f"cat > {name} <<'END'\n{text}END\n"
    if language != "sh":
        return ""  # What is seen, and differs each time.
    for told, done in SEEN.items():
        text = text.replace(told, done)
    return text


@pytest.mark.once
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
    assert "have the same count as in a simple count" in said


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
    commands = ("up", "serve", "test", "bench", "chaos", "token create", "demo wordcount", "demo seed")
    requeue = BULK_COMMANDS["requeue"]
    helps = "".join([*map(help_of, (*commands, "verify", "cluster demo")), requeue.get_help(Context(requeue))])
    for option in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README + COMMANDS)) - {"--help"}:
        assert option in helps


def help_of(command: str) -> str:
    name, *words = command.split()
    parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
    told = io.StringIO()
    with redirect_stdout(told), pytest.raises(SystemExit):
        parser.parse_args([*words, "--help"])
    return told.getvalue()


@pytest.mark.once
@pytest.mark.parametrize(
    "page", ["README.md", "CHANGELOG.md", *sorted(f"docs/{each.name}" for each in DOCS.glob("*.md"))]
)
def test_what_it_leads_to_is_there(page):
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", (PROJECT / page).read_text()):
        place, _, heading = link.partition("#")
        target = (PROJECT / page).parent / place if place else PROJECT / page
        assert target.exists(), link
        assert not heading or heading in headings_of(target), link


def headings_of(page: Path) -> set[str]:
    """As links name them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
