"""Servers that are killed or told to end while clients are at work."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from ..history import History, Truth
from ..outcome import Figure, Outcome, outcome_of
from ..processes import StoreServer
from ..stage import Stage, wait_until
from ..truth import FILE

START_S = 3.0
END_S = 30.0
NOTHING = Truth(living={}, ended={})


def kill_server(stage: Stage) -> Outcome:
    """kill -9 in turn, of the only one on SQLite; the one that answers then is the one that was started."""
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


def kill_migrate(stage: Stage) -> Outcome:
    """kill -9 of a first start, at any moment of it; another start makes a store that works."""
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
    """What SQLite finds wrong with the file."""
    with closing(sqlite3.connect(folder / FILE)) as connection:
        told = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    yield from (f"integrity_check says {line}" for line in told if line != "ok")


def terminate(stage: Stage) -> Outcome:
    """SIGTERM under load: what was done is answered before the server goes."""
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
    # What has no answer must not have been done: as if it had never been sent, the rest explains all that is there.
    answered = replace(history, requests=[request for request in history.requests if not request.is_in_doubt])
    return outcome_of(
        answered, faults=1, problems=problems, figures=[Figure(name="ended after", value=took_s, limit=END_S)]
    )
