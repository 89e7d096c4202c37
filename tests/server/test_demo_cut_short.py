"""`manage.py demo wordcount` that is cut short, or whose server is away."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import Server, Store, wait_for
from .rest import Rest
from .texts import write_text

pytestmark = pytest.mark.once


@pytest.fixture
def server(store: Store) -> Iterator[Server]:
    with store.up() as server:
        yield server


@pytest.fixture
def rest(server: Server, store: Store) -> Iterator[Rest]:
    with Rest(server.url, store.token) as rest:
        yield rest


def test_an_interrupted_run_is_cleaned_up(store, rest, tmp_path):
    demo = store.begin("demo", "wordcount", str(write_text(tmp_path, 20_000)), "--workers", "2")
    wait_for(lambda: any("/words/" in group for group in rest.groups()), "the first count")
    demo.send_signal(signal.SIGINT)
    output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert "Traceback" not in output
    assert rest.groups() == []


def test_workers_end_with_a_demo_that_is_killed(store, rest, tmp_path):
    demo = store.begin("demo", "wordcount", str(write_text(tmp_path, 20_000)), "--workers", "2")
    wait_for(lambda: any("/words/" in group for group in rest.groups()), "the first count")
    [run] = {group.rpartition("/words/")[0] for group in rest.groups() if "/words/" in group}
    wait_for(lambda: len(processes_of(run)) == 2, "both workers")
    demo.kill()
    demo.communicate()
    wait_for(lambda: not processes_of(run), "the end of the workers")


def test_it_ends_when_its_token_is_revoked_meanwhile(store, server, rest, tmp_path):
    token = store.manage("token", "create", "demo", "--scope", "work").stdout.strip()
    text = str(write_text(tmp_path, 150_000))  # More than they count while the server still trusts the token.
    demo = store.begin("demo", "wordcount", text, "--workers", "1", "--url", server.url, "--token", token)
    wait_for(lambda: any("/words/" in group for group in rest.groups()), "the first count")
    store.manage("token", "revoke", "demo")
    output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 2
    assert "unknown, expired or revoked" in output
    assert "Traceback" not in output


def test_without_a_server_it_says_what_to_do(store):
    done = store.manage("demo", "wordcount")
    assert done.returncode == 2
    assert done.stderr == (
        "taskstore: no server runs on this data directory: "
        f"start one with `python3 manage.py up --data {store.folder}`, or name one with --url and --token\n"
    )


def test_a_server_that_was_killed_is_told_from_one_that_runs(store):
    with store.up():
        pass
    done = store.manage("demo", "wordcount")
    assert done.returncode == 2
    hint = re.escape(f"start one with `python3 manage.py up --data {store.folder}`")
    assert re.fullmatch(rf"taskstore: no server responds at http://\S+ \(.*\): {hint}\n", done.stderr)


def processes_of(run: str) -> list[Path]:
    return [process for process in Path("/proc").glob("[0-9]*/cmdline") if run.encode() in read_bytes(process)]


def read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # The process has gone meanwhile.
        return b""
