"""Many client processes at a server, and what they wrote down."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.server.harness import Server, Store

from . import client
from .checker import History
from .history import events_in, truth_of

GOODBYE_S = 60


@contextmanager
def clients(servers: Sequence[Server], token: str, folder: Path, *, count: int, seconds: float) -> Iterator[None]:
    """So many clients at work, in turn on each of the servers; at the end all have done their part."""
    processes = [
        subprocess.Popen(command(servers[number % len(servers)], token, number, seconds, folder))
        for number in range(1, count + 1)
    ]
    try:
        yield
        for process in processes:
            assert process.wait(seconds + GOODBYE_S) == 0, "a client broke down"
    finally:
        for process in processes:
            process.kill()
            process.wait()


def command(server: Server, token: str, number: int, seconds: float, folder: Path) -> list[str]:
    address = server.url.removeprefix("http://")
    file = folder / f"client-{number}.jsonl"
    return [sys.executable, "-I", client.__file__, address, token, str(number), str(seconds), str(file)]


def history_of(store: Store, folder: Path) -> History:
    events = sorted(events_in(folder.glob("client-*.jsonl")), key=lambda event: event.sent_s)
    return History(events, truth_of(store.folder, store.database_url))


def new_token(store: Store) -> str:
    made = store.manage("token", "create", "stress", "--scope", "work")
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()
