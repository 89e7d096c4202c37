"""Scenes about the database: kills, locks, backups, clocks, interleavings."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from itertools import product
from typing import Any

import psycopg

from ..history import Event, History
from ..interleaving import arena, differences
from ..loss import Loss, Return
from ..outcome import Figure, SceneResult, Violation, outcome_of, outcome_with
from ..pairs import PAIRS
from ..processes import StoreServer, command, faked_clock, run_command
from ..rivals import ALONE, BY_THE_WRITER, IN_TWO_TRIPS, Tally
from ..stage import TEMPLATE, Stage, make_store, wait_until
from ..truth import FILE

RECOVERED_S = 5.0
TOLD_S = 5.0


def kill_postgresql(stage: Stage) -> SceneResult:
    """Kill PostgreSQL with kill -9: the servers answer 503 with Retry-After, and recover automatically."""
    cluster = stage.places.cluster
    servers = stage.servers()
    recovered_s = []
    with stage.load(servers):
        for _ in range(stage.pace.postgresql_kills):
            stage.pause(0.5, 2.0)
            cluster.kill()
            stage.pause(0.5, 3.0)
            cluster.start()
            recovered_s.append(wait_until(lambda: all(server.is_ready() for server in servers), "the servers recover"))
        stage.pause(0.5, 1.0)
    history = stage.history(servers[0], may_be_unavailable=True)
    told_s = [event.received_s - event.sent_s for event in history.requests if event.status == 503]
    figures = [
        Figure(name="ready again within", value=max(recovered_s), limit=RECOVERED_S),
        Figure(name="503 within", value=max(told_s, default=0.0), limit=TOLD_S),
    ]
    return outcome_of(history, faults=len(recovered_s), figures=figures)


BLOCKED_S = 20.0
BACK_S = 5.0
LOCKED = 5  # Tasks.


def blocker(stage: Stage) -> SceneResult:
    """Hold row locks and all other connections of PostgreSQL, or the write lock of SQLite."""
    server = stage.server()
    with stage.load([server]):
        time.sleep(stage.pace.seconds / 6)
        began_s = time.monotonic()
        with blocked(stage):
            time.sleep(BLOCKED_S)
            ended_s = time.monotonic()
        back_s = wait_until(server.is_ready, "the store is ready again")
        time.sleep(stage.pace.seconds / 6)
    history = stage.history(server, may_be_unavailable=True)
    meanwhile = [event for event in history.requests if began_s < event.sent_s and event.received_s < ended_s]
    told_s = [event.received_s - event.sent_s for event in history.requests if event.status == 503]
    figures = [
        Figure(name="503 within", value=max(told_s, default=0.0), limit=TOLD_S),
        Figure(name="ready again within", value=back_s, limit=BACK_S),
    ]
    return outcome_of(history, faults=1, problems=list(stalled(stage, meanwhile)), figures=figures)


def stalled(stage: Stage, meanwhile: list[Event]) -> Iterator[str]:
    """Report if nothing was done while some rows were locked; on SQLite at least reading must continue."""
    answered = [event for event in meanwhile if event.status == 200]
    if not [event for event in answered if stage.is_sqlite or event.is_change]:
        yield f"nobody got anything done while others held locks: {len(meanwhile)} requests, none was answered"


@contextmanager
def blocked(stage: Stage) -> Iterator[None]:
    if stage.is_sqlite:
        with closing(sqlite3.connect(stage.folder / "data" / FILE, isolation_level=None, timeout=60)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
        return
    with ExitStack() as stack:
        holder = stack.enter_context(psycopg.connect(stage.database_url))
        holder.execute("SELECT id FROM tasks_app_task ORDER BY id DESC LIMIT %s FOR UPDATE", [LOCKED])
        with suppress(psycopg.OperationalError):  # Until no connection is left.
            while True:
                stack.enter_context(psycopg.connect(stage.database_url))
        yield


def backup(stage: Stage) -> SceneResult:
    """Taken under load; the store goes on, is stopped, and another one goes on from the backup, for the same clients.

    They hold, know and name ids that the restored store never gave out.
    """
    servers = stage.servers()
    file = str(stage.folder / "store.zip")
    with stage.load(servers):
        time.sleep(stage.pace.seconds / 4)
        safe_s = time.monotonic()
        command("backup", file, **place_of(servers))
        time.sleep(stage.pace.seconds)
        for server in servers:
            server.end()
        back = Return(safe_s=safe_s, ended_s=time.monotonic())
        use_empty_store(stage, servers)
        command("restore", file, **place_of(servers))
        for server in servers:
            server.start()
        time.sleep(stage.pace.seconds / 4)
    history = stage.history(servers[0], may_be_unavailable=True)
    return outcome_with(Loss(history, [back]), problems=list(what_verify_says(servers)))


def place_of(servers: Sequence[StoreServer]) -> dict[str, Any]:
    """Return the environment in which commands find the servers' store."""
    return {"folder": servers[0].folder, "DATABASE_URL": servers[0].variables["DATABASE_URL"]}


def use_empty_store(stage: Stage, servers: Sequence[StoreServer]) -> None:
    """Make the servers use another, empty store from their next start."""
    if stage.is_sqlite:
        for server in servers:
            server.folder = stage.folder / "restored"
            server.folder.mkdir()
    else:
        url = stage.places.cluster.new_database(stage.folder.name)
        for server in servers:
            server.variables = {**server.variables, "DATABASE_URL": url}


def what_verify_says(servers: Sequence[StoreServer]) -> Iterator[str]:
    done = run_command("verify", **place_of(servers))
    if done.returncode:
        yield from (f"verify says: {line}" for line in (done.stdout + done.stderr).splitlines())


NEVER_MS = 2**62
PUT_TO = ("+2h", "-2h")


def clocks(stage: Stage) -> SceneResult:
    """Shift the clocks of clients by a day and, on PostgreSQL, of servers by an hour, without effect."""
    variables = [{}] if stage.is_sqlite else [faked_clock("+1h"), faked_clock("-1h")]
    servers = [stage.server(**clock) for clock in variables]
    with stage.load(servers, days_off=(1, -1)):
        time.sleep(stage.pace.seconds)
    return outcome_of(stage.history(servers[0]), faults=stage.pace.clients + len(servers))


def database_clock(stage: Stage) -> SceneResult:
    """Shift the database's clock by two hours and back: no id is reused, nothing is lost, the order holds."""
    servers = stage.servers()
    with stage.load(servers):
        for offset in (*PUT_TO, "+0"):
            time.sleep(stage.pace.seconds / 3)
            if stage.is_sqlite:
                servers[0].kill()
                servers[0].start(**faked_clock(offset))
            else:
                stage.places.cluster.kill()
                stage.places.cluster.start(**faked_clock(offset))
        stage.pause(1.0, 2.0)
    history = stage.history(servers[0], may_be_unavailable=True)
    return outcome_of(without_clocks(history), faults=len(PUT_TO) + 1)


def without_clocks(history: History) -> History:
    """Remove the clients' times, so that checks that depend on them prove nothing."""
    requests = [replace(request, sent_ms=0, received_ms=NEVER_MS) for request in history.requests]
    return replace(history, requests=requests)


LANES = 6  # Pairs run in parallel, because each mostly waits for PostgreSQL.


def interleavings(stage: Stage) -> SceneResult:
    """Compare responses and tables of each order of statements with those of the two serial orders."""
    # No fsync, because nothing must survive and many commits would wait for the disk.
    cluster = stage.places.new_cluster(fsync="off")
    make_store(stage.folder / "data", cluster.new_database(TEMPLATE))
    addresses = [cluster.new_database(f"lane_{number}", TEMPLATE) for number in range(LANES)]
    tally = Tally()
    found = asyncio.run(violations(stage, addresses, tally))
    cluster.kill()
    figures = [
        Figure(name=name, value=value, unit="")
        for name, value in (
            ("pairs of operations, each alone, by the writer, and if they are plain in two trips,", len(PAIRS)),
            ("statements that waited for the other's locks", tally.waits),
            ("deadlocks, tried again", tally.deadlocks),
        )
    ]
    return SceneResult(operations=2 * tally.orders, faults=tally.orders, violations=found, figures=figures)


async def violations(stage: Stage, addresses: Sequence[str], tally: Tally) -> list[Violation]:
    """Return the violations. `addresses`: those of one store per lane."""
    found: list[Violation] = []
    to_try = deque(product(PAIRS, (ALONE, BY_THE_WRITER)))
    to_try += [(pair, IN_TWO_TRIPS) for pair in PAIRS if pair.is_plain]

    async def go_through(address: str) -> None:
        async with arena(address, tally) as place:
            while to_try:
                pair, way = to_try.popleft()
                chance = random.Random(f"{stage.seed}/{pair.name}/{way}")  # noqa: S311 - the same each time.
                async for text in differences(place, pair, way, stage.pace.interleavings, chance):
                    found.append(Violation(text=text))

    await asyncio.gather(*map(go_through, addresses))
    return found
