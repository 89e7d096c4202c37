"""Every command of README.md, and of the pages that it begins with, does what the text around it says."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Self

import httpx
import pytest
from click import Context
from django.core.management import get_commands, load_command_class

from lab.testing import PROJECT
from taskstore.cli import commands_change
from taskstore.cli.change import BULK_COMMANDS
from taskstore_project import shell_worker

from .harness import Server, Store, empty, free_port, wait_for
from .rest import Rest

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
def test_the_first_task_is_added_claimed_and_seen(terminal, token):
    script = "".join(f"{text}\necho\n" for text in blocks("sh", "curl ", (DOCS / "first-hour.md").read_text()))
    answers = terminal.run(f"export TOKEN={token}\n{script}").splitlines()
    added, claimed, [seen] = map(json.loads, answers)
    [first], [second] = added["tasks"], claimed["tasks"]
    assert (first["group"], first["data"]) == ("mail", "hello")
    assert second["id"] > first["id"]
    assert second["ownerid"] == 2
    assert seen == second


# ---- The starts of the README, and the one of the guide of commands, pasted in an empty folder with a checkout


@pytest.fixture
def checkout(tmp_path):
    """What git knows of the checkout, with the environment that the first command would make."""
    folder = tmp_path / "checkout"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    names = subprocess.run(listed, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (PROJECT / name).is_file():  # Not one that is about to be removed.
            shutil.copyfile(PROJECT / name, folder / name)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


class Reader:
    """Pastes commands in a checkout, each `up` on a free port, and stops what runs on in the end."""

    def __init__(self, checkout: Path) -> None:
        self._checkout, self.port, self._running = checkout, free_port(), list[subprocess.Popen[bytes]]()
        kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "DATABASE_PASSWORD")}
        own = {"HOME": str(checkout.parent), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self._environment = {name: value for name, value in kept.items() if not name.startswith("TASKSTORE_")} | own

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._running):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)  # Ctrl-C.
            try:
                process.wait(60)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def paste(self, script: str) -> str:
        done = subprocess.run(
            self._command(script),
            cwd=self._checkout,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def leave_running(self, script: str) -> None:
        with (self._checkout.parent / "terminal.log").open("a") as log:
            process = subprocess.Popen(
                self._command(script),
                cwd=self._checkout,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._running.append(process)

    def serve(self, script: str) -> None:
        self.leave_running(script)
        wait_for(self._is_ready, "the server")

    def until(self, script: str, said: str) -> str:
        wait_for(lambda: said in self.paste(script), f"{said!r} from {script}")
        return self.paste(script)

    def _command(self, script: str) -> list[str]:
        script = re.sub(r"manage\.py up\b", f"manage.py up --port {self.port} --grpc-port 0", script)
        return ["bash", "-euo", "pipefail", "-c", script.replace("127.0.0.1:8048", f"127.0.0.1:{self.port}")]

    def _is_ready(self) -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{self.port}/readyz", trust_env=False).is_success
        return False


@pytest.mark.once
def test_the_start_with_jobs(checkout):
    [source] = blocks("python", "import job")
    [commands] = blocks("sh", "job enqueue")
    (checkout / "mail.py").write_text(source)
    serve, enqueue, work = commands.splitlines()
    with Reader(checkout) as reader:
        reader.serve(serve)
        reader.paste(enqueue)
        reader.leave_running(work)
        reader.until("python3 manage.py job list", "succeeded")
        assert "sending to ann" in reader.paste("python3 manage.py job show 1")


@pytest.mark.once
def test_the_start_with_shell_commands(checkout):
    [commands] = blocks("sh", "up --commands")
    serve, write, submit, work, see = commands.splitlines()
    with Reader(checkout) as reader:
        reader.serve(serve)
        reader.paste(f"{write}\n{submit}")
        reader.leave_running(work)
        reader.until("python3 manage.py commands status --json", '"completed": 100')
        assert "echo 100" in reader.paste(see)


@pytest.mark.once
def test_the_start_of_the_guide_of_commands_can_be_pasted_whole(checkout):
    commands = blocks("sh", "up --commands", (DOCS / "commands.md").read_text())[0]
    with Reader(checkout) as reader:
        said = reader.paste(f"trap 'kill %1; wait' EXIT\n{commands}")
    assert re.search(r"completed .*echo 'A'; sleep 2; echo 'B'", said)
    assert re.search(r"failed.* ls /nowhere", said)


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


def test_the_first_command_serves(empty_place):
    store = empty_place
    command = blocks("sh", " up\n")[0].splitlines()[0]
    if store.database_url:
        [on_postgresql] = blocks("sh", "DATABASE_URL=")
        command = on_postgresql.replace("postgresql://user:password@host/database", f"'{store.database_url}'")
    own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TASKSTORE_DATA": str(store.folder)}
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"} | own
    # Other ports than those that it says, which may be in use here.
    script = command.replace("python3 manage.py up", "exec python3 manage.py up --port 0 --grpc-port 0")
    process = subprocess.Popen(
        ["bash", "-c", script], cwd=PROJECT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
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
    ours = ("up", "serve", "test", "bench", "chaos", "token create", "demo wordcount", "demo seed", "verify")
    clients = (BULK_COMMANDS["requeue"], commands_change.submit, shell_worker.worker)
    helps = "".join([*map(help_of, (*ours, "cluster demo")), *(each.get_help(Context(each)) for each in clients)])
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
