"""Many client processes at a server, and what they wrote down."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from lab.chaos import client
from lab.chaos.client import Orders
from lab.chaos.history import History, events_in
from lab.chaos.truth import truth_of
from tests.server.harness import Server, Store

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
    orders = Orders(addresses=[address], token=token, number=number, seconds=seconds, file=str(file))
    return [sys.executable, "-I", client.__file__, json.dumps(asdict(orders))]


def history_of(server: Server, store: Store, folder: Path) -> History:
    """All that was asked, and what is there now that all have gone."""
    events = list(events_in(folder.glob("client-*.jsonl")))
    return History(events, truth_of(store.folder, store.database_url, server.url, store.token))


def new_token(store: Store) -> str:
    made = store.manage("token", "create", "stress", "--scope", "work")
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()
