"""Scenes about servers: kills, broken connections, contention."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from lab.testing.places import wait_until
from lab.testing.servers import StoreServer

from ..history import History, Truth
from ..outcome import Figure, SceneResult, outcome_of
from ..proxy import Proxy
from ..stage import Stage
from ..truth import FILE

START_S = 3.0
END_S = 30.0
NOTHING = Truth(living={}, ended={})


def kill_server(stage: Stage) -> SceneResult:
    """Kill servers in turn with kill -9, and start them again."""
    servers = stage.servers()
    started_s = []
    with stage.load(servers):
        for number in range(stage.pace.server_kills):
            stage.pause(0.3, 2.0)
            server = servers[number % len(servers)]
            server.kill()
            started_s.append(server.start())
        stage.pause(0.5, 1.0)
    history = stage.history(servers[0])
    problems = list(damage(servers[0].folder)) if stage.is_sqlite else []
    longest = Figure(name="serves again within", value=max(started_s), limit=START_S)
    return outcome_of(history, faults=len(started_s), problems=problems, figures=[longest])


def kill_migrate(stage: Stage) -> SceneResult:
    """Kill first starts at random moments with kill -9; the next start must make a working store."""
    problems: list[str] = []
    for number in range(stage.pace.migrate_kills):
        folder = stage.folder / f"new-{number}"
        server = stage.until_the_end(StoreServer(("up",), folder, {"DATABASE_URL": stage.database_url}))
        server.begin()
        wait_until((folder / FILE).exists, "migrate begins")
        stage.pause(0.0, 1.5)
        server.kill()
        problems += damage(folder)
        server.start()
        if not server.is_ready():
            problems.append("the store is not ready after a start that was killed amid migrate")
        if server.end():
            problems.append(f"the server did not end in good order: {server.last_words()}")
        problems += damage(folder)
    return outcome_of(History([], NOTHING), faults=stage.pace.migrate_kills, problems=problems)


def damage(folder: Path) -> Iterator[str]:
    """Yield the problems that SQLite finds in the file."""
    with closing(sqlite3.connect(folder / FILE)) as connection:
        told = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    yield from (f"integrity_check says {line}" for line in told if line != "ok")


def cut_network(stage: Stage) -> SceneResult:
    """Break connections before, in and after requests, which clients repeat with their keys."""
    servers = stage.servers()
    proxies = [Proxy(server.port, f"{stage.seed}/{number}") for number, server in enumerate(servers)]
    with ExitStack() as stack:
        for proxy in proxies:
            stack.enter_context(proxy.running())
        with stage.load(proxies, resends=True):
            wait_until(lambda: cuts(proxies) >= stage.pace.cuts, f"there are {stage.pace.cuts} cuts")
    history = stage.history(servers[0])
    doubts = [event for event in history.in_doubt if not event.is_claim]
    problems = [f"request {event.key} of client {event.client} received no response for a minute" for event in doubts]
    return outcome_of(history, faults=cuts(proxies), problems=problems)


def cuts(proxies: Sequence[Proxy]) -> int:
    return sum(proxy.faults.total() for proxy in proxies)


def terminate(stage: Stage) -> SceneResult:
    """Send SIGTERM under load: every change must be answered before the server ends."""
    servers = stage.servers()
    with stage.load(servers):
        time.sleep(stage.pace.seconds / 4)
        began_s = time.monotonic()
        code = servers[-1].end()
        took_s = time.monotonic() - began_s
        servers[-1].start()
        stage.pause(0.5, 1.0)
    history = stage.history(servers[0])
    problems = [f"the server ended with exit code {code}: {servers[-1].last_words()}"] if code else []
    # Requests without an answer must not have been done, so the others must explain the whole store.
    answered = replace(history, requests=[request for request in history.requests if not request.is_in_doubt])
    return outcome_of(
        answered, faults=1, problems=problems, figures=[Figure(name="ended after", value=took_s, limit=END_S)]
    )


def contention(stage: Stage) -> SceneResult:
    servers = stage.servers()
    with stage.load(servers):
        time.sleep(stage.pace.seconds)
    figures = [Figure(name="transactions of over 250 ms", value=servers[0].long_turns(), limit=0, unit="")]
    history = stage.history(servers[0])
    answered = sum(request.status == 200 for request in history.requests)
    least = Figure(name="operations", value=answered, limit=stage.pace.least_operations, unit="", is_least=True)
    problems = [
        f"request {event.path} of client {event.client} never received a response" for event in history.in_doubt
    ]
    for server in servers:
        if code := server.end():
            problems.append(f"the server ended with exit code {code}: {server.last_words()}")
        if "Traceback" in server.log.read_text(errors="replace"):
            problems.append(f"the server logged a traceback: {server.last_words()}")
    return outcome_of(history, faults=0, problems=problems, figures=[least, *(figures if stage.is_sqlite else ())])
